"""A datacentre whose metadata log was lost denies no topic that the others still know."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from hermes_actors.config import Config, ManagementConfig, MetadataConfig
from hermes_actors.log.base import LATEST
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.metadata.commands import METADATA_TOPIC
from hermes_actors.node import open_node
from hermes_actors.publisher.answers import Abandoned, Answer
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.pending import Pending
from hermes_actors.status.dependencies import reasons
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings
from tests.nodes_scene import memory_spool

ORDERS = "shop.orders"


class Datacenters:
    """Two logs, in which management has created shop.orders on dc1's side."""

    def __init__(self) -> None:
        clock = SimulatedClock()
        self.own, self.other = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
        self.disk = SimulatedDisk()
        self.lives = 0

    @asynccontextmanager
    async def opened(self, *roles: str, copies: bool = False) -> AsyncIterator:
        """A node of dc1 that serves."""
        self.lives += 1
        environment = replace(
            surroundings(SimulatedClock(), self.own, self.other, seed=self.lives),
            open_spool=memory_spool(Mount(self.disk)),
        )
        config = Config(
            roles=list(roles),
            metadata=MetadataConfig(replicator=Config().node if copies else ""),
            management=ManagementConfig(allow_removal=True),
        )
        async with open_node(config, environment) as node:
            await node.wait_prepared()
            if node.frontend is not None:
                node.frontend.drain.open()
            yield node

    async def create(self) -> None:
        async with (
            self.opened("management") as here,
            open_node(
                Config(dc="dc2", roles=["management"]),
                surroundings(SimulatedClock(), self.other, self.own, seed=99),
            ) as there,
        ):
            await create_shop(here.administration, "http://sink.test/")
            while ORDERS not in there.metadata.catalog.topics:  # noqa: ASYNC110
                await trio.sleep(0.1)

    async def lose_metadata(self) -> None:
        await self.own.topics.delete(METADATA_TOPIC)


@pytest.fixture
async def datacenters(autojump_clock) -> Datacenters:
    datacenters = Datacenters()
    await datacenters.create()
    return datacenters


def admitted(node, topic: str = ORDERS) -> Pending | Answer:
    answer = node.frontend.gateway.admit(topic, 2, None, Head([], {}), lambda _: None)
    if isinstance(answer, Pending):
        answer.settle(Abandoned())
    return answer


async def watched(node, seconds: float) -> list[tuple[int, bool]]:
    """(what a publish is answered, 0 when it is taken; whether it was READY), each 10 ms."""
    seen = []
    for _ in range(int(seconds * 100)):
        answer = admitted(node)
        status = answer.status if isinstance(answer, Answer) else 0
        seen.append((status, node.frontend.drain.is_ready))
        await trio.sleep(0.01)
    return seen


async def test_a_start_without_its_metadata_is_not_ready_before_it_has_them_from_the_others(
    datacenters,
):
    await datacenters.lose_metadata()
    async with datacenters.opened("frontend", copies=True) as node:
        seen = await watched(node, 15)
        assert node.notices() == []
    assert {status for status, _ in seen} <= {0, 503}
    assert seen[0] == (503, False)
    # READY is said of nothing but what is taken.
    assert {status for status, is_ready in seen if is_ready} == {0}
    assert seen.index((0, True)) < 1_000


async def test_a_running_node_whose_metadata_are_lost_denies_no_topic(datacenters):
    async with datacenters.opened("frontend") as node:
        await trio.sleep(3)
        assert node.frontend.drain.is_ready
        await datacenters.lose_metadata()
        seen = await watched(node, 15)
        assert {status for status, _ in seen} == {0, 503}
        assert seen[-1] == (503, False)
        async with datacenters.opened("management"):
            seen = await watched(node, 15)
        assert {status for status, _ in seen} == {0, 503}
        assert seen[-1] == (0, True)


async def test_what_nobody_copies_is_told_of_and_not_denied(datacenters):
    await datacenters.lose_metadata()
    async with datacenters.opened("frontend") as node:
        await trio.sleep(1)
        (reason,) = reasons(node.drain.dependencies())
        assert "changes that dc2 holds are not in the log of dc1 yet" in reason
        assert not node.frontend.drain.is_ready
        await trio.sleep(125)
        assert node.frontend.drain.is_ready
        (notice,) = node.notices()
        assert "changes that dc2 holds are not in the log of dc1 yet" in notice
        assert admitted(node).status == 503
        assert b"dc2 has it, and its creation is on its way to dc1" in admitted(node).body
        assert admitted(node, "shop.nothing").status == 404


async def test_another_datacentre_that_is_away_keeps_nobody_from_starting_for_long(datacenters):
    datacenters.other.faults.reads_failing = True
    async with datacenters.opened("frontend", copies=True) as node:
        await trio.sleep(1)
        assert not node.frontend.drain.is_ready
        assert admitted(node, "shop.nothing").status == 503
        await trio.sleep(10)
        assert node.frontend.drain.is_ready
        assert any("dc2 does not answer yet" in each for each in node.notices())
        assert admitted(node, "shop.nothing").status == 404
        datacenters.other.faults.reads_failing = False
        await trio.sleep(60)
        assert node.notices() == []


async def test_what_was_acknowledged_for_a_topic_that_was_lost_is_sent_when_it_is_back(datacenters):
    async with datacenters.opened("frontend", copies=True) as node:
        await trio.sleep(3)
        datacenters.own.faults.unavailable_rate = 1.0
        settled = trio.Event()
        gateway = node.frontend.gateway
        taken = gateway.admit(ORDERS, 2, None, Head([], {}), lambda _: settled.set())
        gateway.hand_over(taken, b"{}")
        await settled.wait()
        assert taken.answer.status == 202
    datacenters.own.faults.unavailable_rate = 0.0
    await datacenters.lose_metadata()
    async with datacenters.opened("frontend", copies=True):
        await trio.sleep(30)
    assert sum((await datacenters.own.positions(ORDERS, LATEST)).values()) == 1
    assert not [name for name in datacenters.disk.files if name.startswith("set-aside")]


async def test_a_topic_that_was_deleted_is_denied_while_another_datacentre_has_not_heard_of_it(
    datacenters,
):
    datacenters.other.faults.unavailable_rate = 1.0
    async with datacenters.opened("frontend", "management") as node:
        await trio.sleep(3)
        administration = node.administration
        await administration.subscriptions.delete(Anonymous(), ORDERS, "billing")
        await administration.topics.delete(Anonymous(), ORDERS)
        await trio.sleep(1)
        assert admitted(node).status == 404
