import pytest
import trio
import trio.testing

from hermes_actors.log.base import (
    LATEST,
    OffsetOutOfRange,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnknownTopic,
)
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.run import RecordRun
from hermes_actors.model.topic import Ack

TOO_LARGE = bytes(8_192)
"""Above any small limit, also by the 4 KiB that Kafka lets through."""


async def read(reader, count, records_max=100, bytes_max=1_000_000):
    found = []
    with trio.fail_after(10):
        while len(found) < count:
            found += await reader.next_batch(records_max, bytes_max)
    return found


async def test_what_is_appended_is_read_as_it_was(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        full = Record(b"k", b"\x00value", (("id", b"1"), ("traceparent", b"\xff\x00")), 1234)
        empty = Record(None, b"", (), 1233)
        keyed = Record(b"", b"v", (("a", b""), ("a", b"twice")), 1235)
        outcomes = await log.append("t", 0, [full, empty, keyed], Ack.ALL)
        assert outcomes == [Stored(0), Stored(1), Stored(2)]
        async with log.reader("t", {0: 0}) as reader:
            found = await read(reader, 3)
        # The suite gives topics of Kafka a prefix.
        origin = found[0].origin
        assert origin.startswith(f"{log.dc}:")
        assert origin.endswith("t")
        assert found == [
            StoredRecord(0, 0, 1234, b"k", b"\x00value", full.headers, origin),
            StoredRecord(0, 1, 1233, None, b"", (), origin),
            StoredRecord(0, 2, 1235, b"", b"v", keyed.headers, origin),
        ]


async def test_a_run_of_records_is_stored_as_its_records_one_by_one(under_test):
    count = 2_500
    ids = [b"12345678-9abc-8def-8123-%012d" % number for number in range(count)]
    values = [b"v" * (number % 300) for number in range(count)]
    keys = [b"k%d" % number if number % 3 else None for number in range(count)]
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        before = Record(b"k", b"before", (), 1_000)
        assert list(await log.append("t", 0, [before], Ack.LEADER)) == [Stored(0)]
        run = RecordRun(values, ids, (("dc", b"dc1"), ("via", b"local")), 1_234, keys)
        outcomes = await log.append("t", 0, run, Ack.LEADER)
        assert list(outcomes) == [Stored(offset) for offset in range(1, count + 1)]
        keyed = RecordRun([b"last"], ids[:1], (), 1_235, b"one key")
        assert list(await log.append("t", 0, keyed, Ack.ALL)) == [Stored(count + 1)]
        async with log.reader("t", {0: 0}) as reader:
            found = await read(reader, count + 2)
    async with under_test.open() as log, log.reader("t", {0: 0}) as reader:
        assert await read(reader, count + 2) == found
    expected = [before, *run, *keyed]
    assert [Record(r.key, r.value, r.headers, r.timestamp_ms) for r in found] == expected


async def test_a_record_of_a_run_that_is_too_large_is_refused_and_the_rest_is_stored(under_test):
    ids = [b"12345678-9abc-8def-8123-%012d" % number for number in range(3)]
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(record_bytes_max=100))
        run = RecordRun([b"a", TOO_LARGE, b"b"], ids, (), 1)
        outcomes = await log.append("t", 0, run, Ack.LEADER)
        assert [type(outcome) for outcome in outcomes] == [Stored, RefusedRecord, Stored]
        async with log.reader("t", {0: 0}) as reader:
            assert [record.value for record in await read(reader, 2)] == [b"a", b"b"]


async def test_offsets_are_dense_in_each_partition_and_stable_after_reopening(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        assert await write(log, "t", [b"a", b"b"], 0) == [0, 1]
        assert await write(log, "t", [b"x"], 1) == [0]
        assert await write(log, "t", [b"c"], 0) == [2]
    async with under_test.open() as log:
        assert await log.positions("t", LATEST) == {0: 3, 1: 1}
        assert [await log.bounds("t", each) for each in (0, 1)] == [(0, 3), (0, 1)]
        with pytest.raises(UnknownTopic):
            await log.bounds("t", 2)
        assert await write(log, "t", [b"d"], 0) == [3]
        async with log.reader("t", {0: 0}) as reader:
            found = await read(reader, 4)
        assert [(r.offset, r.value) for r in found] == list(enumerate([b"a", b"b", b"c", b"d"]))


async def test_a_record_too_large_is_refused_and_the_rest_of_its_batch_is_stored(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(record_bytes_max=10))
        fits = Record(b"kk", b"12345678", (), 0)
        key_too_large = Record(TOO_LARGE, b"1", (), 0)
        headers_too_large = Record(None, b"1", (("ab", TOO_LARGE),), 0)
        outcomes = await log.append("t", 0, [fits, key_too_large, headers_too_large, fits], Ack.ALL)
        assert outcomes[0] == Stored(0)
        assert outcomes[3] == Stored(1)
        for outcome in outcomes[1:3]:
            assert isinstance(outcome, RefusedRecord)
            assert outcome.is_too_large


async def test_an_append_to_an_unknown_topic_or_partition_is_refused(under_test, record):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        for topic, partition in [("u", 0), ("t", 2), ("t", -1)]:
            outcomes = await log.append(topic, partition, [record(b"a"), record(b"b")], Ack.ALL)
            assert [type(outcome) for outcome in outcomes] == [RefusedRecord, RefusedRecord]
        assert await log.positions("t", LATEST) == {0: 0, 1: 0}


async def test_an_empty_batch_has_no_outcomes(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        assert await log.append("t", 0, [], Ack.ALL) == []
        assert await log.positions("t", LATEST) == {0: 0}


@pytest.mark.parametrize("ack", list(Ack))
async def test_every_ack_level_stores(under_test, record, ack):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        assert await log.append("t", 0, [record(b"a")], ack) == [Stored(0)]


async def test_concurrent_writers_of_a_partition_each_get_contiguous_offsets(under_test, record):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        offsets = {}

        async def append(writer):
            for batch in range(5):
                values = [record(b"%d.%d.%d" % (writer, batch, n)) for n in range(7)]
                outcomes = await log.append("t", 0, values, Ack.ALL)
                for value, outcome in zip(values, outcomes, strict=True):
                    offsets[outcome.offset] = value.value
                first = outcomes[0].offset
                assert [o.offset for o in outcomes] == list(range(first, first + 7))

        async with trio.open_nursery() as nursery:
            for writer in range(10):
                nursery.start_soon(append, writer)
        assert sorted(offsets) == list(range(350))
        async with log.reader("t", {0: 0}) as reader:
            found = await read(reader, 350)
        assert {r.offset: r.value for r in found} == offsets
        assert [r.offset for r in found] == list(range(350))


async def test_a_batch_has_at_most_the_asked_records_and_bytes_but_always_one(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        await write(log, "t", [b"0123456789"] * 6)
        async with log.reader("t", {0: 0}) as reader:
            assert len(await reader.next_batch(2, 1_000)) == 2
            assert len(await reader.next_batch(100, 29)) == 2
            assert len(await reader.next_batch(100, 1)) == 1
            assert len(await reader.next_batch(100, 1_000)) == 1


async def test_a_reader_at_the_end_waits_and_is_woken_by_an_append(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        await write(log, "t", [b"old"], 1)
        seen = []

        async def tail(task_status):
            async with log.reader("t", {0: 0, 1: 1}) as reader:
                task_status.started()
                for _ in range(2):
                    seen.extend(await read(reader, 1))
                    progress.set()

        async with trio.open_nursery() as nursery:
            progress = trio.Event()
            await nursery.start(tail)
            await trio.testing.wait_all_tasks_blocked()
            assert seen == []
            await write(log, "t", [b"new"], 1)
            with trio.fail_after(10):
                await progress.wait()
            progress = trio.Event()
            await write(log, "t", [b"newer"], 0)
        assert [(r.partition, r.offset, r.value) for r in seen] == [
            (1, 1, b"new"),
            (0, 0, b"newer"),
        ]


async def test_a_waiting_reader_can_be_cancelled_and_loses_nothing(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        async with log.reader("t", {0: 0}) as reader:
            with trio.move_on_after(0.01) as scope:
                await reader.next_batch(1, 1)
            assert scope.cancelled_caught
            await write(log, "t", [b"a"])
            assert [r.value for r in await read(reader, 1)] == [b"a"]


async def test_partitions_are_mixed_in_order_of_offset_and_none_starves(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=3))
        for partition in range(3):
            await write(log, "t", [b"%d" % n for n in range(20)], partition)
        async with log.reader("t", {0: 0, 1: 5, 2: 0}) as reader:
            found = []
            for _ in range(3):
                found += await reader.next_batch(10, 10_000)
            assert {r.partition for r in found} == {0, 1, 2}
            found += await read(reader, 25, records_max=10)
        for partition, first in [(0, 0), (1, 5), (2, 0)]:
            assert [r.offset for r in found if r.partition == partition] == list(range(first, 20))


async def test_a_reader_reads_only_its_partitions(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        await write(log, "t", [b"other"], 0)
        await write(log, "t", [b"mine"], 1)
        async with log.reader("t", {1: 0}) as reader:
            assert [r.value for r in await read(reader, 1)] == [b"mine"]
            with pytest.raises(ValueError, match="partition 0"):
                reader.seek(0, 0)


async def test_seek_goes_on_from_there_in_both_directions(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        await write(log, "t", [b"%d" % n for n in range(10)])
        async with log.reader("t", {0: 4}) as reader:
            assert [r.offset for r in await reader.next_batch(2, 1_000)] == [4, 5]
            reader.seek(0, 1)
            assert [r.offset for r in await reader.next_batch(2, 1_000)] == [1, 2]
            reader.seek(0, 9)
            assert [r.offset for r in await reader.next_batch(2, 1_000)] == [9]


async def test_a_position_above_the_end_is_out_of_range(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        await write(log, "t", [b"a"])
        async with log.reader("t", {0: 2}) as reader:
            with pytest.raises(OffsetOutOfRange) as caught:
                await reader.next_batch(1, 1)
        error = caught.value
        assert (error.topic, error.partition, error.position) == ("t", 0, 2)
        assert (error.start, error.end) == (0, 1)


async def test_a_reader_of_an_unknown_topic_or_partition_raises(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        for topic, partition in [("u", 0), ("t", 1)]:
            async with log.reader(topic, {partition: 0}) as reader:
                with pytest.raises(UnknownTopic):
                    await reader.next_batch(1, 1)


async def test_large_and_small_records_are_read_back_after_reopening(under_test):
    values = [bytes([n]) * (1 << n) for n in range(20)]
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        outcomes = await log.append("t", 0, [Record(None, v, (), 0) for v in values], Ack.ALL)
        assert outcomes == [Stored(n) for n in range(20)]
    async with under_test.open() as log:
        for first in (0, 7, 19):
            async with log.reader("t", {0: first}) as reader:
                assert [r.value for r in await read(reader, 20 - first)] == values[first:]
