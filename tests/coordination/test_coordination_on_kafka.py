"""Nodes meet in a real Kafka's coordination log: one that begins late, one that leaves."""

import random

import pytest
import trio

from hermes_actors.balancer.leader import Leader
from hermes_actors.balancer.membership import Membership
from hermes_actors.balancer.planning import Ownable, Workload
from hermes_actors.balancer.presence import Presence
from hermes_actors.coordination.commands import Assignment, Target
from hermes_actors.coordination.reader import CoordinationReader
from hermes_actors.coordination.view import Coordination
from hermes_actors.runtime.clock import IdSource, SystemClock, system_rng
from hermes_chaos.live.logs import on_kafka, until

pytestmark = [pytest.mark.kafka, pytest.mark.live]

CLOCK = SystemClock()
SUBSCRIPTION = "shop.orders$push"


class FirstByName:
    """All to the node with the first name."""

    def plan(self, state, workload):
        first = min(state.members.values(), key=lambda member: member.node)
        targets = (Target(first.boot, tuple(range(4))),)
        is_so = state.targets_of(SUBSCRIPTION) == targets
        yield
        return () if is_so else (Assignment(SUBSCRIPTION, targets),)


class Site:
    def __init__(self, log, namespace, name):
        self.coordination = Coordination(log, namespace)
        self.presence = Presence()
        self._parts = (
            CoordinationReader(self.coordination, clock=CLOCK, rng=system_rng()),
            Leader(
                self.coordination,
                self.presence,
                FirstByName().plan,
                lambda: Workload({SUBSCRIPTION: Ownable(4)}),
                clock=CLOCK,
                rng=system_rng(),
                on_crash=lambda _crash: None,
            ),
            Membership(
                self.coordination,
                self.presence,
                node=name,
                cores=1.0,
                version="1",
                clock=CLOCK,
                ids=IdSource(),
            ),
        )
        self._stop_reading, self._leave = trio.Event(), trio.Event()
        self._stop_leading = trio.Event()

    @property
    def owns(self):
        lease = self.presence.lease
        is_open = lease is not None and lease.is_open()
        return is_open and SUBSCRIPTION in self.coordination.state.grants_of(lease.boot)

    async def run(self):
        async with trio.open_nursery() as nursery:
            reader, leader, membership = self._parts
            nursery.start_soon(reader.run, self._stop_reading)
            nursery.start_soon(leader.run, self._stop_leading)
            nursery.start_soon(membership.run, self._leave)

    def leave(self):
        self._leave.set()
        self._stop_leading.set()


async def soon(condition, within_s):
    with trio.fail_after(within_s):
        await until(condition)


def test_nodes_join_lead_follow_and_leave_on_kafka(kafka_cluster, request):
    namespace = f"n{random.Random(request.node.name).getrandbits(32):x}"

    async def main(log):
        async with trio.open_nursery() as nursery:
            b = Site(log, namespace, "b")
            nursery.start_soon(b.run)
            await soon(lambda: b.owns, within_s=15)
            # The leader's first snapshot.
            await trio.sleep(1.5)
            a = Site(log, namespace, "a")
            nursery.start_soon(a.run)
            # What b has, it keeps: here nobody releases anything.
            await soon(lambda: bool(a.coordination.state.waiting(SUBSCRIPTION)), within_s=10)
            assert a.coordination.state.leader == b.presence.boot
            assert a.coordination.state.term == 1
            b.leave()
            await soon(lambda: a.owns, within_s=3)
            await soon(lambda: a.coordination.state.leader == a.presence.boot, within_s=3)
            assert a.coordination.state.expired == 0
            nursery.cancel_scope.cancel()

    on_kafka(main, kafka_cluster.bootstrap_servers)
