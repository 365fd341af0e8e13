"""Readiness beyond the node's own: an administrator's mark, and a log that answered once."""

import random
from typing import Any

import pytest
import trio

from hermes_actors.config import ReadinessConfig
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.bodies import group_body, readiness_body, topic_body
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.keys import group_key, readiness_key, topic_key
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.group import Group
from hermes_actors.model.names import TopicName
from hermes_actors.publisher.readiness import ReadinessCheck
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.status.dependencies import Dependency, reasons
from hermes_chaos.sim.environment.clock import SimulatedClock
from tests.values import a_topic


class Dc:
    """One datacentre's log and metadata, and a check over them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        clock = SimulatedClock()
        rng = random.Random(1)
        self.log = MemoryLog("dc1", clock)
        self.metadata = Metadata(self.log, clock=clock, ids=seeded_ids(rng), rng=rng)
        self._nursery = nursery
        stop = trio.Event()
        nursery.start_soon(Registry(self.metadata).run, stop)

    async def mark(self, is_ready: bool, dc: str = "dc1") -> None:
        await self.metadata.change(put(readiness_key(dc), readiness_body(is_ready)))

    async def add_topic(self, name: str, *, in_log: bool = True) -> None:
        parsed = TopicName.parse(name)
        topic = a_topic(name)
        await self.metadata.change(put(group_key(parsed.group), group_body(Group("shop"))))
        await self.metadata.change(put(topic_key(parsed), topic_body(topic)))
        if in_log:
            await self.log.topics.create(
                self.metadata.catalog.topics[name].log_topic, TopicSettings()
            )

    def check(self, **settings: Any) -> ReadinessCheck:
        config = ReadinessConfig(check_enabled=True, **settings)
        check = ReadinessCheck(self.metadata, self.log, config)
        stop = trio.Event()
        self._nursery.start_soon(check.run, stop)
        return check


def told(check: ReadinessCheck) -> list[str]:
    return reasons(check.dependencies())


@pytest.fixture
async def dc(nursery) -> Dc:
    dc = Dc(nursery)
    await dc.metadata.wait_current()
    return dc


async def test_a_mark_is_followed_at_once(dc, autojump_clock):
    check = dc.check()
    assert told(check) == []
    await dc.mark(False)
    assert told(check) == ["datacentre dc1: an administrator has marked it as not ready"]
    await dc.mark(True)
    assert told(check) == []
    await dc.mark(False, dc="dc2")
    assert told(check) == []


async def test_it_waits_once_for_every_topic_of_the_log(dc, autojump_clock):
    await dc.add_topic("shop.orders")
    for number in range(40):
        await dc.add_topic(f"shop.late-{number:02}", in_log=False)
    check = dc.check(log_check_enabled=True)
    assert told(check) == ["topics: the log has not been asked yet"]
    await trio.sleep(3.5)
    assert told(check) == ["topics: the log does not answer for topic shop.late-00 and 39 more"]
    for number in range(40):
        await dc.log.topics.create(f"shop.late-{number:02}", TopicSettings())
    await trio.sleep(1.5)
    assert told(check) == []
    await dc.add_topic("shop.newest", in_log=False)
    await dc.log.topics.delete("shop.orders")
    await trio.sleep(10)
    assert told(check) == []


async def test_a_frontend_shows_it(open_world, autojump_clock):
    marks = ["an administrator has marked it as not ready"]
    dependencies = lambda: [Dependency("datacentre dc1", marks[0], is_needed=True)]  # noqa: E731
    async with open_world(parts={"dependencies": dependencies}) as world:
        await world.add_topic("shop.orders")
        answer = await world.client.get("/status/ready")
        assert (answer.status_code, answer.text) == (503, "NOT_READY")
        details = (await world.client.get("/status/details")).json()
        assert details["reason"] == f"datacentre dc1: {marks[0]}"
        # What is published all the same is taken, and what is not known is known not to be.
        assert (await world.publish("shop.orders")).status_code == 201
        assert (await world.publish("shop.nothing")).status_code == 404
        assert (await world.client.get("/status/health")).text == "UP"
        marks[0] = ""
        assert (await world.client.get("/status/ready")).text == "READY"
