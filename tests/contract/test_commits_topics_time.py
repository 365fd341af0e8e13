import pytest
import trio
import trio.testing

from hermes_actors.log.base import (
    COMMIT_METADATA_BYTES_MAX,
    EARLIEST,
    LATEST,
    Commit,
    OffsetOutOfRange,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnknownTopic,
)
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack


async def test_a_commit_is_found_again_also_after_reopening(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=3))
        assert await log.committed("g", "t") == {}
        await log.commit("g", "t", {0: Commit(5), 2: Commit(7, "intervals")})
        await log.commit("other", "t", {0: Commit(1)})
        await log.commit("g", "t", {0: Commit(4, "lower is taken too")})
    async with under_test.open() as log:
        expected = {0: Commit(4, "lower is taken too"), 2: Commit(7, "intervals")}
        assert await log.committed("g", "t") == expected
        assert await log.committed("other", "t") == {0: Commit(1)}
        assert await log.committed("g", "unknown") == {}


async def test_metadata_of_a_commit_is_bounded_in_bytes_not_characters(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        fits = "ł" * (COMMIT_METADATA_BYTES_MAX // 2)
        await log.commit("g", "t", {0: Commit(1, fits)})
        with pytest.raises(ValueError, match="4001"):
            await log.commit("g", "t", {0: Commit(2, fits + "x")})
        assert await log.committed("g", "t") == {0: Commit(1, fits)}


async def test_a_commit_stores_all_partitions_or_none(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        with pytest.raises(ValueError, match="partition 1"):
            await log.commit("g", "t", {0: Commit(1), 1: Commit(2, "x" * 5_000)})
        with pytest.raises(UnknownTopic):
            await log.commit("g", "t", {0: Commit(1), 2: Commit(2)})
        with pytest.raises(ValueError, match="position"):
            await log.commit("g", "t", {0: Commit(-1)})
        assert await log.committed("g", "t") == {}


async def test_a_commit_for_an_unknown_topic_raises(under_test):
    async with under_test.open() as log:
        with pytest.raises(UnknownTopic):
            await log.commit("g", "t", {0: Commit(1)})


async def test_a_topic_is_created_once_described_and_listed(under_test):
    settings = TopicSettings(2, 60_000, 5_000, True)
    async with under_test.open() as log:
        assert await log.topics.describe("b") is None
        assert await log.topics.create("b", settings)
        assert not await log.topics.create("b", TopicSettings())
        assert await log.topics.create("a", TopicSettings(retention_ms=None))
    async with under_test.open() as log:
        assert await log.topics.describe("b") == settings
        assert await log.topics.describe("a") == TopicSettings()
        assert await log.topics.names() == ["a", "b"]
        assert await log.topics.partitions(["b", "none", "a"]) == {"a": 1, "b": 2}
        with pytest.raises(ValueError, match="partitions"):
            await log.topics.create("c", TopicSettings(partitions=0))


async def test_altering_adds_partitions_and_never_takes_them_away(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2, record_bytes_max=10))
        await write(log, "t", [b"a"], 1)
        await log.topics.alter("t", TopicSettings(partitions=3, record_bytes_max=3))
        await write(log, "t", [b"z"], 2)
        assert await log.positions("t", LATEST) == {0: 0, 1: 1, 2: 1}
        # Kafka lets 4 KiB more through.
        (outcome,) = await log.append("t", 0, [Record(None, bytes(8_192), (), 0)], Ack.ALL)
        assert isinstance(outcome, RefusedRecord)
        with pytest.raises(ValueError, match="from 3 to 2"):
            await log.topics.alter("t", TopicSettings(partitions=2))
        with pytest.raises(UnknownTopic):
            await log.topics.alter("u", TopicSettings())
    async with under_test.open() as log:
        assert await log.topics.describe("t") == TopicSettings(partitions=3, record_bytes_max=3)
        assert await log.positions("t", LATEST) == {0: 0, 1: 1, 2: 1}


async def test_deleting_takes_records_and_commits_and_a_new_topic_starts_at_zero(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("stays", TopicSettings())
        await log.topics.create("t", TopicSettings(partitions=2))
        await write(log, "t", [b"a", b"b"])
        await write(log, "stays", [b"s"])
        await log.commit("g", "t", {0: Commit(1)})
        assert await log.topics.delete("t")
        assert not await log.topics.delete("t")
        with pytest.raises(UnknownTopic):
            await log.positions("t", LATEST)
        assert await log.committed("g", "t") == {}
        assert await log.topics.create("t", TopicSettings())
        assert await write(log, "t", [b"new"]) == [0]
    async with under_test.open() as log:
        assert await log.committed("g", "t") == {}
        async with log.reader("t", {0: 0}) as reader:
            assert [r.value for r in await reader.next_batch(10, 100)] == [b"new"]
        assert await log.positions("stays", LATEST) == {0: 1}


async def test_a_waiting_reader_of_a_deleted_topic_is_told(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings())
        told = []

        async def tail():
            async with log.reader("t", {0: 0}) as reader:
                try:
                    await reader.next_batch(1, 1)
                except UnknownTopic:
                    told.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tail)
            await trio.testing.wait_all_tasks_blocked()
            await log.topics.delete("t")
        assert told == [True]


async def test_positions_of_an_unknown_topic_raise(under_test):
    async with under_test.open() as log:
        for at in (EARLIEST, LATEST, 0):
            with pytest.raises(UnknownTopic):
                await log.positions("u", at)


async def test_position_at_finds_a_record_inside_a_batch(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(retention_ms=1_000))
        now_ms = under_test.clock.wall_ms
        times_ms = [now_ms - 5_000, now_ms, now_ms - 3_000, now_ms + 10, now_ms + 20]
        batch = [Record(None, b"x", (), time_ms) for time_ms in times_ms]
        await log.append("t", 0, batch, Ack.ALL)
        await log.append("t", 0, batch, Ack.ALL)
        assert await log.positions("t", now_ms - 4_000) == {0: 1}
        assert await log.positions("t", now_ms + 1) == {0: 3}
        assert await log.positions("t", now_ms + 20) == {0: 4}
        assert await log.positions("t", now_ms + 21) == {0: 10}
        # The highest so far is taken by retention; what is left is searched all the same.
        under_test.clock.wall_ms = now_ms + 1_015
        await under_test.expire(log)
        assert await log.positions("t", EARLIEST) == {0: 4}
        under_test.clock.wall_ms = now_ms + 1_021
        await under_test.expire(log)
        assert await log.positions("t", EARLIEST) == {0: 10}
        await log.append("t", 0, [Record(None, b"x", (), now_ms)], Ack.ALL)
        await log.append("t", 0, [Record(None, b"x", (), now_ms + 5)], Ack.ALL)
        assert await log.positions("t", now_ms + 1) == {0: 11}
        assert await log.positions("t", now_ms + 15) == {0: 12}


async def test_position_at_is_the_first_record_of_that_time_or_later_else_the_end(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        # Times of reception go back between writers: the first that matches counts.
        for time_ms in (100, 300, 200, 250, 400, 10):
            await log.append("t", 0, [Record(None, b"x", (), time_ms)], Ack.ALL)
        expected = {0: 0, 100: 0, 101: 1, 300: 1, 250: 1, 301: 4, 400: 4, 401: 6}
        found = {ms: (await log.positions("t", ms))[0] for ms in expected}
        assert found == expected
        assert (await log.positions("t", 0))[1] == 0


async def test_retention_takes_the_oldest_up_to_the_first_young_one(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=2, retention_ms=1_000))
        await log.topics.create("kept", TopicSettings())
        now_ms = under_test.clock.wall_ms
        for age_ms in (5_000, 2_000, 500, 3_000, 0):
            await write(log, "t", [b"%d" % age_ms], timestamp_ms=now_ms - age_ms)
        await write(log, "kept", [b"old"], timestamp_ms=0)
        await under_test.expire(log)
        assert await log.positions("t", EARLIEST) == {0: 2, 1: 0}
        assert await log.positions("kept", EARLIEST) == {0: 0}
        assert await log.positions("t", 0) == {0: 2, 1: 0}
        async with log.reader("t", {0: 1}) as reader:
            with pytest.raises(OffsetOutOfRange) as caught:
                await reader.next_batch(10, 100)
            assert (caught.value.start, caught.value.end) == (2, 5)
            reader.seek(0, caught.value.start)
            assert [r.value for r in await reader.next_batch(10, 100)] == [b"500", b"3000", b"0"]
    async with under_test.open() as log:
        assert await log.positions("t", EARLIEST) == {0: 2, 1: 0}
        # What hid behind the young record goes with it.
        under_test.clock.wall_ms += 600
        await under_test.expire(log)
        assert await log.positions("t", EARLIEST) == {0: 4, 1: 0}
        assert await log.positions("t", now_ms - 10_000) == {0: 4, 1: 0}


async def test_offsets_are_never_used_again_even_when_a_partition_became_empty(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(retention_ms=1_000))
        await write(log, "t", [b"a", b"b", b"c"], timestamp_ms=0)
        await under_test.expire(log)
        assert await log.positions("t", EARLIEST) == await log.positions("t", LATEST) == {0: 3}
        assert await log.positions("t", 0) == {0: 3}
    async with under_test.open() as log:
        assert await log.positions("t", LATEST) == {0: 3}
        assert await write(log, "t", [b"d"], timestamp_ms=under_test.clock.wall_ms) == [3]
        async with log.reader("t", {0: 3}) as reader:
            assert [r.value for r in await reader.next_batch(1, 10)] == [b"d"]


async def test_log_append_time_is_the_logs_clock_and_not_the_records(under_test, write):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(log_append_time=True))
        before_ms = under_test.now_ms()
        await write(log, "t", [b"a", b"b"], timestamp_ms=7)
        await write(log, "t", [b"c"], timestamp_ms=before_ms + 1_000_000)
        after_ms = under_test.now_ms()
        async with log.reader("t", {0: 0}) as reader:
            found = []
            while len(found) < 3:
                found += [r.timestamp_ms for r in await reader.next_batch(10, 100)]
        assert found == sorted(found)
        assert before_ms <= found[0]
        assert found[2] <= after_ms
        assert await log.positions("t", before_ms) == {0: 0}
        assert await log.positions("t", after_ms + 1) == {0: 3}


# Not on Kafka: nobody can set a broker's clock.
async def test_log_append_time_never_goes_back_when_the_clock_does(under_settable_clock):
    under_test = under_settable_clock
    clock = under_test.clock
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(log_append_time=True, retention_ms=1_000))
        first_ms = clock.wall_ms
        times_ms = []
        for step_ms in (0, 50, -5_000):
            clock.wall_ms += step_ms
            assert isinstance(
                (await log.append("t", 0, [Record(None, b"x", (), 7)], Ack.ALL))[0], Stored
            )
        async with log.reader("t", {0: 0}) as reader:
            times_ms = [r.timestamp_ms for r in await reader.next_batch(10, 100)]
        assert times_ms == [first_ms, first_ms + 50, first_ms + 50]
        clock.wall_ms += 1_000_000
        await under_test.expire(log)
    # Remembered by an empty partition, after reopening, with a clock far behind.
    clock.wall_ms = 1
    async with under_test.open() as log:
        await log.append("t", 0, [Record(None, b"x", (), 7)], Ack.ALL)
        async with log.reader("t", {0: 3}) as reader:
            assert [r.timestamp_ms for r in await reader.next_batch(10, 100)] == [first_ms + 50]
