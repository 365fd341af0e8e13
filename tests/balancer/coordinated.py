"""Several nodes over one coordination log, with readers, memberships and leaders but without
consumers. Each node can be killed, stopped in good order, paused, or cut off from the log.
"""

import random
from contextlib import asynccontextmanager, contextmanager

import trio

from hermes_actors.balancer.leader import Leader
from hermes_actors.balancer.membership import Membership, NodeLoads
from hermes_actors.balancer.planning import Ownable, Workload
from hermes_actors.balancer.presence import Presence
from hermes_actors.coordination.commands import Assignment, Release, Target, encode
from hermes_actors.coordination.reader import CoordinationReader
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import LogUnavailable, UnavailableRecord
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import seeded_ids
from hermes_chaos.sim.environment.clock import SimulatedClock

SUBSCRIPTIONS = tuple(f"shop.orders$s{number}" for number in range(6))


class PlannerBroke(Exception):
    """Raised by a planner that is broken on purpose."""


class EvenSpread:
    """Assigns the subscriptions to the nodes in turn, all partitions to one; moves as few as
    possible.
    """

    def __init__(self):
        self.plans = 0
        self.is_broken = False

    def plan(self, state, workload):
        self.plans += 1
        if self.is_broken:
            raise PlannerBroke("division by nothing")
        nodes = [
            member.boot
            for member in sorted(state.members.values(), key=lambda member: member.node)
            if member.node not in workload.draining
        ]
        before = {name: state.targets_of(name) for name in state.subscriptions}
        yield
        if not nodes:
            return ()
        counts = dict.fromkeys(nodes, 0)
        room = -(-len(workload.subscriptions) // len(nodes))
        homeless, assignments = [], []
        for name in workload.subscriptions:
            boot = next((target.boot for target in before.get(name, ())), "")
            if boot in counts and counts[boot] < room:
                counts[boot] += 1
            else:
                homeless.append(name)
        for name in homeless:
            boot = min(nodes, key=lambda each: counts[each])
            counts[boot] += 1
            partitions = tuple(range(workload.subscriptions[name].partitions))
            assignments.append(Assignment(name, (Target(boot, partitions),)))
        gone = [name for name in before if name not in workload.subscriptions]
        return (*assignments, *(Assignment(name, ()) for name in gone))


class OwnView:
    """The log as one node sees it: pausable, and possibly unreachable."""

    def __init__(self, log):
        self._log = log
        self.dc = log.dc
        self.is_cut = False
        self.is_deaf = False
        self._running = trio.Event()
        self._running.set()

    def pause(self):
        self._running = trio.Event()

    def go_on(self):
        self._running.set()

    async def _gate(self, *, is_read=True):
        while not self._running.is_set():
            # A stopped process does not notice its time-outs either.
            with trio.CancelScope(shield=True):
                await self._running.wait()
        await trio.lowlevel.checkpoint()
        if self.is_cut or (self.is_deaf and is_read):
            raise LogUnavailable("out of reach")

    async def append(self, topic, partition, batch, ack):
        try:
            await self._gate(is_read=False)
        except LogUnavailable as error:
            return [UnavailableRecord(error.message) for _ in batch]
        return await self._log.append(topic, partition, batch, ack)

    @asynccontextmanager
    async def reader(self, topic, positions):
        async with self._log.reader(topic, positions) as reader:
            yield _OwnReader(self, reader)

    @property
    def topics(self):
        return _Gated(self._gate, self._log.topics)

    def __getattr__(self, name):
        return getattr(_Gated(self._gate, self._log), name)


class _Gated:
    """Every call waits at the gate."""

    def __init__(self, gate, asked):
        self._gate = gate
        self._asked = asked

    def __getattr__(self, name):
        asked = getattr(self._asked, name)

        async def ask(*arguments):
            await self._gate()
            return await asked(*arguments)

        return ask


class _OwnReader:
    def __init__(self, view, reader):
        self._view = view
        self._reader = reader

    def seek(self, partition, position):
        self._reader.seek(partition, position)

    async def next_batch(self, records_max, bytes_max):
        await self._view._gate()
        batch = await self._reader.next_batch(records_max, bytes_max)
        await self._view._gate()
        return batch


class CoordinatedNode:
    def __init__(self, cluster, name, seed):
        rng = random.Random(f"{seed}{name}")
        self.name = name
        self.cluster = cluster
        self.log = OwnView(cluster.log)
        self.coordination = Coordination(self.log)
        self.presence = Presence()
        self.planner = EvenSpread()
        self.scope = trio.CancelScope()
        self.releases_s = 0.1
        self.loads = NodeLoads()
        self.crashes = []
        clock = cluster.clock
        self.reader = CoordinationReader(self.coordination, clock=clock, rng=rng)
        self.membership = Membership(
            self.coordination,
            self.presence,
            node=name,
            cores=2.0,
            version="1",
            clock=clock,
            ids=seeded_ids(rng),
            loads=lambda: self.loads,
        )
        self.leader = Leader(
            self.coordination,
            self.presence,
            self.planner.plan,
            lambda: cluster.workload,
            clock=clock,
            rng=rng,
            on_crash=self.crashes.append,
        )
        self._leaves, self._stops_reading = trio.Event(), trio.Event()
        self._stops_leading = trio.Event()
        self._is_over = trio.Event()
        self._agent_scope = trio.CancelScope()

    @property
    def state(self):
        return self.coordination.state

    @property
    def boot(self):
        return self.presence.boot

    def may_act_on(self):
        """What its consumers may be pushing now."""
        lease = self.presence.lease
        if lease is None or not lease.is_open():
            return set()
        return {
            (name, partition)
            for name, grant in self.state.grants_of(lease.boot).items()
            for partition in grant.partitions
        }

    def leads(self):
        return self.state.leader == self.boot != ""

    async def run(self):
        with self.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.reader.run, self._stops_reading)
                nursery.start_soon(self.leader.run, self._stops_leading)
                nursery.start_soon(self.membership.run, self._leaves)
                nursery.start_soon(self._release)
        self._is_over.set()

    async def _release(self):
        """As an agent does: release what is no longer to be owned, after a while."""
        with self._agent_scope:
            while True:
                lease = await self.presence.wait_life()
                with self.presence.using(lease):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._release_in, lease)
                        await lease.wait_lost()
                        nursery.cancel_scope.cancel()

    async def _release_in(self, lease):
        while True:
            await trio.sleep(self.releases_s)
            state = self.state
            for name, grant in list(state.grants_of(lease.boot).items()):
                if state.must_release(lease.boot, name):
                    record = encode(Release(lease.boot, name, grant.epoch), 0)
                    await self.log.append(self.coordination.topic, 0, [record], Ack.ALL)

    def kill(self):
        self.scope.cancel()

    async def stop(self):
        self._agent_scope.cancel()
        self._stops_leading.set()
        self._leaves.set()
        await trio.sleep(0.01)
        self.scope.cancel()
        await self._is_over.wait()

    @contextmanager
    def paused(self):
        self.log.pause()
        yield
        self.log.go_on()


class Cluster:
    def __init__(self, nursery, seed):
        self.clock = SimulatedClock()
        self.log = MemoryLog("dc1", self.clock)
        self.nodes = []
        self.seed = seed
        self._starts = {}
        self.workload = Workload({name: Ownable(4) for name in SUBSCRIPTIONS})
        self._nursery = nursery

    def start(self, *names):
        nodes = []
        for name in names:
            # Each start is a new life with new ids.
            lives = self._starts[name] = self._starts.get(name, 0) + 1
            seed = self.seed if lives == 1 else f"{self.seed}.{lives}"
            nodes.append(CoordinatedNode(self, name, seed))
        for node in nodes:
            self.nodes.append(node)
            self._nursery.start_soon(node.run)
        return nodes

    def change_workload(self, workload):
        self.workload = workload
        for node in self.nodes:
            node.leader.plan_soon()

    async def until(self, condition, within_s):
        """Wait until the condition holds and return the seconds; fails after `within_s`."""
        began_s = trio.current_time()
        while not condition():
            assert trio.current_time() - began_s <= within_s, "it takes too long"
            await trio.sleep(0.01)
            self.check()
        return trio.current_time() - began_s

    async def sleep(self, for_s):
        end_s = trio.current_time() + for_s
        while trio.current_time() < end_s:
            await trio.sleep(0.05)
            self.check()

    def check(self):
        """Assert that no partition may be pushed by two nodes at once."""
        pushers = {}
        for node in self.nodes:
            for owned in node.may_act_on():
                assert owned not in pushers, f"{owned} by {pushers[owned]} and {node.name}"
                pushers[owned] = node.name

    def pushed_by(self, *nodes):
        """True if exactly these nodes push everything, and each pushes something."""
        return self.all_is_pushed_by(nodes) and all(node.may_act_on() for node in nodes)

    def all_is_pushed_by(self, nodes):
        """True if these nodes together push everything."""
        wanted = {
            (name, partition)
            for name, each in self.workload.subscriptions.items()
            for partition in range(each.partitions)
        }
        return set().union(*(node.may_act_on() for node in nodes)) == wanted


@asynccontextmanager
async def open_cluster(seed=0):
    async with trio.open_nursery() as nursery:
        yield Cluster(nursery, seed)
        nursery.cancel_scope.cancel()
