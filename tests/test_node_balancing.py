"""A whole node shows who runs what, drains, and counts it."""

import pytest
import trio

from hermes_actors.config import Config
from hermes_actors.coordination.commands import COORDINATION_TOPIC
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.node import open_node
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings

BILLING = "shop.orders$billing"


def figures(node):
    lines = render(node.metrics).decode().splitlines()
    prefix = "hermes_balancer_"
    return {
        line.split()[0].removeprefix(prefix): float(line.split()[1])
        for line in lines
        if line.startswith(prefix)
    }


@pytest.fixture
async def site(autojump_clock):
    """One node of dc1 with all of it, and dc2's log."""
    clock = SimulatedClock()
    log, remote = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    config = Config(node="a", dc="dc1", roles=["management", "consumers"])
    async with open_node(config, surroundings(clock, log, remote)) as node:
        await node.metadata.wait_current()
        # Nobody delivers to it here, but it is owned.
        await create_shop(node.administration, "http://billing.example.com/")
        await trio.sleep(15)
        yield node, clock, log, remote


async def test_a_nodes_management_shows_who_runs_what_and_why(site):
    node, *_ = site
    balancing = node.administration.balancing
    here, there = (await balancing.status())["datacenters"]
    assert (here["datacenter"], here["isKnown"], here["leader"]["node"]) == ("dc1", True, "a")
    (orders,) = here["subscriptions"]
    assert orders.subscription == BILLING
    assert [owner.node for owner in orders.owners] == ["a"]
    assert here["unassigned"] == []
    assert (there["datacenter"], there["isKnown"]) == ("dc2", False)
    assert "no topic" in there["reason"]
    (why, _) = (await balancing.explain(BILLING))["datacenters"]
    assert [owner.node for owner in why["subscriptions"][0].owners] == ["a"]
    assert [move.reason for move in why["moves"]] == ["new, owners: 1"]
    plan = await balancing.plan()
    assert (plan["datacenter"], plan["plan"].changes) == ("dc1", ())


async def test_the_other_datacentres_coordination_is_shown_and_not_written_to(site):
    node, clock, log, remote = site
    assert COORDINATION_TOPIC not in await remote.topics.names()
    config = Config(node="b", dc="dc2", roles=["consumers"])
    async with open_node(config, surroundings(clock, remote, log, seed=5)):
        await trio.sleep(5)
        _, there = (await node.administration.balancing.status())["datacenters"]
        assert there["isKnown"]
        assert [member.node for member in there["members"]] == ["b"]


async def test_a_drained_node_is_emptied_and_filled_again(site):
    node, clock, log, remote = site
    administration = node.administration
    config = Config(node="b", dc="dc1", roles=["consumers"])
    async with open_node(config, surroundings(clock, log, remote, seed=5)):
        await trio.sleep(5)
        await administration.drains.set(Anonymous(), "dc1", "a", {}, False)
        await trio.sleep(5)
        here = (await administration.balancing.status())["datacenters"][0]
        (drained,) = here["drained"]
        assert (drained["node"], drained["tasks"], drained["targets"]) == ("a", 0, 0)
        (orders,) = here["subscriptions"]
        assert [owner.node for owner in orders.owners] == ["b"]
        await administration.drains.undo("dc1", "a")
        await administration.drains.set(Anonymous(), "dc1", "b", {}, False)
        await trio.sleep(5)
        here = (await administration.balancing.status())["datacenters"][0]
        assert [owner.node for owner in here["subscriptions"][0].owners] == ["a"]


async def test_a_node_counts_what_it_coordinates(site):
    node, *_ = site
    found = figures(node)
    assert (found["is_current"], found["is_leader"]) == (1.0, 1.0)
    assert (found["term"], found["members"], found["tasks"]) == (1.0, 1.0, 1.0)
    assert (found["unassigned_subscriptions"], found["moves_total"]) == (0.0, 1.0)
    assert found["skew_max_to_ideal"] == 1.0


async def test_a_management_node_only_reads(autojump_clock):
    clock = SimulatedClock()
    log = MemoryLog("dc1", clock)
    config = Config(node="m", dc="dc1", roles=["management"])
    async with open_node(config, surroundings(clock, log)) as node:
        await trio.sleep(20)
        (here,) = (await node.administration.balancing.status())["datacenters"]
        assert (here["isKnown"], here["members"], here["position"]) == (True, [], 0)
        assert "is_leader" not in figures(node)
        assert figures(node)["members"] == 0.0


async def test_a_frontend_follows_no_coordination(autojump_clock):
    clock = SimulatedClock()
    log = MemoryLog("dc1", clock)
    config = Config(node="f", dc="dc1", roles=["frontend"])
    async with open_node(config, surroundings(clock, log)) as node:
        await trio.sleep(1)
        assert figures(node) == {}
