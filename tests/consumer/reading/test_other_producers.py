"""Records that other producers wrote: called by their place, at their own time, and tombstones."""

import msgspec
import pytest
import trio
from msgspec.structs import replace

from hermes_actors.consumer.delivery.tracked import TrackedDeliveries
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.record import Record
from hermes_actors.model.subscription import (
    BatchBody,
    Filter,
    SigningPolicy,
    Tombstones,
    TrackingMode,
)
from hermes_actors.model.topic import Ack, ContentType
from hermes_actors.tracking.buffer import TrackingBuffer
from tests.consumer.avro_scene import PLAIN, Avro
from tests.consumer.redrive_scene import Scene

PLACE = "dc1:shop.orders:0:{}"
AT_MS = 1_732_226_000_123
BY_BODY = Filter(type="jsonpath", path="$.a", matcher="1")
OF_TOMBSTONES = Filter(type="header", header="Hermes-Tombstone", matcher="true")


async def write(world, *values, key=b"k1", headers=()):
    """As another producer does; None is a record without a value, which only Kafka's logs hold."""
    records = [Record(key, value or b"", tuple(headers), AT_MS) for value in values]
    outcomes = await world.log.append(world.topic, 0, records, Ack.LEADER)
    held = world.log.topics.by_name[world.topic].partitions[0].records
    for value, outcome in zip(values, outcomes, strict=True):
        if value is None:
            held[outcome.offset] = replace(held[outcome.offset], is_tombstone=True)


def pushed(world):
    """The headers and the body of each push."""
    for push in world.sender.pushes:
        lines = push.lines.decode().split("\r\n")
        yield dict(line.split(": ", 1) for line in lines if line), push.body


async def test_each_reading_of_a_record_gives_it_the_same_id_and_time(world, autojump_clock):
    await write(world, b'{"a":1}', b'{"a":2}')
    answers = iter([SendOutcome(503), SendOutcome(503)])
    world.sender.script = lambda _push: next(answers, SendOutcome(200))
    for incarnation in (7, 8):
        # Two attempts at each, then another subscription that reads from the start.
        live = world.live(incarnation=incarnation, cloud_events_enabled=True)
        async with world.consuming(live):
            await trio.sleep(5)
    assert len(world.sender.pushes) == 6
    told = {(body, each["Hermes-Message-Id"]) for each, body in pushed(world)}
    assert told == {(b'{"a":1}', PLACE.format(0)), (b'{"a":2}', PLACE.format(1))}
    assert {each["ce-id"] for each, _ in pushed(world)} == {each for _, each in told}
    assert {each["ce-time"] for each, _ in pushed(world)} == {"2024-11-21T21:53:20.123Z"}


async def test_a_batch_has_the_records_id_and_time(batches, autojump_clock):
    await write(batches.world, b'{"a":1}')
    async with batches.consuming({"body": BatchBody.ENVELOPES}):
        await trio.sleep(3)
    ((element,),) = batches.sent
    assert element["metadata"] == {
        "timestamp": AT_MS,
        "id": PLACE.format(0),
        "externalMetadata": {},
    }


async def test_tracking_and_dead_letters_call_it_like_the_push(world, autojump_clock):
    buffer = TrackingBuffer("dc1", "one", "boot", events_max=100)
    world.parts = msgspec.structs.replace(
        world.parts, listeners=lambda live: [TrackedDeliveries(buffer, live, "dc1", world.clock)]
    )
    scene = Scene(world)
    scene.is_down = True
    # The second one is refused by the filter, the third one cannot be decoded.
    await write(world, b'{"a":1}', b'{"a":2}', b'{"_w":true,"metadata":7}')
    live = world.live(tracking_mode=TrackingMode.ALL, filters=[BY_BODY])
    async with world.consuming(live, keeps_letters=True):
        await trio.sleep(5)
    events = buffer.next_batch().events
    assert {each.message_id for each in events} == {PLACE.format(n) for n in range(3)}
    assert {each.message_id for each in await scene.entries()} == {PLACE.format(0), PLACE.format(2)}


async def test_a_record_with_headers_only_called_like_ours_is_delivered(world, autojump_clock):
    names = ("id", "dc", "via", "traceparent", "only-for", "sid", "h-A", "ce_id", "content-type")
    for name in names:
        await write(world, name.encode(), headers=[(name, b"\xff\x00")])
    await write(world, b"mobile", headers=[("only-for", b"mobile")])
    async with world.consuming(keeps_letters=True):
        await trio.sleep(3)
    assert sorted(world.sender.bodies) == sorted([*(name.encode() for name in names), b"mobile"])
    assert world.count("discarded") == 0


async def test_a_tombstone_is_pushed_empty_and_says_what_it_is(world, autojump_clock):
    await write(world, None)
    signing = SigningPolicy(["whsec_" + "A" * 32])
    for incarnation, is_event in enumerate((False, True)):
        live = world.live(incarnation=incarnation, cloud_events_enabled=is_event, signing=signing)
        async with world.consuming(live):
            await trio.sleep(3)
    for headers, body in pushed(world):
        assert body == b""
        assert headers["Hermes-Tombstone"] == "true"
        assert headers["Partition-Key"] == "k1"
        assert headers["Hermes-Message-Id"] == headers["webhook-id"] == PLACE.format(0)
        assert "Content-Type" not in headers
    assert len(world.sender.pushes) == 2


async def test_a_subscription_skips_tombstones_if_it_says_so(world, autojump_clock):
    await write(world, None, b"", b"{}", None)
    live = world.live(tombstones=Tombstones.SKIP)
    async with world.consuming(live) as consumer:
        await trio.sleep(3)
        assert world.sender.bodies == [b"", b"{}"]
        assert (await world.committed()).position == 4
        consumer.ref.tell(replace(world.live(), stamp=2))
        await trio.testing.wait_all_tasks_blocked()
        await write(world, None)
        await trio.sleep(3)
    assert world.count("filtered_out") == 2
    assert world.count("filter_errors") == 0


@pytest.mark.parametrize(
    ("filters", "count"), [([BY_BODY], 0), ([OF_TOMBSTONES], 1), ([OF_TOMBSTONES, BY_BODY], 0)]
)
async def test_filters_of_headers_see_a_tombstone_and_those_of_bodies_leave_it_out(
    world, autojump_clock, filters, count
):
    await write(world, None)
    async with world.consuming(world.live(filters=filters)) as consumer:
        await trio.sleep(3)
        assert consumer.status().held_back == ""
    assert len(world.sender.pushes) == count
    assert (world.count("filtered_out"), world.count("filter_errors")) == (1 - count, 0)


@pytest.mark.parametrize("taken", list(ContentType))
async def test_a_topic_of_avro_has_tombstones_too(world, autojump_clock, taken):
    scene = Avro(world)
    scene.source.add(1, 11, PLAIN)
    await write(world, None, headers=[("sv", b"\0\0\0\1")])
    await write(world, None)
    async with scene.consuming(scene.live(taken)):
        await trio.sleep(15)
    found = list(pushed(world))
    assert [body for _, body in found] == [b"", b""]
    for headers, _ in found:
        assert headers["Hermes-Tombstone"] == "true"
        assert not {"Content-Type", "Schema-Version"} & headers.keys()
    assert world.count("discarded") == 0


@pytest.mark.parametrize("topic", list(ContentType))
async def test_in_batches_a_tombstone_is_null(batches, autojump_clock, topic):
    await write(batches.world, None, b'{"n":1}')
    for form in BatchBody:
        live = batches.live(policy={"body": form}, incarnation=list(BatchBody).index(form))
        async with batches.world.consuming(live, topic_content=topic):
            await trio.sleep(3)
    envelopes, messages = batches.sent
    assert messages == [None, {"n": 1}]
    said = {"Hermes-Tombstone": "true", "Partition-Key": "k1", "messageId": PLACE.format(0)}
    assert envelopes[0]["metadata"]["externalMetadata"] == said
    assert envelopes[0]["message"] is None
    assert envelopes[1]["metadata"]["externalMetadata"] == {}


async def test_a_tombstone_stays_one_as_a_dead_letter_and_when_it_is_delivered_again(
    world, autojump_clock
):
    scene = Scene(world)
    await write(world, None)
    async with world.consuming(keeps_letters=True):
        await trio.sleep(5)
    for number in (1, 2):
        # It fails the first re-drive, which makes another letter of it.
        scene.is_down = number == 1
        world.sender.pushes.clear()
        async with world.consuming(keeps_letters=True):
            await scene.ask(number)
            await trio.sleep(5)
        ((headers, body),) = pushed(world)
        assert (headers["Hermes-Tombstone"], headers["Partition-Key"], body) == ("true", "k1", b"")
        assert headers["Hermes-Message-Id"] == PLACE.format(0)
        assert "Content-Type" not in headers
    first, second, _mark = await scene.entries()
    assert (first.is_tombstone, second.is_tombstone, second.redrives) == (True, True, 1)
