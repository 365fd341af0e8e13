"""One node leads, plans what changes, and says so only while it may."""

import pytest
import trio

from hermes_actors.balancer.leader import in_parts
from hermes_actors.balancer.planning import Ownable, Workload
from hermes_actors.coordination.commands import (
    COORDINATION_TOPIC,
    Assignment,
    Plan,
    Snapshot,
    Stopping,
    Target,
    TermClaim,
    decode,
    encode,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.model.topic import Ack

SUBSCRIPTIONS = [f"shop.orders$s{number}" for number in range(6)]


def said(cluster, kind):
    """All records of a kind that the log has ever got, with their timestamps in seconds."""
    records = cluster.log.topics.known(COORDINATION_TOPIC).partitions[0].records
    found = [(stored.timestamp_ms / 1_000, decode(stored.value)) for stored in records]
    return [(at_s, each) for at_s, each in found if isinstance(each, kind)]


async def led(cluster, *names):
    """That many nodes, and which of them leads."""
    nodes = cluster.start(*names)
    await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=2)
    leader = next(node for node in nodes if node.leads())
    return nodes, leader


async def test_a_lost_nodes_work_is_planned_within_a_fifth_of_a_second_of_its_expiry(
    cluster, autojump_clock
):
    nodes, leader = await led(cluster, "a", "b", "c")
    follower = next(node for node in nodes if node is not leader)
    cluster.nodes.remove(follower)
    follower.kill()
    await cluster.until(lambda: leader.state.expired == 1, within_s=4)
    expired_s = leader.state.timestamp_ms / 1_000
    await cluster.sleep(1)
    assert said(cluster, Plan)[-1][0] - expired_s <= 0.2


async def test_what_is_new_is_planned_at_once_and_what_is_gone_is_taken_away(
    cluster, autojump_clock
):
    nodes, leader = await led(cluster, "a", "b")
    more = {name: Ownable(4) for name in [*SUBSCRIPTIONS[1:], "shop.orders$new"]}
    cluster.change_workload(Workload(more))
    assert await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=0.5) < 0.5
    await cluster.until(lambda: not leader.state.grants(SUBSCRIPTIONS[0]), within_s=1)


async def test_a_draining_nodes_work_goes_elsewhere(cluster, autojump_clock):
    nodes, _ = await led(cluster, "a", "b")
    cluster.change_workload(Workload(cluster.workload.subscriptions, ("b",)))
    a, b = nodes
    await cluster.until(lambda: cluster.pushed_by(a), within_s=1)
    assert not b.state.grants_of(b.boot)
    assert b.boot in a.state.members


async def test_many_changes_at_once_are_one_plan(cluster, autojump_clock):
    nodes, leader = await led(cluster, "a", "b")
    await cluster.sleep(1)
    plans = leader.planner.plans
    for number in range(20):
        more = {f"shop.orders$n{each}": Ownable(4) for each in range(number + 1)}
        cluster.change_workload(Workload(more))
        await trio.sleep(0.001)
    await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=1)
    assert leader.planner.plans - plans <= 2


async def test_nothing_is_planned_while_the_workload_is_not_known(cluster, autojump_clock):
    known, cluster.workload = cluster.workload, None
    (node,) = cluster.start("a")
    await trio.sleep(5)
    assert node.leads()
    assert said(cluster, Plan) == []
    cluster.workload = known
    await cluster.until(lambda: cluster.pushed_by(node), within_s=0.5)


async def test_balance_is_looked_at_every_half_minute(cluster, autojump_clock):
    _, leader = await led(cluster, "a", "b")
    await cluster.sleep(1)
    plans, appended = leader.planner.plans, len(said(cluster, Plan))
    await cluster.sleep(91)
    assert leader.planner.plans - plans == 3
    # What changes nothing is not said.
    assert len(said(cluster, Plan)) == appended


async def test_snapshots_are_taken_soon_and_regularly_and_are_the_state(cluster, autojump_clock):
    await led(cluster, "a", "b")
    await cluster.sleep(65)
    snapshots = said(cluster, Snapshot)
    assert len(snapshots) == 3
    records = cluster.log.topics.known(COORDINATION_TOPIC).partitions[0].records
    for _, snapshot in snapshots:
        state = CoordinationState()
        for stored in records[: snapshot.as_of + 1]:
            state.apply(stored.offset, stored.timestamp_ms, decode(stored.value))
        assert CoordinationState.restored(snapshot.state) == state


async def test_a_snapshot_too_large_for_a_record_comes_in_parts(
    cluster, autojump_clock, monkeypatch
):
    monkeypatch.setattr("hermes_actors.balancer.leader._PART_BYTES_MAX", 100)
    _, leader = await led(cluster, "a", "b")
    await cluster.sleep(2)
    assert said(cluster, Snapshot)[0][1].parts > 1
    await cluster.sleep(40)
    (joiner,) = cluster.start("c")
    await cluster.sleep(2)
    assert joiner.state == leader.state
    assert joiner.boot in joiner.state.members


async def test_a_plan_too_large_for_a_record_comes_as_several(cluster, autojump_clock, monkeypatch):
    monkeypatch.setattr("hermes_actors.balancer.leader._PLAN_BYTES_MAX", 300)
    nodes, _ = await led(cluster, "a", "b")
    plans = [plan for _, plan in said(cluster, Plan)]
    assert len(plans) >= 2
    assert all(len(plan.assignments) < 6 for plan in plans)
    assert cluster.pushed_by(*nodes)


async def test_who_leads_says_nothing_while_its_lease_is_closed(cluster, autojump_clock):
    _, leader = await led(cluster, "a", "b", "c")
    leader.log.is_deaf = True
    await cluster.sleep(2.1)
    assert not leader.presence.lease.is_open()
    count = len(said(cluster, Plan))
    cluster.change_workload(Workload({"shop.orders$new": Ownable(4)}))
    await cluster.sleep(5)
    assert len(said(cluster, Plan)) == count
    leader.log.is_deaf = False
    await cluster.until(lambda: leader.state.grants("shop.orders$new"), within_s=2)


@pytest.mark.parametrize("fault", ["acknowledgement_lost_rate", "unavailable_rate"])
async def test_a_plan_whose_fate_is_unknown_is_made_again(cluster, autojump_clock, fault):
    nodes, _ = await led(cluster, "a", "b")
    setattr(cluster.log.faults, fault, 0.7)
    cluster.change_workload(Workload({f"shop.orders$n{each}": Ownable(4) for each in range(8)}))
    await cluster.sleep(10)
    cluster.log.faults.heal()
    await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=8)


async def test_who_held_the_lead_and_lost_it_in_a_pause_plans_no_more(cluster, autojump_clock):
    nodes, leader = await led(cluster, "a", "b", "c")
    with leader.paused():
        await cluster.sleep(10)
        cluster.change_workload(Workload({"shop.orders$new": Ownable(4)}))
        await cluster.sleep(10)
    boot = leader.boot
    await cluster.sleep(5)
    last = [plan for _, plan in said(cluster, Plan)][-1]
    assert last.term == 2
    assert last.boot != boot
    states = [node.state for node in nodes]
    assert states[0] == states[1] == states[2]


async def test_a_leader_whose_planning_fails_keeps_the_lead_takes_snapshots_and_tries_on(
    cluster, autojump_clock
):
    _, leader = await led(cluster, "a", "b")
    leader.planner.is_broken = True
    cluster.change_workload(Workload({"shop.orders$new": Ownable(4)}))
    await cluster.sleep(65)
    assert leader.leads()
    assert leader.state.term == 1
    assert len(said(cluster, Snapshot)) >= 2
    assert leader.crashes[0].name == "planner of dc1"
    leader.planner.is_broken = False
    await cluster.until(lambda: leader.state.grants("shop.orders$new"), within_s=31)


async def test_a_node_that_is_stopping_claims_nothing(cluster, autojump_clock):
    (node,), _ = await led(cluster, "a")
    record = encode(Stopping(node.boot), 0)
    await cluster.log.append(COORDINATION_TOPIC, 0, [record], Ack.ALL)
    await cluster.sleep(20)
    assert not node.state.leader
    assert len(said(cluster, TermClaim)) == 1


def test_pieces_keep_the_order_and_fit():
    assignments = [
        Assignment(f"g.t$s{number}", (Target("boot", tuple(range(number % 7))),))
        for number in range(100)
    ]
    parts = list(in_parts(assignments, 50, 500))
    assert [each for part in parts for each in part] == assignments
    assert len(parts) > 5
    assert [len(part) for part in in_parts(assignments, 40, 10**6)] == [40, 40, 20]
    assert list(in_parts([], 50, 500)) == []
    assert [len(part) for part in in_parts(assignments[:3], 50, 1)] == [1, 1, 1]
