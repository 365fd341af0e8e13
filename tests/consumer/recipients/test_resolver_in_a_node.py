"""A whole node with a resolver of the operator's: loaded, kept running, asked."""

import random
import sys
import types
from contextlib import asynccontextmanager

import pytest
import trio

from hermes_actors.config import Config, ConsumersConfig, ManagementConfig, RecipientsConfig
from hermes_actors.consumer.recipients.resolver import Unresolved
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.errors import StartupError
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from hermes_actors.node import NodeEnvironment, open_node
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.security.account import Credentials

OWNER = {"source": "Plaintext", "id": "team"}


class Registry:
    """Knows two addresses for 20 s; then its background work breaks, and begins anew."""

    def __init__(self, context):
        self.dc = context.dc
        self.addresses = []
        self.starts = 0

    def resolve(self, asked):
        return None

    def resolve_all(self, asked):
        if not self.addresses:
            raise Unresolved("not read yet")
        return self.addresses

    async def run(self):
        self.starts += 1
        await trio.sleep(1)
        self.addresses = [f"http://a.{self.dc}/", f"http://b.{self.dc}/"]
        await trio.sleep(20)
        raise OSError("the registry is away")


class Taking:
    def __init__(self, nursery):
        self.taken = []
        self._nursery = nursery

    def send(self, push, done):
        self.taken.append((push.route.origin.host, push.body))
        self._nursery.start_soon(self._answer, done)

    async def _answer(self, done):
        await trio.lowlevel.checkpoint()
        done(SendOutcome(200))


def environment(clock, log, sender, node):
    @asynccontextmanager
    async def senders(*_):
        yield lambda _live: sender

    return NodeEnvironment(
        clock=clock,
        ids=seeded_ids(random.Random(1)),
        rng=random.Random(2),
        log=log,
        remote_logs={},
        open_senders=senders,
    )


@pytest.fixture
def config():
    return Config(
        roles=["management", "consumers"],
        management=ManagementConfig(additional_endpoint_protocols=["service"]),
        consumers=ConsumersConfig(recipients=RecipientsConfig(resolver="acme_node:registry")),
    )


async def test_the_resolver_of_a_node_says_who_gets_messages(
    config, trio_clock, nursery, monkeypatch, autojump_clock
):
    made = []
    module = types.ModuleType("acme_node")
    module.registry = lambda context: made.append(Registry(context)) or made[0]
    monkeypatch.setitem(sys.modules, "acme_node", module)
    log, sender = MemoryLog(config.dc, trio_clock), Taking(nursery)
    async with open_node(config, environment(trio_clock, log, sender, config.node)) as node:
        await node.metadata.wait_current()
        administration = node.administration
        caller = await administration.security.identify(Credentials())
        await administration.groups.create(caller, {"groupName": "shop"})
        topic = {
            "name": "shop.orders",
            "description": "",
            "owner": OWNER,
            "contentType": "JSON",
            "retentionTime": {"duration": 1},
        }
        await administration.topics.create(caller, topic)
        subscription = {
            "name": "all",
            "topicName": "shop.orders",
            "endpoint": "service://orders",
            "mode": "BROADCAST",
            "description": "",
            "owner": OWNER,
        }
        await administration.subscriptions.create(caller, "shop.orders", subscription)
        await trio.sleep(0.5)
        name = node.metadata.catalog.topics["shop.orders"].log_topic
        message = Message(id="m1", body=b"1", published_at_ms=trio_clock.now_ms(), dc=config.dc)
        await log.append(name, 0, [to_record(message)], Ack.LEADER)
        await trio.sleep(30)
    assert sorted(sender.taken) == [(f"a.{config.dc}", b"1"), (f"b.{config.dc}", b"1")]
    # Its failure took nobody down, and it was started again.
    assert made[0].starts > 1


async def test_a_resolver_that_cannot_be_loaded_keeps_the_node_from_starting(
    config, trio_clock, nursery, autojump_clock
):
    log = MemoryLog(config.dc, trio_clock)
    surroundings = environment(trio_clock, log, Taking(nursery), config.node)
    with pytest.raises((StartupError, ExceptionGroup)) as raised:
        async with open_node(config, surroundings):
            pass
    group = pytest.RaisesGroup(StartupError, flatten_subgroups=True, allow_unwrapped=True)
    assert group.matches(raised.value)
