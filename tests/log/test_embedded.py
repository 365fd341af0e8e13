import gc
import sqlite3
import threading
import zlib
from contextlib import closing

import pytest
import trio
import trio.testing

from hermes_actors.errors import StartupError
from hermes_actors.log.backends import embedded_logs
from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Commit,
    LogUnavailable,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.log.embedded.log import EmbeddedLog, open_embedded_log
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import (
    FILE_NAME,
    open_read_only,
)
from hermes_actors.log.embedded.writer import EmbeddedLimits, Job
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.hand_clock import HandClock


def batch(*values):
    return [Record(None, value, (), 1) for value in values]


def opened(directory, **limits):
    return open_embedded_log(
        directory, "dc1", HandClock(1_000_000), limits=EmbeddedLimits(**limits)
    )


async def eventually(look, expected):
    """The writer's thread does its housekeeping when it is idle, and tells nobody."""
    with trio.fail_after(10):
        while await look() != expected:  # noqa: ASYNC110
            await trio.sleep(0.005)


async def read_all(log, topic="t", first=0):
    end = (await log.positions(topic, LATEST))[0]
    found = []
    async with log.reader(topic, {0: first}) as reader:
        while len(found) < end - first:
            found += await reader.next_batch(1_000, 10_000_000)
    return [r.value for r in found]


async def test_concurrent_appends_share_few_commits(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings(partitions=4))
        before = log.statistics().commits
        async with trio.open_nursery() as nursery:
            for n in range(400):
                nursery.start_soon(log.append, "t", n % 4, batch(b"x"), Ack.ALL)
        assert log.statistics().records == 400
        assert log.statistics().commits - before < 40


async def test_what_is_written_is_let_go_without_the_collector(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings())
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await log.append("t", 0, batch(b"a"), Ack.LEADER)
            # The writer's thread holds its last group until the next one comes.
            assert sum(isinstance(each, Job) for each in gc.get_objects()) <= 1
        finally:
            gc.enable()


async def test_a_transaction_is_bounded_in_records_and_in_bytes(tmp_path):
    async with opened(tmp_path, group_records_max=10) as log:
        await log.topics.create("t", TopicSettings())
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(log.append, "t", 0, batch(b"x", b"y"), Ack.ALL)
        assert log.statistics().commits >= 11
    async with opened(tmp_path, group_bytes_max=1) as log:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(log.append, "t", 0, batch(b"x"), Ack.ALL)
        assert log.statistics().commits == 5
        assert await log.positions("t", LATEST) == {0: 105}


async def test_a_log_whose_writer_has_failed_says_that_it_stores_nothing_more(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings())
        # A programmer's error: SQLite has no number that large.
        (outcome,) = await log.append("t", 0, [Record(None, b"a", (), 2**63)], Ack.ALL)
        assert type(outcome) is UnknownRecord
        assert "start the node again" in log.trouble
        assert [type(each) for each in await log.append("t", 0, batch(b"b"), Ack.ALL)] == [
            UnavailableRecord
        ]


async def test_an_append_is_unavailable_when_too_much_waits_for_the_writer(tmp_path):
    async with opened(tmp_path, queued_bytes_max=2_000) as log:
        await log.topics.create("t", TopicSettings())
        outcomes = []

        async def append():
            outcomes.extend(await log.append("t", 0, batch(b"x" * 1_000), Ack.ALL))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(append)
        assert sorted(type(o).__name__ for o in outcomes) == [
            "Stored",
            "UnavailableRecord",
            "UnavailableRecord",
        ]
        # One that is alone is always taken.
        assert await log.append("t", 0, batch(b"y" * 5_000), Ack.ALL) == [Stored(1)]


async def test_an_append_that_the_writer_does_not_answer_in_time_is_unknown(tmp_path):
    async with opened(tmp_path, append_timeout_s=0.05) as log:
        await log.topics.create("t", TopicSettings())
        # Another process that holds the write lock is what a hung disk looks like from here.
        with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            outcomes = await log.append("t", 0, batch(b"a"), Ack.ALL)
            assert isinstance(outcomes[0], UnknownRecord)
            other.execute("ROLLBACK")
        async with log.reader("t", {0: 0}) as reader:
            assert [r.value for r in await reader.next_batch(10, 100)] == [b"a"]


async def test_what_is_queued_at_the_end_of_the_block_is_finished_first(tmp_path):
    outcomes = []
    async with trio.open_nursery() as nursery, opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings())

        async def append(value):
            outcomes.extend(await log.append("t", 0, batch(value), Ack.ALL))

        for n in range(20):
            nursery.start_soon(append, b"%d" % n)
        # Twice: in the turn of the first one this task may come before those.
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
    stored = sum(isinstance(outcome, Stored) for outcome in outcomes)
    assert len(outcomes) == 20
    assert stored > 0
    async with opened(tmp_path) as log:
        assert await log.positions("t", LATEST) == {0: stored}


async def test_a_closed_log_says_so(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings())
        reader_error = []

        async def tail():
            async with log.reader("t", {0: 0}) as reader:
                try:
                    await reader.next_batch(1, 1)
                except LogUnavailable as error:
                    reader_error.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tail)
            await trio.testing.wait_all_tasks_blocked()
            await log.close()
        assert "closed" in reader_error[0].message
        outcomes = await log.append("t", 0, batch(b"a"), Ack.ALL)
        assert isinstance(outcomes[0], UnavailableRecord)
        with pytest.raises(LogUnavailable):
            await log.commit("g", "t", {0: Commit(1)})


async def test_readers_behind_the_tail_cache_read_the_file_and_then_the_cache(tmp_path):
    values = [b"%04d" % n for n in range(200)]
    async with opened(tmp_path, tail_bytes_max=10 * 260) as log:
        await log.topics.create("t", TopicSettings())
        for value in values:
            await log.append("t", 0, batch(value), Ack.ALL)
        assert await read_all(log) == values
        assert await read_all(log, first=195) == values[195:]
        assert await read_all(log, first=150) == values[150:]


async def test_a_record_that_cannot_be_coded_is_refused_and_costs_nobody_else(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings())
        bad = Record(None, b"x", (("not unicode \ud800", b""),), 1)
        outcomes = await log.append("t", 0, [*batch(b"a"), bad, *batch(b"b")], Ack.ALL)
        assert [type(outcome) for outcome in outcomes] == [Stored, RefusedRecord, Stored]
        assert await read_all(log) == [b"a", b"b"]
    async with opened(tmp_path) as log:
        assert await read_all(log) == [b"a", b"b"]


async def test_a_full_disk_makes_appends_unavailable_and_heals(tmp_path):
    store = await trio.to_thread.run_sync(open_store, tmp_path)
    log = EmbeddedLog(store, "dc1", HandClock(1_000_000), 60_000, EmbeddedLimits(tail_bytes_max=0))
    await log.topics.create("t", TopicSettings())
    await log.append("t", 0, batch(b"before"), Ack.ALL)
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    outcomes = await log.append("t", 0, batch(*[b"x" * 10_000] * 10), Ack.ALL)
    assert len(outcomes) == 10
    assert all(isinstance(o, UnavailableRecord) and "full" in o.reason for o in outcomes)
    # A node says so, and is not ready by it, unless a spool stands in.
    node = embedded_logs({"dc1": log, "dc2": log}, "dc1")
    assert "full" in node.trouble()
    assert "full" in node.remote_trouble("dc2")
    # It may be had again without a new start.
    assert node.lost() == ""
    with pytest.raises(LogUnavailable):
        await log.topics.create("u" * 100_000, TopicSettings())
    assert await read_all(log) == [b"before"]
    store.connection.execute("PRAGMA max_page_count = 1000000")
    assert await log.append("t", 0, batch(b"after"), Ack.ALL) == [Stored(1)]
    assert (node.trouble(), node.remote_trouble("dc2")) == ("", "")
    assert await read_all(log) == [b"before", b"after"]
    await log.close()
    async with opened(tmp_path) as log:
        assert await read_all(log) == [b"before", b"after"]
        assert await log.topics.names() == ["t"]


async def test_retention_frees_the_space_for_new_records(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings(retention_ms=1_000))
        await log.topics.create("deleted", TopicSettings())
        for _ in range(3):
            await log.append("deleted", 0, batch(b"z" * 300_000), Ack.ALL)
            for _ in range(40):
                await log.append("t", 0, batch(b"x" * 10_000), Ack.ALL)
        await log.topics.delete("deleted")
        await log.expire(10_000)
        assert await log.positions("t", EARLIEST) == {0: 120}
        with closing(open_read_only(tmp_path / FILE_NAME)) as connection:

            async def rows():
                return connection.execute(
                    "SELECT (SELECT count(*) FROM chunk), (SELECT count(*) FROM partition)"
                ).fetchone()

            await eventually(rows, (0, 1))
        assert await log.append("t", 0, batch(b"new"), Ack.ALL) == [Stored(120)]


async def test_retention_takes_nothing_young_of_what_the_same_transaction_appends(tmp_path):
    is_held = threading.Event()
    young = Record(None, b"young", (), 9_500)
    async with opened(tmp_path, tail_bytes_max=0) as log, trio.open_nursery() as nursery:
        await log.topics.create("t", TopicSettings(retention_ms=1_000))
        await log.append("t", 0, batch(b"old"), Ack.ALL)
        # What waits behind this is one transaction.
        nursery.start_soon(log.change, lambda _store: is_held.wait(10))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.append, "t", 0, [young, young, young], Ack.ALL)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log.expire, 10_000)
        await trio.testing.wait_all_tasks_blocked()
        is_held.set()
        await eventually(lambda: log.positions("t", EARLIEST), {0: 1})
        assert await log.positions("t", LATEST) == {0: 4}


async def test_retention_runs_at_its_interval(tmp_path):
    async with open_embedded_log(
        tmp_path, "dc1", SteppingClock(1_000_000), retention_check_interval_ms=10
    ) as log:
        await log.topics.create("t", TopicSettings(retention_ms=1_000))
        await log.append("t", 0, batch(b"old"), Ack.ALL)
        await eventually(lambda: log.positions("t", EARLIEST), {0: 1})


class SteppingClock(HandClock):
    """Each look at it is 5 ms after the last."""

    def monotonic_s(self):
        self.passed_s += 0.005
        return self.passed_s


async def test_space_of_an_interrupted_retention_is_freed_after_reopening(tmp_path):
    store = open_store(tmp_path)
    store.begin()
    store.create_topic("t", TopicSettings(retention_ms=0))
    store.append("t", 0, batch(*[b"x"] * 10), 0, 0.0)
    store.flush()
    store.commit()
    store.begin()
    store.plan_expiry(1_000)
    assert store.keep_house() == [("t", 0, 10)]
    store.commit()
    store.close()
    store = open_store(tmp_path)
    assert store.has_chores
    store.begin()
    assert store.keep_house() == []
    store.commit()
    assert store.connection.execute("SELECT count(*) FROM chunk").fetchone() == (0,)
    assert store.topics["t"].partitions[0].end == 10
    assert not store.has_chores
    store.close()


async def test_a_chunk_damaged_while_the_log_is_open_makes_its_reader_fail_and_nobody_else(
    tmp_path,
):
    async with opened(tmp_path, tail_bytes_max=0) as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        for partition in (0, 1):
            await log.append("t", partition, batch(b"a"), Ack.ALL)
            await log.append("t", partition, batch(b"b"), Ack.ALL)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
            content = connection.execute("SELECT min(id), content FROM chunk").fetchone()
            damaged = content[1][:-1] + bytes([content[1][-1] ^ 1])
            assert zlib.crc32(damaged) != zlib.crc32(content[1])
            connection.execute("UPDATE chunk SET content = ? WHERE id = ?", (damaged, content[0]))
        async with log.reader("t", {0: 0}) as reader:
            with pytest.raises(LogUnavailable, match="offset 0 is damaged"):
                await reader.next_batch(10, 1_000)
            reader.seek(0, 1)
            assert [r.value for r in await reader.next_batch(10, 1_000)] == [b"b"]
        async with log.reader("t", {1: 0}) as reader:
            assert [r.value for r in await reader.next_batch(10, 1_000)] == [b"a", b"b"]


async def test_a_missing_chunk_is_damage_not_silence(tmp_path):
    async with opened(tmp_path, tail_bytes_max=0) as log:
        await log.topics.create("t", TopicSettings())
        for value in (b"a", b"b", b"c"):
            await log.append("t", 0, batch(value), Ack.ALL)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
            connection.execute("DELETE FROM chunk WHERE id % 1024 = 1")
        async with log.reader("t", {0: 0}) as reader:
            assert [each.value for each in await reader.next_batch(10, 1_000)] == [b"a"]
            with pytest.raises(LogUnavailable, match="offset 1 is missing"):
                await reader.next_batch(10, 1_000)


async def make_log(directory):
    async with opened(directory) as log:
        await log.topics.create("t", TopicSettings())
        await log.append("t", 0, batch(*[b"x" * 20_000] * 10), Ack.ALL)
    return directory / FILE_NAME


async def refusal(directory):
    with pytest.raises(StartupError) as caught:
        async with opened(directory):
            pass
    assert "\n" not in caught.value.message
    assert str(directory) in caught.value.message
    return caught.value.message


async def test_a_torn_file_is_refused_with_one_clear_line(tmp_path):
    path = await make_log(tmp_path)
    size_bytes = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size_bytes - 30_000)
    message = await refusal(tmp_path)
    assert "cut short" in message or "malformed" in message


async def test_damage_that_sqlite_quotes_in_its_error_is_refused_with_one_clear_line(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings())
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    assert b"CREATE TABLE chunk (" in content
    path.write_bytes(content.replace(b"CREATE TABLE chunk (", b"CREATE TABLE chunk \xdd", 1))
    assert "from a copy" in await refusal(tmp_path)


async def test_partitions_that_have_lost_their_topic_are_damage(tmp_path):
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings(partitions=2))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute("DELETE FROM topic")
    assert "partition 1 has no place in a topic" in await refusal(tmp_path)


async def test_another_sqlite_file_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute("CREATE TABLE other (x)")
    assert "not a log" in await refusal(tmp_path)


async def test_a_log_of_another_schema_version_is_refused(tmp_path):
    path = await make_log(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    assert "version 99" in await refusal(tmp_path)
