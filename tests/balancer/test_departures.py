"""Who looks into the logs finds there which node was lost, when, and what it had."""

import logging

import pytest

from hermes_actors.balancer.departures import Departures
from hermes_actors.coordination.commands import Assignment, Heartbeat, Join, Plan, Target, TermClaim
from hermes_actors.coordination.state import CoordinationState


def told(caplog):
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "hermes_actors.balancer.departures"
    ]


@pytest.fixture
def news(caplog):
    caplog.set_level(logging.INFO, logger="hermes_actors.balancer.departures")
    return lambda: told(caplog)


async def started(cluster, *names):
    nodes = cluster.start(*names)
    await cluster.until(lambda: cluster.pushed_by(*nodes), within_s=2)
    await cluster.sleep(1)
    leader = next(node for node in nodes if node.leads())
    return leader, [node for node in nodes if node is not leader]


async def test_the_leader_warns_once_of_a_lost_node(cluster, autojump_clock, news):
    _, (lost, _) = await started(cluster, "a", "b", "c")
    cluster.nodes.remove(lost)
    lost.kill()
    await cluster.sleep(40)
    text = f"node {lost.name} is gone from dc1: not heard of for 3 s; its 2 tasks move"
    assert news() == [("WARNING", text)]


async def test_a_lost_leader_is_told_of_by_the_next_one(cluster, autojump_clock, news):
    leader, _ = await started(cluster, "a", "b", "c")
    cluster.nodes.remove(leader)
    leader.kill()
    await cluster.sleep(40)
    text = f"node {leader.name} is gone from dc1: not heard of for 3 s; its 2 tasks move"
    assert news() == [("WARNING", text)]


@pytest.mark.parametrize("leads", [True, False])
async def test_a_node_that_left_is_news_and_no_warning(cluster, autojump_clock, news, leads):
    leader, others = await started(cluster, "a", "b", "c")
    leaving = leader if leads else others[0]
    cluster.nodes.remove(leaving)
    await leaving.stop()
    await cluster.sleep(5)
    assert news() == [("INFO", f"node {leaving.name} has left dc1; its 2 tasks move")]


async def test_a_node_counted_out_in_a_pause_is_told_of_once(cluster, autojump_clock, news):
    leader, _ = await started(cluster, "a", "b", "c")
    with leader.paused():
        await cluster.sleep(10)
    await cluster.sleep(5)
    assert [level for level, _ in news()] == ["WARNING"]


def test_a_node_that_is_back_before_its_former_life_is_over_is_said_to_be(news):
    state = CoordinationState()
    said = [
        Join("a1", "a", 1.0, "1"),
        TermClaim("a1", 1),
        Join("b1", "b", 1.0, "1"),
        Plan("a1", 1, -1, (Assignment("g.t$s", (Target("b1", (0,)),)),)),
    ]
    departures = Departures("dc1")
    for offset, each in enumerate(said):
        state.apply(offset, 0, each)
    departures.begin(state, "")
    state.apply(4, 500, Join("b2", "b", 1.0, "1"))
    for offset in range(5, 15):
        boot = "a1" if offset % 2 else "b2"
        state.apply(offset, 500 * (offset - 4), Heartbeat(boot, offset))
    departures.tell(state, state.subscriptions)
    departures.tell(state, state.subscriptions)
    why = "not heard of for 3 s; its 1 task moves"
    assert news() == [
        (
            "WARNING",
            f"node b is gone from dc1: {why}; it has joined again since",
        )
    ]
