"""Nodes take part, are counted out, and come back, by the coordination log alone."""

import pytest
import trio
from msgspec.structs import replace

from hermes_actors.balancer.membership import NodeLoads
from hermes_actors.coordination.commands import COORDINATION_TOPIC, SETTINGS, TaskLoad


async def test_nodes_that_start_together_share_the_work_within_a_second(cluster, autojump_clock):
    nodes = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=1.0)
    assert sorted(m.node for m in nodes[0].state.members.values()) == ["a", "b", "c"]
    assert nodes[0].state == nodes[1].state == nodes[2].state


async def test_what_a_killed_node_had_is_pushed_elsewhere_within_four_seconds(
    cluster, autojump_clock
):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    follower = next(node for node in (a, b, c) if not node.leads())
    follower.kill()
    others = [node for node in (a, b, c) if node is not follower]
    cluster.nodes.remove(follower)
    took_s = await cluster.until(lambda: cluster.pushed_by(*others), within_s=4.0)
    assert took_s > 2.0


async def test_what_a_killed_leader_had_is_pushed_elsewhere_within_four_seconds(
    cluster, autojump_clock
):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    leader = next(node for node in (a, b, c) if node.leads())
    leader.kill()
    others = [node for node in (a, b, c) if node is not leader]
    cluster.nodes.remove(leader)
    await cluster.until(lambda: cluster.pushed_by(*others), within_s=4.0)
    assert others[0].state.term == 2


async def test_what_a_leaving_node_had_is_pushed_elsewhere_at_once(cluster, autojump_clock):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    leader = next(node for node in (a, b, c) if node.leads())
    await leader.stop()
    others = [node for node in (a, b, c) if node is not leader]
    assert await cluster.until(lambda: cluster.pushed_by(*others), within_s=0.5) < 0.5
    assert others[0].state.expired == 0


async def test_a_paused_node_is_fenced_counted_out_and_comes_back_under_a_new_id(
    cluster, autojump_clock
):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    paused = next(node for node in (a, b, c) if not node.leads())
    lease, boot = paused.presence.lease, paused.boot
    with paused.paused():
        others = [node for node in (a, b, c) if node is not paused]
        await cluster.until(lambda: cluster.pushed_by(*others), within_s=4)
        assert not lease.is_open()
        await cluster.sleep(16)
    assert not lease.is_open()
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    assert paused.boot != boot
    assert lease.is_lost
    assert len(a.state.members) == 3


async def test_a_paused_leader_is_followed_and_its_late_words_change_nothing(
    cluster, autojump_clock
):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    paused = next(node for node in (a, b, c) if node.leads())
    with paused.paused():
        await cluster.sleep(20)
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    assert not paused.leads()
    assert a.state.term == 2
    assert a.state == b.state == c.state


async def test_a_pause_shorter_than_the_lease_moves_nothing(cluster, autojump_clock):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    moves, boot = len(a.state.moves), c.boot
    with c.paused():
        await cluster.sleep(2.2)
        assert not c.presence.lease.is_open()
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=0.7)
    await cluster.sleep(5)
    assert len(a.state.moves) == moves
    assert c.boot == boot


@pytest.mark.parametrize("outage", ["cut", "silent", "appends only", "reads only"])
async def test_a_log_that_is_away_closes_all_leases_and_moves_nothing(
    cluster, outage, autojump_clock
):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    grants = {name: a.state.grants(name) for name in a.state.subscriptions}
    faults = cluster.log.faults
    if outage == "cut":
        faults.cut()
    elif outage == "silent":
        faults.silent = faults.reads_silent = True
    elif outage == "appends only":
        faults.unavailable_rate = 1.0
    else:
        faults.reads_failing = True
    await cluster.sleep(2.6)
    assert not any(node.may_act_on() for node in (a, b, c))
    await cluster.sleep(5 if outage == "reads only" else 17.4)
    assert not any(node.may_act_on() for node in (a, b, c))
    faults.heal()
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2.5)
    assert {name: a.state.grants(name) for name in a.state.subscriptions} == grants
    assert a.state.term == 1
    assert a.state.expired == 0


async def test_a_node_that_hears_nothing_stops_speaking_and_its_work_goes_elsewhere(
    cluster, autojump_clock
):
    a, b, c = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=2)
    deaf = next(node for node in (a, b, c) if not node.leads())
    others = [node for node in (a, b, c) if node is not deaf]
    deaf.log.is_deaf = True
    await cluster.until(lambda: cluster.pushed_by(*others), within_s=20)
    deaf.log.is_deaf = False
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=5)


async def test_a_new_life_waits_until_nothing_of_the_old_one_runs(cluster, autojump_clock):
    a, b = cluster.start("a", "b")
    await cluster.until(lambda: cluster.pushed_by(a, b), within_s=2)
    with b.presence.using(b.presence.lease):
        boot = b.boot
        with b.paused():
            await cluster.sleep(5)
        await cluster.sleep(5)
        assert b.boot == boot
        assert b.presence.lease.is_lost
    await cluster.until(lambda: cluster.pushed_by(a, b), within_s=2)


async def test_loads_are_told_each_ten_seconds_rounded_and_without_what_costs_nothing(
    cluster, autojump_clock
):
    (node,) = cluster.start("a")
    await cluster.until(lambda: cluster.pushed_by(node), within_s=1)
    node.loads = NodeLoads(
        0.123456, 1.5, {"shop.orders$s1": TaskLoad(10.123, 99.7, 0.0123456), "idle": TaskLoad()}
    )
    await cluster.sleep(10.5)
    assert node.state.subscriptions["shop.orders$s1"].load == TaskLoad(10.12, 100, 0.01235, 0.0)
    assert node.state.members[node.boot].load.cpu == 0.1235


async def test_loads_of_many_tasks_are_told_in_turns_with_others(cluster, autojump_clock):
    (node,) = cluster.start("a")
    await cluster.until(lambda: cluster.pushed_by(node), within_s=1)
    rounded, began = 0, trio.Event()

    class Counted(float):
        def __round__(self, digits=None):
            nonlocal rounded
            rounded += 1
            began.set()
            return round(float(self), digits)

    tasks = {f"shop.orders$n{number}": TaskLoad(Counted(1.123)) for number in range(1_000)}
    node.loads = NodeLoads(0.5, 1.5, tasks)
    await cluster.sleep(9.5)
    longest = before = 0
    with trio.fail_after(3):
        await began.wait()
        while before < 1_000:
            longest, before = max(longest, rounded - before), rounded
            await trio.lowlevel.checkpoint()
    # Two turns may lie between two of this task's.
    assert longest <= 2 * 250
    await cluster.sleep(0.1)
    assert node.state.members[node.boot].load is not None


async def test_a_log_that_is_made_anew_ends_all_lives_and_new_ones_begin(cluster, autojump_clock):
    a, b = cluster.start("a", "b")
    await cluster.until(lambda: cluster.pushed_by(a, b), within_s=2)
    lease = a.presence.lease
    await cluster.log.topics.delete(COORDINATION_TOPIC)
    await cluster.until(lambda: lease.is_lost, within_s=3)
    await cluster.until(lambda: cluster.pushed_by(a, b), within_s=12)
    assert a.coordination.generation == b.coordination.generation == 2


@pytest.mark.parametrize("delay_s", [0.0, 0.2, 0.45])
async def test_a_log_that_is_deleted_under_its_owners_never_makes_two_of_one(
    cluster, autojump_clock, delay_s
):
    a, b = cluster.start("a", "b")
    await cluster.until(lambda: cluster.pushed_by(a, b), within_s=2)
    await cluster.sleep(20 + delay_s)
    lease = a.presence.lease
    await cluster.log.topics.delete(COORDINATION_TOPIC)
    # One that knows nothing of it is the first in the new log.
    await cluster.log.topics.create(COORDINATION_TOPIC, SETTINGS)
    deleted_s = trio.current_time()
    (c,) = cluster.start("c")
    cluster.workload = replace(cluster.workload, has_run=True)
    await cluster.until(lambda: lease.is_lost, within_s=0.6)
    await cluster.until(lambda: cluster.pushed_by(c), within_s=5)
    assert trio.current_time() - deleted_s > 3
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=12)


async def test_what_has_run_before_waits_for_a_lease_in_a_log_that_tells_nothing_of_it(
    cluster, autojump_clock
):
    cluster.workload = replace(cluster.workload, has_run=True)
    (node,) = cluster.start("a")
    assert await cluster.until(lambda: cluster.pushed_by(node), within_s=4) >= 3
    # Who comes later finds a plan.
    await node.stop()
    cluster.nodes.clear()
    (node,) = cluster.start("a")
    assert await cluster.until(lambda: cluster.pushed_by(node), within_s=1) < 0.5


async def test_a_heartbeat_below_what_was_read_fences_at_once(cluster, autojump_clock):
    (node,) = cluster.start("a")
    await cluster.until(lambda: cluster.pushed_by(node), within_s=1)
    await cluster.sleep(5.1)
    lease = node.presence.lease
    partition = cluster.log.topics.known(COORDINATION_TOPIC).partitions[0]
    # An unclean election: the last ones are gone, and others come in their places.
    del partition.records[-4:]
    partition.replicate()
    await cluster.until(lambda: lease.is_lost, within_s=0.51)
    await cluster.until(lambda: cluster.pushed_by(node), within_s=15)
    assert node.coordination.generation == 2


async def test_all_that_come_back_to_a_log_that_retention_has_emptied_agree(
    cluster, autojump_clock
):
    nodes = cluster.start("a", "b", "c")
    await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=2)
    for node in nodes:
        await node.stop()
    cluster.nodes.clear()
    await trio.sleep(7 * 3_600)
    cluster.log.expire(cluster.clock.now_ms())
    assert not cluster.log.topics.known(COORDINATION_TOPIC).partitions[0].records
    cluster.workload = replace(cluster.workload, has_run=True)
    nodes = cluster.start("a", "b", "c")
    # One lease of silence is enough.
    assert await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=5) >= 3
    assert all(node.state == nodes[0].state for node in nodes)
    assert sum(node.leads() for node in nodes) == 1


@pytest.mark.parametrize("kept", [0, 1, 5, 20])
async def test_a_log_that_was_emptied_under_its_owners_never_makes_two_of_one(
    cluster, autojump_clock, kept
):
    a, b = cluster.start("a", "b")
    await cluster.until(lambda: cluster.pushed_by(a, b), within_s=2)
    await cluster.sleep(20)
    partition = cluster.log.topics.known(COORDINATION_TOPIC).partitions[0]
    cut = len(partition.records) - kept
    partition.start += cut
    del partition.records[:cut]
    (c,) = cluster.start("c")
    # It waits for the leader's next snapshot.
    await cluster.until(lambda: cluster.pushed_by(a, b, c), within_s=35)
    assert a.state == b.state == c.state
    assert a.state.expired == 0
