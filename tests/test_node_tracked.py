"""What is told of tracked messages by whole nodes, and what is found of it."""

from functools import partial

import pytest
import trio

from hermes_actors.log.base import EARLIEST, LATEST
from hermes_actors.management.access.roles import Anonymous, Guest
from hermes_actors.model.partitioner import partition_of
from hermes_actors.tracking.events import TRACKING_TOPIC, EventKind, decode, terminal_of
from tests.nodes_scene import (
    TOPIC,
    Cluster,
    Endpoint,
    create_billing,
    memory_spool,
    publish,
    publish_batch,
    two_datacentres,
)


async def batches_of(log):
    if await log.topics.describe(TRACKING_TOPIC) is None:
        return []
    found, position = [], (await log.positions(TRACKING_TOPIC, EARLIEST))[0]
    end = (await log.positions(TRACKING_TOPIC, LATEST))[0]
    async with log.reader(TRACKING_TOPIC, {0: position}) as reader:
        while position < end:
            for each in await reader.next_batch(1_000, 10_000_000):
                found.append(decode(each.value))
                position = each.offset + 1
    return found


async def tracked(
    work, *statuses, is_tracked=True, falls_back=True, remote_partitions=10, **subscription
):
    topic = {"fallbackToRemoteDatacenterEnabled": falls_back, "trackingEnabled": is_tracked}
    fields = {"subscriptionPolicy": {"messageBackoff": 100}, **subscription}
    if is_tracked:
        fields.setdefault("trackingMode", "trackingAll")
    create = partial(create_billing, topic=topic, **fields)
    async with trio.open_nursery() as nursery:
        sink = Endpoint(nursery, *statuses)
        async with two_datacentres(
            sink, create, open_spool=memory_spool(), remote_partitions=remote_partitions
        ) as (node, dc1, dc2):
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
        return node.administration.undelivered._letters.logs._by_dc["dc2"]

    await tracked(work, 500, 503, 200)
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


async def test_nothing_is_written_while_nobody_tracks(autojump_clock):
    async def work(node, own, sink):
        assert await publish(node, b"1") == 201
        await sink.is_done.wait()
        await trio.sleep(30)
        (consumer,) = [node.agent.consumer(name) for name in node.agent.subscriptions()]
        # The counters are told without a detour.
        assert type(consumer._dispatch._transitions).__name__ == "SubscriptionMeasures"
        assert node.frontend.routes.by_name[TOPIC].listeners == []

    assert await tracked(work, 200, is_tracked=False) == ([], [])


@pytest.mark.parametrize("mode", ["trackingAll", "discardedOnly"])
async def test_a_message_that_is_given_up_ends_as_a_dead_letter(mode, autojump_clock):
    async def work(node, own, sink):
        assert await publish(node, b"1") == 201
        await sink.is_done.wait()
        await trio.sleep(5)

    policy = {"messageTtl": 0}
    own, _ = await tracked(work, 500, subscriptionPolicy=policy, trackingMode=mode)
    events = [each for batch in own for each in batch.events if each.subscription]
    kinds = [each.kind for each in events]
    if mode == "discardedOnly":
        assert kinds == [EventKind.DEAD]
    else:
        assert kinds == [EventKind.INFLIGHT, EventKind.FAILED, EventKind.DEAD]
    assert events[-1].reason.startswith("expired")


def of_delivery(batches):
    """Each event of a subscription: its kind, its message's id, the attempt and the status."""
    return [
        (each.kind.value, each.message_id, each.attempt, each.status)
        for batch in batches
        for each in batch.events
        if each.subscription
    ]


async def test_each_message_of_a_pushed_batch_is_told_of(autojump_clock):
    async def work(node, own, sink):
        for number in range(3):
            assert await publish(node, b"%d" % number) == 201
        await sink.is_done.wait()
        await trio.sleep(5)

    policy = {"batchSize": 3, "batchTime": 60_000, "messageBackoff": 100}
    own, _ = await tracked(work, 500, 200, deliveryType="BATCH", subscriptionPolicy=policy)
    ids = [each.message_id for batch in own for each in batch.events if each.kind == "PUBLISHED"]
    assert len(set(ids)) == 3
    assert of_delivery(own) == [
        *[("INFLIGHT", each, 1, 0) for each in ids],
        *[("FAILED", each, 1, 500) for each in ids],
        *[("INFLIGHT", each, 2, 0) for each in ids],
        *[("DELIVERED", each, 2, 0) for each in ids],
    ]


async def test_a_broadcast_ends_once_though_its_recipients_answer_one_by_one(autojump_clock):
    async def work(node, own, sink):
        assert await publish(node, b"1") == 201
        await sink.is_done.wait()
        await trio.sleep(5)

    own, _ = await tracked(
        work, 200, 503, 200, endpoint="http://a.test/x;http://b.test/x", mode="BROADCAST"
    )
    message_id = await id_of(own)
    assert of_delivery(own) == [
        ("INFLIGHT", message_id, 1, 0),
        ("FAILED", message_id, 1, 503),
        ("INFLIGHT", message_id, 2, 0),
        ("DELIVERED", message_id, 2, 0),
    ]


async def test_what_a_filter_leaves_out_ends_as_filtered(autojump_clock):
    async def work(node, own, sink):
        assert await publish(node, b'{"country": "DE"}') == 201
        assert await publish(node, b'{"country": "PL"}') == 201
        await sink.is_done.wait()
        await trio.sleep(5)

    wanted = {"type": "jsonpath", "path": "$.country", "matcher": "PL"}
    own, _ = await tracked(work, 200, filters=[wanted])
    assert [kind for kind, *_ in of_delivery(own)] == ["FILTERED", "INFLIGHT", "DELIVERED"]


async def test_what_the_spool_kept_is_told_of_when_a_log_has_taken_it(autojump_clock):
    async def work(node, own, sink):
        own.faults.unavailable_rate = 1.0
        assert await publish(node, b"1") == 202
        own.faults.unavailable_rate = 0.0
        await sink.is_done.wait()
        await trio.sleep(5)

    own, _ = await tracked(work, 200, falls_back=False)
    told = [each for batch in own for each in batch.events]
    publishing = [each for each in told if not each.subscription]
    (delivered,) = [each for each in told if each.kind == "DELIVERED"]
    assert (publishing[-1].partition, publishing[-1].offset) == (
        delivered.partition,
        delivered.offset,
    )
    assert [(each.kind.value, each.via, each.offset) for each in publishing] == [
        ("FAILED", "local", -1),
        ("SPOOLED", "spool", -1),
        ("PUBLISHED", "spool", 0),
    ]
    assert [each.kind for each in told if each.is_terminal] == ["DELIVERED"]
    assert len({each.message_id for each in told}) == 1


async def test_a_message_that_nobody_tracks_is_found_in_the_spool_and_among_the_dead_letters(
    autojump_clock,
):
    found = []

    async def work(node, own, sink):
        spool, tracking = node.spool, node.administration.tracking

        async def look(message_id):
            for caller in (Anonymous(), Guest()):
                answer = await tracking.of_message(caller, message_id)
                found.append((answer["deadLetters"], answer["spooled"]))
            return answer["searched"], answer["troubles"]

        own.faults.unavailable_rate = 1.0
        assert await publish(node, b"1") == 202
        (entry,) = await spool.store.read(spool.index.places())
        searched, troubles = await look(entry.message.id)
        assert searched == [
            "the open dead letters of your subscriptions (0)",
            "the spool of node one",
        ]
        assert troubles == []
        own.faults.unavailable_rate = 0.0
        await sink.is_done.wait()
        await trio.sleep(5)
        await look(entry.message.id)
        await look("nobody's")

    await tracked(work, 400, is_tracked=False, falls_back=False)
    (kept, hidden, given_up, *others) = found
    assert kept[0] == []
    assert [(each["node"], each["topicName"]) for each in kept[1]] == [("one", TOPIC)]
    assert [(each["subscription"], each["status"]) for each in given_up[0]] == [("billing", 400)]
    assert given_up[1] == []
    assert [hidden, *others] == [([], [])] * 4


async def test_only_those_of_a_batch_that_the_spool_kept_are_told_to_be_spooled(autojump_clock):
    statuses = []

    async def work(node, own, sink):
        own.faults.partial_rate = 1.0
        statuses.extend(await publish_batch(node, *[b"k"] * 4))
        own.faults.partial_rate = 0.0
        await sink.is_done.wait()
        await trio.sleep(5)

    own, _ = await tracked(work, *[200] * 4, falls_back=False)
    assert set(statuses) == {201, 202}
    told = [each for batch in own for each in batch.events]
    spooled, published = (
        [(each.message_id, each.via) for each in told if each.kind == kind]
        for kind in ("SPOOLED", "PUBLISHED")
    )
    assert len(spooled) == statuses.count(202)
    assert sorted(each for each in published if each[1] == "spool") == sorted(spooled)
    assert len({message_id for message_id, _ in published}) == 4


async def test_messages_of_one_batch_that_part_in_the_other_log_are_told_of_one_by_one(
    autojump_clock,
):
    # All go to one partition of the own log; in the other log each has one for itself, or two do.
    parted = {}
    for key in (b"k%d" % number for number in range(1_000)):
        if partition_of(key, 10) == 0:
            parted.setdefault(partition_of(key, 17), []).append(key)
    (alone, *_), (other, *_), (first, second, *_), *_ = parted.values()

    async def work(node, own, sink):
        own.faults.silent, own.faults.late_store = True, False
        assert await publish_batch(node, alone, first, other, second) == [201] * 4
        await sink.is_done.wait()
        await trio.sleep(60)

    _, remote = await tracked(work, *[200] * 4, remote_partitions=17)
    told = [each for batch in remote for each in batch.events]
    places = {
        kind: sorted(
            (each.message_id, each.partition, each.offset) for each in told if each.kind == kind
        )
        for kind in ("HEDGED", "PUBLISHED", "DELIVERED")
    }
    assert places["PUBLISHED"] == places["DELIVERED"]
    assert len({partition for _, partition, _ in places["PUBLISHED"]}) == 3
    assert [each[0] for each in places["HEDGED"]] == [each[0] for each in places["DELIVERED"]]
    assert remote[-1].dropped == 0


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
    dropped = sum({batch.boot: batch.dropped for batch in batches}.values())
    told = sum(each.is_terminal for batch in batches for each in batch.events)
    return expected, ended, dropped, told


@pytest.mark.parametrize("count", [500, pytest.param(50_000, marks=pytest.mark.slow)])
async def test_every_end_of_a_message_is_told_once_though_nodes_are_killed(count, autojump_clock):
    async with trio.open_nursery() as nursery:
        expected, ended, dropped, told = await tracked_through_kills(nursery, count)
        nursery.cancel_scope.cancel()
    assert len(expected - set(ended)) <= dropped
    assert set(ended) <= expected
    # What two owners were killed over is set aside.
    assert {each.kind for each in ended.values()} <= {EventKind.DELIVERED, EventKind.DEAD}
    assert told >= len(ended)
