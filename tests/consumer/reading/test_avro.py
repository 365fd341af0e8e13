"""What subscribers of a topic of AVRO are pushed, and what becomes of Avro that cannot be read."""

import json

import msgspec
import pytest
import trio

from hermes_actors.consumer.delivery import bodies as bodies_module
from hermes_actors.consumer.delivery.bodies import (
    FORGET_S,
    PATIENCE_S,
    SHORT_PATIENCE_S,
    UNKNOWN_MAX,
)
from hermes_actors.coordination.owned import Owned
from hermes_actors.errors import Refused, Unavailable
from hermes_actors.log.base import LATEST
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_actors.model.dead_letter import read_entry
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.schema import SchemaKind
from hermes_actors.model.subscription import BatchBody, BatchPolicy, DeliveryType, Filter
from hermes_actors.model.topic import ContentType
from hermes_actors.runtime.workers import InlinePool
from tests.consumer.avro_scene import NAMED, PLAIN, Avro, avro
from tests.consumer.hand_lease import HandLease

META = {"__metadata": {"messageId": "m", "timestamp": "5"}}


@pytest.fixture
def scene(world):
    scene = Avro(world)
    scene.source.add(1, 11, PLAIN)
    scene.source.add(2, 22, NAMED)
    return scene


async def letters(world, count=100):
    topic = "_hermes.dlq.shop"
    ends = await world.log.positions(topic, LATEST)
    (partition,) = [p for p, end in ends.items() if end]
    async with world.log.reader(topic, {partition: 0}) as reader:
        return [read_entry(record) for record in await reader.next_batch(count, 10**7)]


async def test_a_json_subscriber_gets_json_without_metadata_and_schema(scene, autojump_clock):
    await scene.publish(avro(NAMED, n=7, name="ż", **META), 2, 22)
    async with scene.consuming():
        await trio.sleep(1)
    assert scene.bodies == [b'{"n":7,"name":"\xc5\xbc"}']
    headers = scene.headers()
    assert headers["Content-Type"] == "application/json"
    assert not {"Schema-Version", "Schema-Id"} & headers.keys()


@pytest.mark.parametrize("is_framed", [False, True])
async def test_an_avro_subscriber_gets_bare_avro_and_the_names_of_its_schema(
    scene, autojump_clock, is_framed
):
    body = avro(NAMED, n=7, name="x", **META)
    frame = b"\0" + (22).to_bytes(4, "big") if is_framed else b""
    await scene.publish(frame + body, 2, 22, is_framed=is_framed)
    async with scene.consuming(scene.live(ContentType.AVRO)):
        await trio.sleep(1)
    assert scene.bodies == [body]
    headers = scene.headers()
    assert headers["Content-Type"] == "avro/binary"
    assert (headers["Schema-Version"], headers["Schema-Id"]) == ("2", "22")
    assert scene.source.asked == 0


@pytest.mark.parametrize("taken", ContentType)
@pytest.mark.parametrize("envelope", Envelope)
async def test_what_is_from_before_the_migration_goes_out_as_the_json_that_it_is(
    scene, autojump_clock, taken, envelope
):
    now_ms = scene.world.clock.now_ms()
    old = Message("old", b'{"n":1}', now_ms, dc="dc1", propagated=(("Trace-Id", "t"),))
    await scene.append(to_record(old, envelope))
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming(scene.live(taken)):
        await trio.sleep(1)
    new = b'{"n":2}' if taken is ContentType.JSON else avro(PLAIN, n=2)
    assert scene.bodies == [b'{"n":1}', new]
    assert scene.headers()["Content-Type"] == "application/json"
    assert "Schema-Version" not in scene.headers()


async def test_avro_that_comes_before_its_topics_migration_is_known_is_json_too(
    scene, autojump_clock
):
    await scene.world.publish(b'{"n":1}')
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming(topic=ContentType.JSON):
        await trio.sleep(1)
    assert scene.bodies == [b'{"n":1}', b'{"n":2}']


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (avro(NAMED, n=7, name="x"), b'{"n":7,"name":"x"}'),
        (b"\0" + (11).to_bytes(4, "big") + avro(PLAIN, n=7), b'{"n":7}'),
        # The id is no version of the subject, so these bytes are its own.
        (avro(NAMED, n=0, name="abcd"), b'{"n":0,"name":"abcd"}'),
    ],
)
async def test_a_foreign_record_is_read_by_its_frame_or_by_the_newest_version(
    scene, autojump_clock, value, expected
):
    await scene.append(value)
    async with scene.consuming():
        await trio.sleep(1)
    assert scene.bodies == [expected]


@pytest.mark.parametrize(
    ("version", "schema_id", "is_read"),
    [(2, 0, True), (0, 22, True), (2, 33, True), (1, 22, True), (2, 99, False), (7, 0, False)],
)
async def test_the_id_decides_by_which_schema_a_message_is_read_before_the_version(
    scene, autojump_clock, version, schema_id, is_read
):
    # Saved by two datacentres at once: no version has it any more.
    scene.source.others[33] = scene.source.versions[2].schema
    now_ms = scene.world.clock.now_ms()
    headers = [("id", b"x"), ("dc", b"dc1"), ("via", b"local")]
    headers += [("sv", version.to_bytes(4, "big"))] if version else []
    headers += [("sid", schema_id.to_bytes(4, "big"))] if schema_id else []
    await scene.append(Record(None, avro(NAMED, n=7, name="x"), tuple(headers), now_ms))
    async with scene.consuming():
        await trio.sleep(PATIENCE_S + 5)
    assert scene.bodies == ([b'{"n":7,"name":"x"}'] if is_read else [])


async def test_a_schema_that_is_late_is_waited_for_while_other_partitions_go_on(
    make_world, autojump_clock
):
    world = make_world(partitions=2)
    await world.create()
    scene = Avro(world)
    scene.source.add(1, 11, PLAIN)
    await scene.publish(avro(NAMED, n=1, name="late"), 2, 22, partition=0)
    await scene.publish(avro(PLAIN, n=2), 1, 11, partition=0)
    async with scene.consuming() as consumer:
        await trio.sleep(1)
        await scene.publish(avro(PLAIN, n=3), 1, 11, partition=1)
        await trio.sleep(3)
        assert scene.bodies == [b'{"n":3}']
        assert "version 2, id 22, is not known" in consumer.status().held_back
        assert (await world.committed(0)) is None or (await world.committed(0)).position == 0
        scene.source.add(2, 22, NAMED)
        await trio.sleep(2)
        assert scene.bodies[1:] == [b'{"n":1,"name":"late"}', b'{"n":2}']
    assert world.crashes == []
    # No more than a look each tenth of a second, then each second.
    assert scene.source.asked < 20


async def test_a_schema_that_never_comes_makes_a_dead_letter_that_names_it(scene, autojump_clock):
    body = avro(PLAIN, n=1)
    await scene.publish(body, 9, 99)
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming() as consumer:
        await trio.sleep(PATIENCE_S - 1)
        assert scene.bodies == []
        await trio.sleep(3)
        assert scene.bodies == [b'{"n":2}']
        assert "put off while" in consumer.status().held_back
    (letter,) = await letters(scene.world)
    assert (letter.reason, letter.value) == ("undecodable", body)
    assert "topic shop.orders: the schema of version 9, id 99, is not known" in letter.detail
    assert (await scene.world.committed()).position == 2


async def test_a_retransmission_takes_a_partition_past_a_message_that_waits_for_its_schema(
    scene, autojump_clock
):
    await scene.publish(avro(PLAIN, n=1), 9, 99)
    async with scene.consuming() as consumer:
        await trio.sleep(2)
        await scene.publish(avro(PLAIN, n=2), 1, 11)
        seek = Seek(scene.world.clock.now_ms(), SeekBody(7, 0, positions={"dc1": {0: 1}}))
        consumer.ref.tell(msgspec.structs.replace(scene.live(), seek=seek, stamp=2))
        await trio.sleep(3)
        assert scene.bodies == [b'{"n":2}']
        assert (await scene.world.committed()).position == 2
    assert scene.world.crashes == []


async def test_records_with_a_new_unknown_id_each_hold_their_partition_for_a_bounded_time(
    scene, autojump_clock
):
    for schema_id in range(100, 120):
        await scene.publish(avro(PLAIN, n=1), 9, schema_id)
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    patience_s = UNKNOWN_MAX * PATIENCE_S + (20 - UNKNOWN_MAX) * 2 * SHORT_PATIENCE_S
    assert UNKNOWN_MAX * PATIENCE_S < FORGET_S
    async with scene.consuming():
        await trio.sleep(patience_s + 5)
        assert scene.bodies == [b'{"n":2}']


async def test_nothing_is_given_up_while_the_registry_is_away(scene, autojump_clock):
    await scene.publish(avro(PLAIN, n=1), 9, 99)
    scene.source.trouble = "the registry is away"
    async with scene.consuming() as consumer:
        await trio.sleep(6 * PATIENCE_S)
        assert scene.bodies == []
        assert "put off while" in consumer.status().held_back
        scene.source.add(9, 99, PLAIN)
        await trio.sleep(3)
    assert scene.bodies == [b'{"n":1}']
    assert scene.world.crashes == []


async def test_on_a_json_topic_without_a_schema_others_headers_make_no_avro(scene, autojump_clock):
    scene.source.versions.clear()
    now_ms = scene.world.clock.now_ms()
    await scene.append(Record(None, b'{"n":1}', (("sv", b"\0\0\0\1"),), now_ms))
    async with scene.consuming(topic=ContentType.JSON):
        await trio.sleep(1)
    assert scene.bodies == [b'{"n":1}']
    assert scene.headers()["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "schema_id"),
    [
        (b"", 22),
        (b"\xff" * 20, 22),
        (avro(PLAIN, n=7), 22),
        (b"anything", 44),
        (b"anything", 55),
    ],
)
async def test_what_is_no_avro_of_its_schema_is_a_dead_letter_and_blocks_nothing(
    scene, autojump_clock, body, schema_id
):
    scene.source.add(4, 44, "{}", kind=SchemaKind.JSON)
    scene.source.add(5, 55, '{"type":"nonsense"}')
    await scene.publish(body, 0, schema_id)
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming():
        await trio.sleep(2)
    assert scene.bodies == [b'{"n":2}']
    (letter,) = await letters(scene.world)
    assert (letter.reason, letter.value) == ("undecodable", body)
    assert (await scene.world.committed()).position == 2


async def test_nothing_is_given_up_while_the_lease_is_closed(scene, autojump_clock):
    lease = HandLease()
    lease.is_closed = True
    await scene.publish(b"\xff", 2, 22)
    async with scene.consuming(owned=Owned(lease=lease)):
        await trio.sleep(20)
        assert scene.world.count("undecodable") == 0
        lease.open()
        await trio.sleep(2)
        assert scene.world.count("undecodable") == 1


async def test_batches_hold_envelopes_with_the_json(scene, autojump_clock):
    await scene.publish(avro(PLAIN, n=1, **META), 1, 11, propagated=(("Trace-Id", "t"),))
    await scene.publish(avro(NAMED, n=2, name="x"), 2, 22)
    live = scene.live()
    batches = BatchPolicy(batch_size=2, batch_time=1_000, body=BatchBody.ENVELOPES)
    body = msgspec.structs.replace(
        live.subscription, delivery_type=DeliveryType.BATCH, subscription_policy=batches
    )
    async with scene.consuming(msgspec.structs.replace(live, subscription=body)):
        await trio.sleep(3)
    (sent,) = [json.loads(each) for each in scene.bodies]
    assert [each["message"] for each in sent] == [{"n": 1}, {"n": 2, "name": "x"}]
    assert sent[0]["metadata"]["externalMetadata"] == {"Trace-Id": "t", "messageId": "id-1"}
    assert scene.headers()["Content-Type"] == "application/json"


async def test_an_avropath_filter_looks_into_avro_and_into_what_is_older(scene, autojump_clock):
    wanted = Filter(type="avropath", path="name", matcher="PL|null")
    await scene.world.publish(b'{"name":"PL"}', b'{"name":"DE"}')
    for name in ("PL", "DE"):
        await scene.publish(avro(NAMED, n=1, name=name, **META), 2, 22)
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming(scene.live(filters=[wanted])):
        await trio.sleep(1)
    assert scene.bodies == [b'{"name":"PL"}', b'{"n":1,"name":"PL"}', b'{"n":2}']
    assert scene.world.count("filtered_out") == 2


async def test_a_filter_sees_the_metadata_that_a_subscriber_of_json_does_not_get(
    scene, autojump_clock
):
    wanted = Filter(type="avropath", path="__metadata.messageId", matcher="m")
    await scene.publish(avro(PLAIN, n=1, **META), 1, 11)
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming(scene.live(ContentType.AVRO, filters=[wanted])):
        await trio.sleep(1)
    assert scene.bodies == [avro(PLAIN, n=1, **META)]


async def test_a_jsonpath_of_before_the_migration_leaves_avro_out_and_is_told(
    scene, autojump_clock
):
    wanted = Filter(type="jsonpath", path="$.n", matcher=".*")
    await scene.world.publish(b'{"n":1}')
    await scene.publish(avro(PLAIN, n=2), 1, 11)
    async with scene.consuming(scene.live(filters=[wanted])) as consumer:
        await trio.sleep(1)
        assert "use avropath" in consumer.status().held_back
    assert scene.bodies == [b'{"n":1}']
    assert scene.world.count("filter_errors") == 1


# What is too large for the loop.


LARGE = avro(NAMED, n=7, name="x" * 70_000)


NEVER = object()


class HandPool(InlinePool):
    """Answers `answer` to the jobs that it is given; None: what they return."""

    def __init__(self, answer=None):
        super().__init__()
        self.answer = answer or (lambda: None)
        self.asked = []

    def submit(self, job):
        self.asked.append(job)
        answer = self.answer()
        if answer is NEVER:
            return
        if answer is None:
            super().submit(job)
        else:
            job.done(answer)


def large_scene(world, answer=None):
    pool = HandPool(answer)
    scene = Avro(world, pool)
    scene.source.add(2, 22, NAMED)
    return scene, pool


@pytest.mark.parametrize(("matcher", "pushed"), [(None, 1), ("x*", 1), ("other", 0)])
async def test_a_large_body_is_read_beside_the_loop(world, autojump_clock, matcher, pushed):
    scene, process = large_scene(world)
    filters = [Filter(type="avropath", path="name", matcher=matcher)] if matcher else []
    await scene.publish(LARGE, 2, 22)
    async with scene.consuming(scene.live(filters=filters)):
        await trio.sleep(2)
    assert [len(each) for each in scene.bodies] == [70_017] * pushed
    # Its JSON for the filters, their verdict, and its JSON for the subscriber.
    assert len(process.asked) == {None: 1, "x*": 3, "other": 2}[matcher]


async def test_what_cannot_be_read_beside_the_loop_is_given_up(world, autojump_clock):
    answer = Refused("takes more than 100 ms of CPU")
    scene, process = large_scene(world, lambda: answer)
    await scene.publish(LARGE, 2, 22)
    async with scene.consuming():
        await trio.sleep(10)
    (letter,) = await letters(world)
    assert answer.message in letter.detail
    assert len(process.asked) == 1


async def test_what_waits_for_a_busy_process_is_never_given_up(world, autojump_clock):
    busy = [Unavailable("too many wait")] * 30
    scene, _ = large_scene(world, lambda: busy.pop() if busy else None)
    await scene.publish(LARGE, 2, 22)
    async with scene.consuming() as consumer:
        await trio.sleep(20)
        assert scene.bodies == []
        assert "too many wait" in consumer.status().held_back
        await trio.sleep(20)
        assert len(scene.bodies) == 1


async def test_a_consumer_stops_while_a_body_is_read_beside_the_loop_and_loses_nothing(
    world, autojump_clock
):
    scene, process = large_scene(world, lambda: NEVER)
    await scene.publish(LARGE, 2, 22)
    async with scene.consuming() as consumer:
        await trio.sleep(1)
        await consumer.stop()
    assert not process.asked[0].is_wanted()
    process.answer = lambda: None
    async with scene.consuming():
        await trio.sleep(1)
    assert len(scene.bodies) == 1


async def test_json_that_is_too_large_is_given_up(world, autojump_clock, monkeypatch):
    monkeypatch.setattr(bodies_module, "JSON_BYTES_MAX", 10_000)
    scene, _ = large_scene(world)
    await scene.publish(LARGE, 2, 22)
    async with scene.consuming():
        await trio.sleep(1)
    (letter,) = await letters(world)
    assert (letter.reason, letter.value) == ("too-large", LARGE)
