"""A datacentre's figures are what its coordination says."""

import random

import pytest
import trio

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Loads,
    Plan,
    Target,
    TaskLoad,
    TermClaim,
    encode,
)
from hermes_actors.coordination.meter import SUM_INTERVAL_S, Meter
from hermes_actors.coordination.room import OwnershipLimits
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import StoredRecord
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import SimulatedClock

ORDERS = "shop.orders$billing"
PAGES = "shop.pages$search"


class Cluster:
    """A coordination that a test writes, and a meter that reads it on the node of boot b1."""

    def __init__(self):
        self.coordination = Coordination(MemoryLog("dc1", SimulatedClock()))
        self.draining = []
        self.meter = Meter(
            self.coordination,
            subscriptions=lambda: {ORDERS: None, PAGES: None},
            draining=lambda: self.draining,
            limits=OwnershipLimits(tasks_max=1),
        )
        self.own = self.meter.metrics()
        self.meter.own_metrics(self.own, lambda: "b1")

    def say(self, *saids):
        for said in saids:
            at = self.coordination.state.position
            stored = StoredRecord(0, at, 1_000 + 100 * at, None, encode(said, 0).value, ())
            self.coordination.fold(stored, said)

    def plan(self, name, boot):
        assignment = Assignment(name, (Target(boot, (0, 1)),))
        self.say(Plan("b1", 1, self.coordination.state.plan_offset, (assignment,)))

    async def figures(self):
        await trio.sleep(SUM_INTERVAL_S + 1)
        lines = render([self.own]).decode().splitlines()
        figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("hermes_balancer_"): each for name, each in figures.items()}


@pytest.fixture
async def cluster(autojump_clock, nursery):
    cluster = Cluster()
    nursery.start_soon(cluster.meter.run, trio.Event())
    await trio.testing.wait_all_tasks_blocked()
    return cluster


async def test_the_figures_are_the_states(cluster):
    cluster.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    cluster.plan(ORDERS, "b1")
    cluster.say(Loads("b1", 0.75, 2.0, {ORDERS: TaskLoad(cpu=0.008)}))
    cluster.draining = ["node-c"]
    figures = await cluster.figures()
    expected = {
        "term": 1.0,
        "members": 2.0,
        "is_current": 0.0,
        "is_leader": 1.0,
        "tasks": 1.0,
        "moves_total": 1.0,
        "expired_leases_total": 0.0,
        "leader_lease_age_seconds": 0.4,
        "skew_max_to_mean": 2.0,
        "skew_max_to_ideal": 1.0,
        "unassigned_subscriptions": 1.0,
        "draining_nodes": 1.0,
    }
    assert {name: float(figures[name]) for name in expected} == expected


async def test_many_moves_are_all_counted_also_over_a_snapshot(cluster):
    cluster.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    rng = random.Random(3)
    for _ in range(500):
        cluster.say(Heartbeat("b1", 1), Heartbeat("b2", 1))
        cluster.plan(rng.choice([ORDERS, PAGES]), rng.choice(["b1", "b2"]))
    state = cluster.coordination.state
    assert state.moved > len(state.moves) == 200
    assert type(state).restored(state.snapshot()).moved == state.moved


async def test_what_has_no_room_is_counted(cluster):
    cluster.say(Join("b1", "node-a", 2.0), TermClaim("b1", 1))
    assert (await cluster.figures())["unplaced_subscriptions"] == "0.0"
    cluster.plan(ORDERS, "b1")
    assert (await cluster.figures())["unplaced_subscriptions"] == "1.0"
