"""A node that posts each change to a webhook, in order and at least once, across restarts."""

import json
import random
from contextlib import asynccontextmanager

import pytest
import trio

from hermes_actors.config import Config, ManagementConfig
from hermes_actors.config.tree import WebhookConfig
from hermes_actors.consumer.recipients.signing import Signer
from hermes_actors.consumer.senders.sender import SendOutcome, parse_lines
from hermes_actors.errors import StartupError
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.metadata.audit import Author, changes_of
from hermes_actors.model.signing_secrets import parse_secret
from hermes_actors.node import open_node
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings
from tests.scripted_sender import OK, ScriptedSender

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


class Scene:
    """One datacentre's log, a receiver, and the lives of a node with a webhook."""

    def __init__(self, nursery, config):
        self.config = config
        self.log = MemoryLog("dc1", SimulatedClock())
        self.sender = ScriptedSender(nursery, lambda _push: OK)
        self.groups = 0

    @asynccontextmanager
    async def node(self):
        self.groups += 100
        clock = SimulatedClock()
        around = surroundings(clock, self.log, sender=self.sender, seed=self.groups)
        async with open_node(self.config, around) as node:
            await node.metadata.wait_current()
            await trio.sleep(1)
            yield node

    async def create(self, node, count):
        """Create so many groups."""
        for _ in range(count):
            self.groups += 1
            with changes_of(Author("ada", reason=f"CHG-{self.groups}")):
                name = {"groupName": f"g{self.groups}"}
                await node.administration.groups.create(Anonymous(), name)

    def received(self):
        return [json.loads(body)["resource"] for body in self.sender.bodies]


@pytest.fixture
def scene(nursery, tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    webhook = WebhookConfig("http://ada:pass@mirror.test/hermes?x=1", str(file))
    return Scene(
        nursery, Config(roles=["management"], management=ManagementConfig(webhook=webhook))
    )


async def test_each_change_is_posted_signed_with_its_id(scene, autojump_clock):
    async with scene.node() as node:
        await scene.create(node, 1)
        await trio.sleep(1)
        (push,) = scene.sender.pushes
        headers = {name.lower(): value for name, value in parse_lines(push.lines)}
        found = await node.administration.audit.changes(Anonymous())
        assert json.loads(push.body) == found["changes"][0]
        assert headers[b"webhook-id"].decode() == found["changes"][0]["id"]
        signed = Signer([parse_secret(SECRET)]).sign(
            found["changes"][0]["id"], int(headers[b"webhook-timestamp"]), push.body
        )
        assert signed in push.lines
        assert headers[b"authorization"] == b"Basic YWRhOnBhc3M="
        assert str(push.route.origin) + push.route.target == "http://mirror.test:80/hermes?x=1"


async def test_while_the_receiver_fails_it_is_said_and_nothing_is_skipped(scene, autojump_clock):
    async with scene.node() as node:
        answers = [SendOutcome(503)] * 5
        scene.sender.script = lambda _push: answers.pop() if answers else OK
        await scene.create(node, 3)
        await trio.sleep(2)
        health = await node.administration.health.shown()
        assert [each for each in health["notices"] if "webhook: HTTP 503" in each]
        await trio.sleep(120)
        assert "notices" not in await node.administration.health.shown()
        assert scene.received() == ["groups/g101"] * 6 + ["groups/g102", "groups/g103"]


async def test_a_crash_is_said_until_a_change_is_posted_again(scene, autojump_clock):
    def crash(_push):
        raise RuntimeError("a fault")

    async with scene.node() as node:
        scene.sender.script = crash
        await scene.create(node, 1)
        await trio.sleep(10)
        health = await node.administration.health.shown()
        assert [each for each in health["notices"] if "webhook: it crashed" in each]
        scene.sender.script = lambda _push: OK
        await trio.sleep(600)
        assert "notices" not in await node.administration.health.shown()


async def test_what_was_changed_while_the_node_was_down_is_posted_after_it(
    scene, autojump_clock, monkeypatch
):
    # So that most changes are not in memory.
    monkeypatch.setattr("hermes_actors.node.metadata.ENTRIES_MAX", 3)
    made = []
    rng = random.Random(1)
    for _ in range(3):
        async with scene.node() as node:
            scene.sender.script = lambda _push: SendOutcome(500) if rng.random() < 0.3 else OK
            await scene.create(node, 5)
            made += [f"groups/g{number}" for number in range(scene.groups - 4, scene.groups + 1)]
            if rng.random() < 0.5:
                await trio.sleep(60)
            scene.sender.script = lambda _push: SendOutcome(500)
            await scene.create(node, 10)
            made += [f"groups/g{number}" for number in range(scene.groups - 9, scene.groups + 1)]
            await trio.sleep(5)
    async with scene.node():
        scene.sender.script = lambda _push: OK
        await trio.sleep(60)
    received = scene.received()
    assert list(dict.fromkeys(received)) == made


async def test_a_secret_that_is_none_is_refused_at_the_start(scene, tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    with pytest.raises(StartupError, match=r"management\.webhook.*whsec_") as refused:
        async with scene.node():
            pass
    assert "hunter2" not in refused.value.message
