"""Whichever node leads copies the other datacentre's changes, and another one when it is gone."""

from collections import Counter

import msgspec
import pytest
import trio

from hermes_actors.config import Config
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.metadata.commands import METADATA_TOPIC, Copy, decode
from hermes_actors.node import open_node
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings
from hermes_chaos.wanted import topic_body


class TwoDatacentres:
    """Nodes of dc1 that come and go, and management in dc2 that changes things."""

    def __init__(self, nursery):
        self.nursery = nursery
        self.logs = [MemoryLog(dc, SimulatedClock()) for dc in ("dc1", "dc2")]
        self.nodes, self.scopes, self.stops = {}, {}, {}
        self.elsewhere = None
        self.created = 0

    async def start(self, name, *roles, dc="dc1"):
        own, other = self.logs if dc == "dc1" else reversed(self.logs)
        seed = len(self.scopes) + 1
        config = msgspec.structs.replace(Config(), dc=dc, node=name, roles=list(roles))
        environment = surroundings(SimulatedClock(), own, other, seed=seed)
        self.scopes[name], self.stops[name] = trio.CancelScope(), trio.Event()
        started = trio.Event()

        async def run():
            with self.scopes[name]:
                async with open_node(config, environment) as node:
                    self.nodes[name] = node
                    started.set()
                    await self.stops[name].wait()

        self.nursery.start_soon(run)
        await started.wait()
        await self.nodes[name].wait_prepared()

    async def arrives_s(self):
        """Create a topic in dc2; return after how many seconds it is in dc1, with its log topic."""
        administration = self.nodes["elsewhere"].administration
        if not self.created:
            await administration.groups.create(Anonymous(), {"groupName": "shop"})
        self.created += 1
        name = f"shop.t{self.created}"
        await administration.topics.create(Anonymous(), topic_body(name))
        began_s = trio.current_time()
        with trio.fail_after(60):
            # The log tells no event.
            while name not in await self.logs[0].topics.names():  # noqa: ASYNC110
                await trio.sleep(0.1)
        return trio.current_time() - began_s

    def leader(self):
        state = self.nodes["m"].coordination.state
        return state.members[state.leader].node if state.leader else ""

    async def copies(self):
        """How often each change of dc2 was appended to dc1's log."""
        end = self.nodes["m"].metadata.state.position
        async with self.logs[0].reader(METADATA_TOPIC, {0: 0}) as reader:
            commands = []
            while len(commands) < end:
                batch = await reader.next_batch(end, 1_000_000)
                commands += [decode(each.value) for each in batch]
        return Counter(each.id for each in commands if isinstance(each, Copy))


@pytest.fixture
async def datacentres(autojump_clock):
    async with trio.open_nursery() as nursery:
        found = TwoDatacentres(nursery)
        await found.start("elsewhere", "management", dc="dc2")
        await found.start("m", "management")
        yield found
        nursery.cancel_scope.cancel()


async def test_the_leader_copies_alone_and_its_successor_goes_on_in_seconds(datacentres):
    for name in "abc":
        await datacentres.start(name, "consumers")
    await trio.sleep(5)
    assert await datacentres.arrives_s() < 1
    assert await datacentres.arrives_s() < 1
    assert set((await datacentres.copies()).values()) == {1}

    datacentres.scopes[datacentres.leader()].cancel()  # as kill -9
    assert await datacentres.arrives_s() < 6
    datacentres.stops[datacentres.leader()].set()
    assert await datacentres.arrives_s() < 2

    # Nobody is left who could end its lease: management goes on.
    datacentres.scopes[datacentres.leader()].cancel()
    assert await datacentres.arrives_s() < 15
    assert await datacentres.arrives_s() < 1
    assert len(await datacentres.copies()) == 1 + datacentres.created


async def test_without_consumers_management_copies_at_once(datacentres):
    assert await datacentres.arrives_s() < 1
