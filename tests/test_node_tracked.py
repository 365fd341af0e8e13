"""What is told of tracked messages by whole nodes, and what is found of it."""

import pytest
import trio

from hermes_actors.config import Config
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous, Guest
from hermes_actors.node import open_node
from hermes_actors.tracking.events import TRACKING_TOPIC, EventKind, decode, terminal_of
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings
from hermes_chaos.wanted import subscription_body, topic_body
from tests.nodes_scene import TOPIC, Cluster
from tests.test_node_tracing import Endpoint, publish


async def batches_of(log):
    if await log.describe_topic(TRACKING_TOPIC) is None:
        return []
    found, position = [], (await log.start_positions(TRACKING_TOPIC))[0]
    end = (await log.end_positions(TRACKING_TOPIC))[0]
    async with log.reader(TRACKING_TOPIC, {0: position}) as reader:
        while position < end:
            for each in await reader.next_batch(1_000, 10_000_000):
                found.append(decode(each.value))
                position = each.offset + 1
    return found


async def two_datacentres(work, *statuses, is_tracked=True, **subscription):
    clock = SimulatedClock()
    dc1, dc2 = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    async with trio.open_nursery() as nursery:
        sink = Endpoint(nursery, *statuses)
        first = Config(dc="dc1", node="one")
        second = Config(dc="dc2", node="two", roles=["consumers"])
        async with (
            open_node(first, surroundings(clock, dc1, dc2, sender=sink, seed=1)) as node,
            open_node(second, surroundings(clock, dc2, dc1, sender=sink, seed=2)) as other,
        ):
            await node.metadata.wait_current()
            node.frontend.drain.open()
            caller, administration = Anonymous(), node.administration
            await administration.groups.create(caller, {"groupName": "shop"})
            topic = topic_body(
                TOPIC, fallbackToRemoteDatacenterEnabled=True, trackingEnabled=is_tracked
            )
            await administration.topics.create(caller, topic)
            fields = {"subscriptionPolicy": {"messageBackoff": 100}, **subscription}
            if is_tracked:
                fields.setdefault("trackingMode", "trackingAll")
            body = subscription_body(TOPIC, "billing", "http://shop.test/x", **fields)
            await administration.subscriptions.create(caller, TOPIC, body)
            while not (other.agent.subscriptions() and node.frontend.routes.by_name):  # noqa: ASYNC110
                await trio.sleep(0.1)
            await trio.sleep(3)
            await work(node, dc1, sink)
        nursery.cancel_scope.cancel()
    return await batches_of(dc1), await batches_of(dc2)


async def id_of(batches):
    return next(each.message_id for batch in batches for each in batch.events)


async def test_a_message_hedged_retried_twice_and_delivered_is_shown_whole(autojump_clock):
    found = {}

    async def work(node, own, sink):
        own.faults.silent, own.faults.late_store = True, False
        assert await publish(node, b"1") == 201
        with trio.fail_after(60):
            await sink.is_done.wait()
        # What was sent to a silent log is given up.
        await trio.sleep(60)
        own.faults.silent = False
        await trio.sleep(60)
        remote = await batches_of(node.config and environment_log(node))
        message_id = await id_of(remote)
        tracking = node.administration.tracking
        found["all"] = await tracking.of_message(Anonymous(), message_id)
        found["trace"] = await tracking.of_subscription(Anonymous(), TOPIC, "billing", message_id)
        found["guest"] = await tracking.of_message(Guest(), message_id)
        found["guest's trace"] = await tracking.of_subscription(
            Guest(), TOPIC, "billing", message_id
        )
        found["none"] = await tracking.of_message(Anonymous(), "nobody's")

    def environment_log(node):
        (log,) = [
            each
            for each in node.administration.undelivered._letters.logs.values()
            if each.dc == "dc2"
        ]
        return log

    await two_datacentres(work, 500, 503, 200)
    told = [(each["event"], each["datacenter"]) for each in found["all"]["events"]]
    assert told == [
        ("HEDGED", "dc2"),
        ("PUBLISHED", "dc2"),
        ("INFLIGHT", "dc2"),
        ("FAILED", "dc2"),
        ("INFLIGHT", "dc2"),
        ("FAILED", "dc2"),
        ("INFLIGHT", "dc2"),
        ("DELIVERED", "dc2"),
        ("FAILED", "dc1"),
    ]
    attempts = [
        (each["event"], each["attempt"]) for each in found["all"]["events"] if "attempt" in each
    ]
    assert attempts == [
        ("INFLIGHT", 1),
        ("FAILED", 1),
        ("INFLIGHT", 2),
        ("FAILED", 2),
        ("INFLIGHT", 3),
        ("DELIVERED", 3),
    ]
    assert {each["node"] for each in found["all"]["events"]} == {"one", "two"}
    (ended,) = found["all"]["ended"]
    assert (ended["event"], ended["subscription"]) == ("DELIVERED", "billing")
    assert found["all"]["gaps"] == found["all"]["troubles"] == []
    assert [each["status"] for each in found["trace"]] == [
        *("SUCCESS", "INFLIGHT", "FAILED", "INFLIGHT", "FAILED", "INFLIGHT", "SUCCESS", "ERROR"),
    ]
    assert found["none"]["events"] == []
    # Who owns neither topic nor subscription sees nothing of it.
    assert found["guest"]["events"] == found["guest"]["ended"] == found["guest's trace"] == []


async def test_nothing_is_written_nor_read_while_nobody_tracks(autojump_clock):
    async def work(node, own, sink):
        assert await publish(node, b"1") == 201
        await sink.is_done.wait()
        await trio.sleep(30)
        (consumer,) = [node.agent.consumer(name) for name in node.agent.subscriptions()]
        # The counters are told without a detour.
        assert type(consumer._dispatch._transitions).__name__ == "SubscriptionMeasures"
        assert not node.tracking.wanted.is_set()

    assert await two_datacentres(work, 200, is_tracked=False) == ([], [])


@pytest.mark.parametrize("mode", ["trackingAll", "discardedOnly"])
async def test_a_message_that_is_given_up_ends_as_a_dead_letter(mode, autojump_clock):
    async def work(node, own, sink):
        assert await publish(node, b"1") == 201
        await sink.is_done.wait()
        await trio.sleep(5)

    policy = {"messageTtl": 0}
    own, _ = await two_datacentres(work, 500, subscriptionPolicy=policy, trackingMode=mode)
    events = [each for batch in own for each in batch.events if each.subscription]
    kinds = [each.kind for each in events]
    if mode == "discardedOnly":
        assert kinds == [EventKind.DEAD]
    else:
        assert kinds == [EventKind.INFLIGHT, EventKind.FAILED, EventKind.DEAD]
    assert events[-1].reason.startswith("expired")
    assert own[-1].is_last


async def tracked_through_kills(nursery, count):
    """Publish so many messages while nodes are killed; the ends that are told of them."""
    cluster = Cluster(nursery)
    await cluster.start("a")
    await cluster.create()
    administration = cluster.nodes["a"].administration
    for name in ("billing", "mail"):
        await administration.subscriptions.update(
            Anonymous(), TOPIC, name, {"trackingMode": "trackingAll"}
        )
    for name in ("b", "c"):
        await cluster.start(name)
    await trio.sleep(5)
    for start in range(0, count, 100):
        await cluster.publish(*range(start, min(start + 100, count)))
        await trio.sleep(0.5)
        if start // 100 % 7 == 3:
            victim = "b" if start // 100 % 2 else "c"
            cluster.nodes[victim].kill()
            await cluster.nodes[victim].ended.wait()
            await cluster.start(victim)
    expected = {
        (f"m{number}", f"{TOPIC}${name}", 0)
        for number in range(count)
        for name in ("billing", "mail")
    }
    batches, ended = [], {}
    with trio.move_on_after(600):
        while set(ended) != expected:
            await trio.sleep(10)
            batches = await batches_of(cluster.log)
            ended = terminal_of(each for batch in batches for each in batch.events)
    dropped = sum({batch.boot: batch.losses.dropped_terminal for batch in batches}.values())
    told = sum(each.is_terminal for batch in batches for each in batch.events)
    return expected, ended, dropped, told


@pytest.mark.parametrize("count", [1_500, pytest.param(50_000, marks=pytest.mark.slow)])
async def test_every_end_of_a_message_is_told_once_though_nodes_are_killed(count, autojump_clock):
    async with trio.open_nursery() as nursery:
        expected, ended, dropped, told = await tracked_through_kills(nursery, count)
        nursery.cancel_scope.cancel()
    assert len(expected - set(ended)) <= dropped
    assert set(ended) <= expected
    # What two owners were killed over is set aside.
    assert {each.kind for each in ended.values()} <= {EventKind.DELIVERED, EventKind.DEAD}
    assert told >= len(ended)
