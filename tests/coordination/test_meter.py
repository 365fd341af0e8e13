"""A datacentre's figures are what its coordination says, and count the time that was closed."""

import random

import pytest
import trio

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Loads,
    Plan,
    Target,
    TermClaim,
    encode,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.meter import LOOK_INTERVAL_S, SUM_INTERVAL_S, Meter
from hermes_actors.coordination.room import OwnershipLimits
from hermes_actors.coordination.tally import PlannerWeights
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import StoredRecord
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import SimulatedClock

ORDERS = "shop.orders$billing"
PAGES = "shop.pages$search"


class Cluster:
    """A coordination that a test writes, and a meter that reads it."""

    def __init__(self):
        self.clock = SimulatedClock()
        self.coordination = Coordination(MemoryLog("dc1", self.clock))
        self.lease = None
        self.draining = []
        self.meter = Meter(
            self.coordination,
            clock=self.clock,
            subscriptions=lambda: {ORDERS: None, PAGES: None},
            draining=lambda: self.draining,
            weights=lambda _state: PlannerWeights({ORDERS: 8.0}),
            lease=lambda: self.lease,
            limits=OwnershipLimits(tasks_max=1),
        )
        self.own = self.meter.metrics()
        self.meter.own_metrics(self.own)

    def say(self, *saids):
        for said in saids:
            at = self.coordination.state.position
            stored = StoredRecord(0, at, 1_000 + 100 * at, None, encode(said, 0).value, ())
            self.coordination.fold(stored, said)

    def figures(self):
        lines = render([self.own]).decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


@pytest.fixture
async def cluster(autojump_clock, nursery):
    cluster = Cluster()
    stop = trio.Event()
    nursery.start_soon(cluster.meter.run, stop)
    await trio.testing.wait_all_tasks_blocked()
    return cluster


async def test_the_figures_are_the_states(cluster):
    cluster.lease = Lease("b1", cluster.clock)
    cluster.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    cluster.say(Plan("b1", 1, -1, (Assignment(ORDERS, (Target("b1", (0, 1)),)),)))
    cluster.say(Loads("b1", 0.75, 2.0, {}))
    cluster.draining = ["node-c"]
    await trio.sleep(SUM_INTERVAL_S + 1)
    figures = cluster.figures()
    expected = {
        "term": 1.0,
        "members": 2.0,
        "position": 5.0,
        "is_leader": 1.0,
        "is_member": 1.0,
        "tasks": 1.0,
        "weight": 8.0,
        "cpu_cores": 0.75,
        "moves_total": 1.0,
        "expired_leases_total": 0.0,
        "leader_lease_age_seconds": 0.4,
        "skew_max_to_mean": 2.0,
        "skew_max_to_ideal": 1.0,
        "unassigned_subscriptions": 1.0,
        "waiting_tasks": 0.0,
        "draining_nodes": 1.0,
        "lease_left_seconds": 0.0,
    }
    assert {name: float(figures[f"hermes_balancer_{name}"]) for name in expected} == expected


async def test_who_waits_is_counted(cluster):
    cluster.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    cluster.say(Plan("b1", 1, -1, (Assignment(ORDERS, (Target("b1", (0, 1)),)),)))
    cluster.say(Plan("b1", 1, 3, (Assignment(ORDERS, (Target("b2", (0, 1)),)),)))
    await trio.sleep(SUM_INTERVAL_S + 1)
    assert cluster.meter.waiting == 1
    assert cluster.figures()["hermes_balancer_moves_total"] == "2.0"


async def test_a_cluster_without_a_leader_has_no_age_of_his_lease(cluster):
    cluster.say(Join("b1", "node-a", 2.0), TermClaim("b1", 1), Leave("b1"))
    figures = cluster.figures()
    assert figures["hermes_balancer_leader_lease_age_seconds"] == "NaN"
    assert figures["hermes_balancer_is_leader"] == "0.0"
    assert figures["hermes_balancer_is_current"] == "0.0"


async def test_a_fence_that_is_closed_counts_by_the_clock_from_when_it_was_first_open(cluster):
    await trio.sleep(5)
    assert cluster.meter.closed_s == 0.0
    lease = cluster.lease = Lease("b1", cluster.clock)
    for number in range(4):
        lease.sending(number)
        lease.folded(number)
        await trio.sleep(0.5)
    assert cluster.meter.closed_s == 0.0
    # The last one keeps it open for two seconds from when it was sent.
    await trio.sleep(11.5)
    assert cluster.meter.closed_s == pytest.approx(10.0, abs=2 * LOOK_INTERVAL_S)
    lease.sending(9)
    lease.folded(9)
    await trio.sleep(1)
    assert cluster.meter.closed_s == pytest.approx(10.0, abs=2 * LOOK_INTERVAL_S)


async def test_a_life_that_is_lost_is_closed_until_the_next_one_opens(cluster):
    lease = cluster.lease = Lease("b1", cluster.clock)
    lease.sending(1)
    lease.folded(1)
    await trio.sleep(1)
    lease.lose()
    await trio.sleep(4)
    next_life = cluster.lease = Lease("b2", cluster.clock)
    next_life.sending(1)
    next_life.folded(1)
    await trio.sleep(1)
    assert cluster.meter.closed_s == pytest.approx(4.0, abs=2 * LOOK_INTERVAL_S)


async def test_many_moves_are_all_counted_also_over_a_snapshot(cluster):
    cluster.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    rng = random.Random(3)
    state = cluster.coordination.state
    for _ in range(250):
        boots = rng.sample(["b1", "b2"], 2)
        moved = [
            Assignment(name, (Target(boot, (0,)),))
            for name, boot in zip((ORDERS, PAGES), boots, strict=True)
        ]
        cluster.say(Heartbeat("b1", 1), Heartbeat("b2", 1))
        cluster.say(Plan("b1", 1, state.plan_offset, tuple(moved)))
    assert state.moved > len(state.moves) == 200
    assert type(state).restored(state.snapshot()).moved == state.moved


async def test_what_has_no_room_is_counted(cluster):
    cluster.say(Join("b1", "node-a", 2.0), TermClaim("b1", 1))
    await trio.sleep(SUM_INTERVAL_S + 1)
    figures = cluster.figures()
    assert figures["hermes_balancer_full_nodes"] == "0.0"
    assert figures["hermes_balancer_unplaced_subscriptions"] == "0.0"
    cluster.say(Plan("b1", 1, -1, (Assignment(ORDERS, (Target("b1", (0, 1)),)),)))
    await trio.sleep(SUM_INTERVAL_S + 1)
    figures = cluster.figures()
    assert figures["hermes_balancer_full_nodes"] == "1.0"
    assert figures["hermes_balancer_unplaced_subscriptions"] == "1.0"
    # A node that is drained beside no other carries on, and is as full.
    cluster.draining = ["node-a"]
    assert cluster.figures()["hermes_balancer_full_nodes"] == "1.0"
