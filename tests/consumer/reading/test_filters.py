"""What a subscription's filters leave out: at the log's speed, counted, and in nobody's way."""

import itertools
import json
from types import SimpleNamespace

import msgspec
import pytest
import trio

from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.offsets.progress import TopicProgress
from hermes_actors.consumer.reading.filters import Filtered
from hermes_actors.consumer.reading.intake import Intake
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import LATEST
from hermes_actors.model.dead_letter import read_entry
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.subscription import BatchBody, BatchPolicy, DeliveryType, Filter
from hermes_actors.model.topic import Ack

OK = SendOutcome(200)
BUSY = SendOutcome(503)
POISON = b'{"_w":true,"metadata":7,"message":{"country":"PL"}}'


def country(matcher="PL"):
    return Filter(type="jsonpath", path="$.country", matcher=matcher)


def orders(count, *, wanted_every):
    return [
        b'{"country":"%s","n":%d}' % (b"PL" if n % wanted_every == 0 else b"DE", n)
        for n in range(count)
    ]


def live_with(world, *filters, stamp=1, **fields):
    live = world.live(filters=list(filters), **fields)
    return msgspec.structs.replace(live, stamp=stamp)


async def append(world, record, partition=0):
    await world.log.append(world.topic, partition, [record], Ack.LEADER)


async def test_d20_a_strong_filter_is_not_throttled_to_the_delivery_rate(world, autojump_clock):
    bodies = orders(10_000, wanted_every=1_000)
    await world.publish(*bodies)
    live = live_with(world, country(), policy={"rate": 5})
    async with world.consuming(live):
        await trio.sleep(3)
        # Ten are wanted; the 9,990 others cost nothing of the five a second.
        assert world.sender.bodies == bodies[::1_000]
        assert (await world.committed()).position == 10_000
    assert world.count("filtered_out") == 9_990
    assert world.count("delivered") == 10
    assert world.count("filter_errors") == 0
    assert world.crashes == []


async def test_one_message_that_waits_stops_neither_the_filter_nor_the_commits(
    make_world, autojump_clock
):
    world = make_world(unsettled_span_max=200)
    await world.create()
    world.sender.script = lambda push: BUSY if b'"n":0}' in push.body else OK
    bodies = orders(10_000, wanted_every=1_000)
    await world.publish(*bodies)
    async with world.consuming(live_with(world, country(), policy={"message_backoff": 10_000})):
        await trio.sleep(5)
        assert set(world.sender.bodies) == set(bodies[::1_000])
        assert (await world.committed()).position == 0
    # Settled though the position has not moved: a restart sends the one that waits, and no other.
    world.sender.pushes.clear()
    async with world.consuming(live_with(world, country())):
        await trio.sleep(1)
        assert set(world.sender.bodies) == {bodies[0]}


async def test_the_span_of_what_passes_is_bounded_as_without_filters(make_world, autojump_clock):
    world = make_world(unsettled_span_max=200)
    await world.create()
    world.sender.script = lambda push: BUSY if b'"n":0}' in push.body else OK
    await world.publish(*orders(10_000, wanted_every=2))
    async with world.consuming(live_with(world, country())) as consumer:
        await trio.sleep(5)
        # Each turn of the reader may pass it by one batch.
        assert 200 <= len(set(world.sender.bodies)) <= 401
        assert "unsettled" in consumer.status().why


@pytest.mark.parametrize("filters", [[], [country()]])
async def test_d8_delivery_goes_on_after_a_poison_record_at_the_head_of_each_partition(
    make_world, autojump_clock, filters
):
    world = make_world(partitions=3)
    await world.create()
    for partition in range(3):
        await append(world, Record(None, POISON, (), world.clock.now_ms()), partition)
        await world.publish(b'{"country":"PL","p":%d}' % partition, partition=partition)
    async with world.consuming(live_with(world, *filters), keeps_letters=True):
        await trio.sleep(3)
        assert sorted(world.sender.bodies) == [b'{"country":"PL","p":%d}' % p for p in range(3)]
        for partition in range(3):
            assert (await world.committed(partition)).position == 2
    letters = [letter async for letter in dead_letters(world)]
    assert sorted(letter.partition for letter in letters) == [0, 1, 2]
    assert {(letter.reason, letter.value) for letter in letters} == {("undecodable", POISON)}
    assert world.count("undecodable") == 3
    assert world.count("filtered_out") == 0
    assert world.crashes == []


async def dead_letters(world):
    topic = "_hermes.dlq.shop"
    ends = await world.log.positions(topic, LATEST)
    (partition,) = [p for p, end in ends.items() if end]
    async with world.log.reader(topic, {partition: 0}) as reader:
        for record in await reader.next_batch(100, 10**6):
            yield read_entry(record)


async def test_a_header_filter_sees_what_was_propagated_and_an_envelope_is_opened(
    world, autojump_clock
):
    wanted = [Filter(type="header", header="Country", matcher="P."), country("PL")]
    for number, (name, place) in enumerate(
        [("PL", "PL"), ("PL", "DE"), ("DE", "PL"), (None, "PL")]
    ):
        headers = () if name is None else (("Country", name),)
        body = b'{"country":"%s","n":%d}' % (place.encode(), number)
        for envelope in Envelope:
            message = Message("id", body, world.clock.now_ms(), propagated=headers, dc="dc1")
            await append(world, to_record(message, envelope))
    async with world.consuming(live_with(world, *wanted)):
        await trio.sleep(1)
    assert world.sender.bodies == [b'{"country":"PL","n":0}'] * 2
    assert world.count("filtered_out") == 6


async def test_a_filter_that_fails_leaves_the_message_out_counts_it_and_says_so(
    world, autojump_clock
):
    await world.publish(b"not JSON", b'{"country":"PL"}', b"neither")
    async with world.consuming(live_with(world, country())) as consumer:
        await trio.sleep(2)
        assert world.sender.bodies == [b'{"country":"PL"}']
        held_back = consumer.status().held_back
        assert held_back.startswith("left out because a filter failed: 2, the last at ")
        assert "filters[0]: the message is not JSON" in held_back
        await trio.sleep(3_601)
        assert consumer.status().held_back == ""
    assert world.count("filter_errors") == 2
    assert world.count("filtered_out") == 2


async def test_a_new_versions_filters_hold_for_what_is_read_from_then_on(world, autojump_clock):
    await world.publish(*orders(100, wanted_every=2))
    async with world.consuming(live_with(world, country())) as consumer:
        await trio.sleep(1)
        assert len(world.sender.bodies) == 50
        consumer.ref.tell(live_with(world, country("DE"), stamp=2))
        await trio.sleep(1)
        await world.publish(*orders(10, wanted_every=2))
        await trio.sleep(1)
        assert world.sender.bodies[50:] == orders(10, wanted_every=2)[1::2]
        consumer.ref.tell(live_with(world, stamp=3))
        await trio.sleep(1)
        await world.publish(b"not JSON")
        await trio.sleep(1)
        assert world.sender.bodies[-1] == b"not JSON"
        assert len(consumer.made) == 1


async def test_looking_at_records_leaves_others_their_turns(world, autojump_clock):
    # Without its jumps: time passes here only while a record is looked at.
    autojump_clock.autojump_threshold = float("inf")
    turns_s = []

    def slow(_record):
        autojump_clock.jump(0.001)
        return Filtered("slow")

    async def others():
        while True:
            turns_s.append(trio.current_time())
            await trio.lowlevel.checkpoint()

    measures = SubscriptionMeasures(world.metrics, world.live().name)
    lanes = SerialQueue(100, 1_000)
    progress = TopicProgress(world.live(), world.log, world.topic, "", Owned(), 0)
    read = []
    intake = Intake(
        world.log,
        world.topic,
        "slow",
        progress,
        lanes,
        world.config,
        measures,
        measures,
        lambda: read.append(trio.current_time()),
        lambda _delivery, _reason, _detail: None,
        SimpleNamespace(screen=slow),
    )
    intake.read_ahead = 400
    await world.publish(*[b"{}"] * 400)
    await intake.find_start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        nursery.start_soon(intake.run)
        while measures.filtered_out.value < 400:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    # trio runs what is ready in either order, so one may be passed over once.
    assert max(b - a for a, b in itertools.pairwise(turns_s)) <= 2 * 0.016 + 1e-6
    # Progress is told in between: commits go on.
    assert len(read) >= 20


async def test_batches_hold_only_what_passes_and_the_rest_is_settled(world, autojump_clock):
    bodies = orders(100, wanted_every=10)
    await world.publish(*bodies)
    live = live_with(world, country())
    batches = BatchPolicy(batch_size=10, batch_time=1_000, body=BatchBody.MESSAGES)
    body = msgspec.structs.replace(
        live.subscription, delivery_type=DeliveryType.BATCH, subscription_policy=batches
    )
    live = msgspec.structs.replace(live, subscription=body)
    async with world.consuming(live):
        await trio.sleep(5)
        assert [json.loads(each) for each in world.sender.bodies] == [
            [json.loads(each) for each in bodies[::10]]
        ]
        assert (await world.committed()).position == 100
    assert world.count("filtered_out") == 90


async def test_a_replay_for_another_subscription_is_settled_unseen(world, autojump_clock):
    own = world.live().name.name
    for number, only_for in enumerate(("", own, "another")):
        at_ms = world.clock.now_ms()
        message = Message(f"id-{number}", b"%d" % number, at_ms, only_for=only_for)
        await append(world, to_record(message))
        await append(world, to_record(message, Envelope.HERMES))
    async with world.consuming(world.live()):
        await trio.sleep(3)
        assert sorted(world.sender.bodies) == [b"0", b"0", b"1", b"1"]
        assert (await world.committed()).position == 6
    assert world.count("filtered_out") == 2


async def test_a_batch_holds_no_replay_for_another_subscription(world, autojump_clock):
    own = world.live().name.name
    for number, only_for in enumerate(("", own, "another")):
        message = Message(f"id-{number}", b"%d" % number, world.clock.now_ms(), only_for=only_for)
        await append(world, to_record(message))
    batches = BatchPolicy(batch_size=10, batch_time=1_000, body=BatchBody.MESSAGES)
    live = live_with(world)
    body = msgspec.structs.replace(
        live.subscription, delivery_type=DeliveryType.BATCH, subscription_policy=batches
    )
    live = msgspec.structs.replace(live, subscription=body)
    async with world.consuming(live):
        await trio.sleep(5)
        assert [json.loads(each) for each in world.sender.bodies] == [[0, 1]]
        assert (await world.committed()).position == 3
    assert world.count("filtered_out") == 1
