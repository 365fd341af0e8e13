"""Whole nodes of one datacentre that divide its subscriptions among them."""

from collections import Counter

import msgspec
import pytest
import trio

from hermes_actors.security.account import Credentials
from hermes_chaos.wanted import subscription_body, topic_body
from tests.nodes_scene import NAMES, TOPIC, Cluster, once


@pytest.fixture
async def cluster(nursery):
    cluster = Cluster(nursery)
    await cluster.start("a")
    await cluster.create()
    return cluster


async def test_a_fresh_node_delivers_within_a_second(cluster, autojump_clock):
    await cluster.publish(0)
    await trio.sleep(1)
    assert cluster.pushed() == once(0)


async def test_two_nodes_share_each_subscription_and_nothing_is_pushed_twice(
    cluster, autojump_clock
):
    await cluster.start("b")
    await trio.sleep(5)
    await cluster.publish(*range(200))
    await trio.sleep(3)
    assert cluster.pushed() == once(*range(200))
    assert cluster.pushers() == {(node, name) for node in "ab" for name in NAMES}
    for name in NAMES:
        owners = cluster.owners(name)
        assert sorted(owners["a"] + owners["b"]) == list(range(10))
        assert len(owners["a"]) == len(owners["b"]) == 5


@pytest.mark.slow
async def test_a_node_that_joins_under_load_costs_no_message_and_no_copy(cluster, autojump_clock):
    async def publish():
        for number in range(1_000):
            await cluster.publish(number)
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        await trio.sleep(3)
        await cluster.start("b")
        await trio.sleep(4)
        assert await cluster.stop("b") < 1
    await trio.sleep(5)
    assert cluster.pushed() == once(*range(1_000))
    assert {node for node, _ in cluster.pushers()} == {"a", "b"}


async def test_partitions_that_others_add_show_in_lag_until_they_are_delivered_soon(
    cluster, autojump_clock
):
    administration = cluster.nodes["a"].administration
    await cluster.start("b")
    await trio.sleep(5)
    held = await cluster.log.topics.describe(TOPIC)
    await cluster.log.topics.alter(TOPIC, msgspec.structs.replace(held, partitions=14))
    added_s = trio.current_time()
    for number in range(10, 14):
        await cluster.publish(number, partition=number)
    shown = []
    while cluster.pushed() != once(*range(10, 14)):
        await trio.sleep(0.5)
        metrics = await administration.statuses.subscription_metrics(TOPIC, "mail")
        why = await administration.statuses.why(TOPIC, "mail")
        offsets = await administration.standings.lag(TOPIC, "mail")
        shown.append((metrics["lag"], offsets["lag"], str(why)))
    assert trio.current_time() - added_s < 15
    lag, behind, why = next(each for each in shown if "were added" in each[-1])
    assert (lag, behind) == ("4", 4)
    assert "partitions 10, 11, 12, 13 were added to the topic and are not read yet" in why
    await trio.sleep(3)
    for name in NAMES:
        assert sorted(sum(cluster.owners(name).values(), ())) == list(range(14))


async def test_what_a_killed_node_had_is_delivered_elsewhere_within_five_seconds(
    cluster, autojump_clock
):
    await cluster.start("b")
    await cluster.start("c")
    await trio.sleep(5)
    await cluster.publish(*range(100))
    await trio.sleep(3)
    cluster.nodes["b"].kill()
    since = len(cluster.pushes)
    await cluster.publish(*range(100, 200))
    await trio.sleep(5)
    assert set(cluster.pushed(since)) == set(once(*range(100, 200)))
    assert {node for node, _ in cluster.pushers(since)} <= {"a", "c"}


async def test_a_node_that_has_slept_pushes_nothing_until_it_has_heard_itself_in_the_log(
    cluster, autojump_clock
):
    await cluster.start("b")
    await trio.sleep(5.1)
    cluster.takes_s = 0.1
    await cluster.publish(*range(1_000))
    await trio.sleep(0.05)
    since, before_s = len(cluster.pushes), trio.current_time()
    cluster.clocks["b"].slept_s = 60.0
    lease = cluster.nodes["b"].presence.lease
    while not lease.is_open():
        # Not one, though its consumers have messages at hand, and answers come.
        assert "b" not in {node for node, _ in cluster.pushers(since)}
        await trio.sleep(0.01)
    assert trio.current_time() - before_s > 0.1
    assert "a" in {node for node, _ in cluster.pushers(since)}
    await trio.sleep(20)
    assert cluster.pushed() == once(*range(1_000))


async def test_a_killed_node_that_is_back_before_its_lease_is_over_takes_part_in_another_life(
    cluster, autojump_clock
):
    await cluster.start("b")
    await trio.sleep(5)
    await cluster.publish(*range(100))
    await trio.sleep(3)
    former = cluster.nodes["b"].presence.boot
    cluster.nodes["b"].kill()
    await cluster.nodes["b"].ended.wait()
    since = len(cluster.pushes)
    await cluster.start("b")
    await cluster.publish(*range(100, 200))
    await trio.sleep(1)
    state = cluster.nodes["a"].coordination.state
    # Both lives of it are members; what the former had is nobody else's yet.
    assert {former, cluster.nodes["b"].presence.boot} < set(state.members)
    await trio.sleep(4)
    assert former not in state.members
    assert set(cluster.pushed(since)) >= set(once(*range(100, 200)))
    for name in NAMES:
        assert len(cluster.owners(name)["b"]) == 5
    assert cluster.pushers(since) == {(node, name) for node in "ab" for name in NAMES}


async def test_drained_nodes_deliver_while_no_other_node_takes_part(cluster, autojump_clock):
    await cluster.start("b")
    await trio.sleep(1)
    drains = cluster.nodes["a"].administration.drains
    caller = await cluster.nodes["a"].administration.security.identify(Credentials())
    await drains.set(caller, "dc1", "a", {}, False)
    await trio.sleep(5)
    await cluster.publish(*range(20))
    await trio.sleep(2)
    assert cluster.pushers() == {("b", name) for name in NAMES}
    # The one that is not drained goes.
    since = len(cluster.pushes)
    await cluster.stop("b")
    await cluster.publish(*range(20, 40))
    await trio.sleep(2)
    assert cluster.pushers(since) == {("a", name) for name in NAMES}
    # It comes back, and is drained too.
    await cluster.start("b")
    await trio.sleep(5)
    assert all(set(cluster.owners(name)) == {"b"} for name in NAMES)
    await drains.set(caller, "dc1", "b", {}, True)
    await trio.sleep(5)
    since = len(cluster.pushes)
    await cluster.publish(*range(40, 60))
    await trio.sleep(2)
    assert {node for node, _ in cluster.pushers(since)} == {"a", "b"}
    assert cluster.pushed() == once(*range(60))


@pytest.mark.parametrize("stopped", ["a", "b"])
async def test_a_slow_endpoint_holds_only_its_own_subscription_when_its_node_stops(
    cluster, autojump_clock, stopped
):
    await cluster.start("b")
    await trio.sleep(6)
    cluster.slow_s["billing"] = 4.0
    await cluster.publish(*range(20))
    await trio.sleep(0.5)
    (other,) = set("ab") - {stopped}
    took_s = []
    async with trio.open_nursery() as nursery:

        async def stop():
            took_s.append(await cluster.stop(stopped))

        nursery.start_soon(stop)
        await trio.sleep(1)
        # What the node had of this one is with the other, though it has not gone yet.
        since = len(cluster.pushes)
        await cluster.publish(*range(20, 40))
        await trio.sleep(0.5)
        mail = [(node, int(body)) for node, name, body in cluster.pushes[since:] if name == "mail"]
        assert sorted(mail) == [(other, number) for number in range(20, 40)]
        assert not took_s
    assert 2 < took_s[0] < 5.5
    await trio.sleep(15)
    # The other's own pushes of the slow one are cut short: it goes on with all partitions.
    assert set(cluster.pushed()) == set(once(*range(40)))
    assert Counter(name for _, name, _ in cluster.pushes)["mail"] == 40


@pytest.mark.slow
async def test_restarted_one_after_the_other_nodes_lose_nothing_and_move_a_partition_about_twice(
    cluster, autojump_clock
):
    await cluster.start("b")
    await cluster.start("c")
    await trio.sleep(6)
    before = cluster.holders()
    count = 0

    async def publish():
        nonlocal count
        while True:
            await cluster.publish(count)
            count += 1
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        await trio.sleep(1)
        since = len(cluster.pushes)
        for name in "bca":
            assert await cluster.stop(name) < 1.5
            del cluster.nodes[name]
            await trio.sleep(0.5)
            await cluster.start(name)
            await trio.sleep(0.5)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    await trio.sleep(5)
    assert set(cluster.pushed()) == set(once(*range(count)))
    moves = Counter()
    for node, name, body in cluster.pushes[since:]:
        lane = (name, int(body) % 10)
        moves[lane] += before[lane] != node
        before[lane] = node
    assert max(moves.values()) >= 1
    assert sum(moves.values()) <= 2 * len(before)


async def test_a_node_alone_that_stops_leaves_its_place_to_the_next_at_once(
    cluster, autojump_clock
):
    await cluster.publish(0)
    await trio.sleep(1)
    assert await cluster.stop("a") < 1
    cluster.nodes.clear()
    await cluster.start("a")
    await cluster.publish(1)
    await trio.sleep(1)
    assert cluster.pushed() == once(0, 1)


async def test_a_topic_that_the_log_does_not_answer_for_keeps_no_other_from_having_owners(
    cluster, autojump_clock, monkeypatch
):
    ask, count = cluster.log.positions, cluster.log.topics.partitions

    async def positions(topic, at):
        if topic == "shop.silent":
            await trio.sleep_forever()
        return await ask(topic, at)

    async def partitions(topics):
        return await count([each for each in topics if each != "shop.silent"])

    monkeypatch.setattr(cluster.log, "positions", positions)
    monkeypatch.setattr(cluster.log.topics, "partitions", partitions)
    administration = cluster.nodes["a"].administration
    caller = await administration.security.identify(Credentials())
    for name in ("shop.silent", "shop.other"):
        await administration.topics.create(caller, topic_body(name))
        subscription = subscription_body(name, "push", "http://sink/")
        await administration.subscriptions.create(caller, name, subscription)
        await trio.sleep(1)
    await trio.sleep(20)
    state = cluster.nodes["a"].coordination.state
    assert state.grants("shop.silent$push") == ()
    assert len(state.grants("shop.other$push")) == 1
