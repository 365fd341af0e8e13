"""Who looks into the logs finds there which node was lost, and when."""

import logging

import pytest


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


@pytest.mark.parametrize("leads", [True, False])
async def test_each_node_that_is_there_warns_once_of_a_lost_one(
    cluster, autojump_clock, news, leads
):
    leader, others = await started(cluster, "a", "b", "c")
    lost = leader if leads else others[0]
    cluster.nodes.remove(lost)
    lost.kill()
    await cluster.sleep(40)
    assert news() == 2 * [("WARNING", f"node {lost.name} is gone from dc1: silent for 3 s")]


@pytest.mark.parametrize("leads", [True, False])
async def test_a_node_that_left_is_news_and_no_warning(cluster, autojump_clock, news, leads):
    leader, others = await started(cluster, "a", "b", "c")
    leaving = leader if leads else others[0]
    cluster.nodes.remove(leaving)
    await leaving.stop()
    await cluster.sleep(5)
    assert set(news()) == {("INFO", f"node {leaving.name} has left dc1")}
