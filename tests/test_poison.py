"""A message that ends each node that looks at it, among whole nodes of one datacentre."""

import pytest
import trio

from hermes_actors.log.base import LATEST
from hermes_actors.model.dead_letter import Letter, dlq_topic, read_entry
from tests.nodes_scene import TOPIC, Cluster

POISON = 77
LEASE_S = 5


@pytest.fixture
async def cluster(nursery):
    cluster = Cluster(nursery)
    await cluster.start("a")
    await cluster.create()
    return cluster


async def letters(cluster):
    topic = dlq_topic("shop")
    if topic not in await cluster.log.topics.names():
        return []
    ends = await cluster.log.positions(topic, LATEST)
    found = []
    async with cluster.log.reader(topic, dict.fromkeys(ends, 0)) as reader:
        while len(found) < sum(ends.values()):
            found += await reader.next_batch(1_000, 10_000_000)
    return [letter for each in found if isinstance(letter := read_entry(each), Letter)]


def delivered(cluster, subscription):
    return {int(body) for _, name, body in cluster.pushes if name == subscription}


async def test_a_message_that_ends_its_node_is_set_aside_after_two(cluster, autojump_clock):
    for name in "bcdef":
        await cluster.start(name)
    await trio.sleep(10)
    await cluster.publish(*range(60))
    await trio.sleep(2)
    cluster.lethal.add(("billing", b"%d" % POISON))
    await cluster.publish(*range(60, 100))
    await trio.sleep(12 * LEASE_S)
    assert len(cluster.lost) == 2, f"it has walked through {cluster.lost}"
    assert delivered(cluster, "mail") == set(range(100))
    assert delivered(cluster, "billing") == set(range(100))
    (letter,) = await letters(cluster)
    assert (letter.reason, letter.value, letter.attempts) == ("poison", b"%d" % POISON, 0)
    assert letter.subscription == f"{TOPIC}$billing"
    assert "two nodes were lost" in letter.detail


@pytest.mark.slow
async def test_messages_that_only_wait_are_not_set_aside_when_a_node_is_lost_much_later(
    cluster, autojump_clock
):
    for name in "bcdef":
        await cluster.start(name)
    await trio.sleep(10)
    # Their endpoint never answers.
    cluster.slow_s["billing"] = 1e6
    await cluster.publish(*range(10))
    await trio.sleep(2)
    first = next(node for node in cluster.owners("billing") if node != "a")
    partitions = set(cluster.owners("billing")[first])
    cluster.nodes[first].kill()
    # Nothing more is published, so nobody looks at anything any more.
    await trio.sleep(120)
    owners = cluster.owners("billing")
    second = next(n for n in owners if n != "a" and not partitions.isdisjoint(owners[n]))
    cluster.nodes[second].kill()
    since = len(cluster.pushes)
    await trio.sleep(60)
    assert await letters(cluster) == []
    again = {number for name, number in cluster.pushed(since) if name == "billing"}
    assert again >= partitions & set(owners[second])
