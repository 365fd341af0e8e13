import random

import pytest
import trio
import trio.testing

from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Commit,
    LogUnavailable,
    OffsetOutOfRange,
    Stored,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.log.faults import Faults
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.clock import SimulatedClock


@pytest.fixture
async def log():
    log = MemoryLog("dc1", SimulatedClock(), faults=Faults(random.Random(1)), append_timeout_s=5.0)
    await log.topics.create("t", TopicSettings(partitions=2))
    return log


def batch(*values):
    return [Record(None, value, (), 1) for value in values]


async def stored_values(log, partition=0):
    end = (await log.positions("t", LATEST))[partition]
    values = []
    async with log.reader("t", {partition: 0}) as reader:
        while len(values) < end:
            values += [r.value for r in await reader.next_batch(100, 10_000)]
    return values


async def test_a_silent_append_is_unknown_after_the_time_out_and_stored_when_healed(
    log, autojump_clock
):
    log.faults.silent = True
    started_s = trio.current_time()
    outcomes = await log.append("t", 0, batch(b"a"), Ack.ALL)
    assert isinstance(outcomes[0], UnknownRecord)
    assert trio.current_time() - started_s == pytest.approx(5.0)
    assert await stored_values(log) == []
    log.faults.silent = False
    await trio.testing.wait_all_tasks_blocked()
    assert await stored_values(log) == [b"a"]


async def test_an_abandoned_append_is_dropped_when_late_store_is_off(log, autojump_clock):
    log.faults.silent = True
    log.faults.late_store = False
    await log.append("t", 0, batch(b"a"), Ack.ALL)
    log.faults.silent = False
    await trio.testing.wait_all_tasks_blocked()
    assert await stored_values(log) == []


async def test_a_cancelled_append_may_be_stored_later(log, autojump_clock):
    log.faults.delay_s = (1.0, 1.0)
    with trio.move_on_after(0.5) as scope:
        await log.append("t", 0, batch(b"a"), Ack.ALL)
    assert scope.cancelled_caught
    assert await stored_values(log) == []
    await trio.sleep(1)
    assert await stored_values(log) == [b"a"]


async def test_an_append_slower_than_the_time_out_is_unknown_and_stored_late(log, autojump_clock):
    log.faults.delay_s = (6.0, 6.0)
    outcomes = await log.append("t", 0, batch(b"a"), Ack.ALL)
    assert isinstance(outcomes[0], UnknownRecord)
    await trio.sleep(2)
    assert await stored_values(log) == [b"a"]


async def test_held_appends_of_a_partition_keep_their_order_and_none_overtakes(log, autojump_clock):
    log.faults.delay_s = (0.1, 0.5)
    offsets = {}

    async def append(number):
        outcomes = await log.append("t", 0, batch(b"%d" % number), Ack.ALL)
        offsets[number] = outcomes[0].offset

    async with trio.open_nursery() as nursery:
        for number in range(6):
            if number == 4:
                log.faults.delay_s = None
            nursery.start_soon(append, number)
            await trio.testing.wait_all_tasks_blocked()
    assert offsets == {n: n for n in range(6)}


async def test_a_held_partition_does_not_hold_the_others_once_healed(log, autojump_clock):
    log.faults.delay_s = (3.0, 3.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.append, "t", 0, batch(b"slow"), Ack.ALL)
        await trio.testing.wait_all_tasks_blocked()
        log.faults.delay_s = None
        assert await log.append("t", 1, batch(b"fast"), Ack.ALL) == [Stored(0)]
        assert await stored_values(log, 0) == []


async def test_a_failing_log_refuses_before_storing(log, autojump_clock):
    log.faults.unavailable_rate = 1.0
    outcomes = await log.append("t", 0, batch(b"a", b"b"), Ack.ALL)
    assert [type(outcome) for outcome in outcomes] == [UnavailableRecord] * 2
    with pytest.raises(LogUnavailable):
        await log.topics.create("u", TopicSettings())
    log.faults.heal()
    assert await stored_values(log) == []


async def test_a_lost_acknowledgement_is_unknown_although_stored(log, autojump_clock):
    log.faults.acknowledgement_lost_rate = 1.0
    outcomes = await log.append("t", 0, batch(b"a"), Ack.ALL)
    assert isinstance(outcomes[0], UnknownRecord)
    assert await stored_values(log) == [b"a"]


async def test_a_torn_batch_stores_a_prefix_and_says_so(log, autojump_clock):
    log.faults.partial_rate = 1.0
    values = [b"%d" % n for n in range(10)]
    outcomes = await log.append("t", 0, batch(*values), Ack.ALL)
    kept = await stored_values(log)
    assert 0 < len(kept) < 10
    assert kept == values[: len(kept)]
    assert outcomes[: len(kept)] == [Stored(n) for n in range(len(kept))]
    assert all(isinstance(o, UnavailableRecord) for o in outcomes[len(kept) :])
    assert await log.append("t", 1, batch(b"alone"), Ack.ALL) == [Stored(0)]


async def test_failing_reads_raise_and_the_reader_goes_on_when_healed(log, autojump_clock):
    await log.append("t", 0, batch(b"a"), Ack.ALL)
    async with log.reader("t", {0: 0}) as reader:
        log.faults.reads_failing = True
        with pytest.raises(LogUnavailable):
            await reader.next_batch(1, 1)
        for asked in (
            log.positions("t", LATEST),
            log.positions("t", EARLIEST),
            log.positions("t", 0),
            log.committed("g", "t"),
        ):
            with pytest.raises(LogUnavailable):
                await asked
        assert await log.append("t", 0, batch(b"b"), Ack.ALL) == [Stored(1)]
        log.faults.heal()
        assert [r.value for r in await reader.next_batch(9, 99)] == [b"a", b"b"]


async def test_silent_reads_wait_until_healed(log, autojump_clock):
    await log.append("t", 0, batch(b"a"), Ack.ALL)
    log.faults.reads_silent = True
    with trio.move_on_after(100) as scope:
        await log.positions("t", LATEST)
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def look_up():
            assert await log.positions("t", LATEST) == {0: 1, 1: 0}

        await trio.testing.wait_all_tasks_blocked()
        log.faults.heal()


async def test_failing_commits_raise_and_store_nothing(log, autojump_clock):
    log.faults.commits_failing = True
    with pytest.raises(LogUnavailable):
        await log.commit("g", "t", {0: Commit(1)})
    assert await log.committed("g", "t") == {}


async def test_stale_commits_show_the_last_but_one(log, autojump_clock):
    await log.commit("g", "t", {0: Commit(1), 1: Commit(5)})
    await log.commit("g", "t", {0: Commit(2)})
    log.faults.stale_commits = True
    assert await log.committed("g", "t") == {0: Commit(1)}
    log.faults.stale_commits = False
    assert await log.committed("g", "t") == {0: Commit(2), 1: Commit(5)}


async def test_a_leader_change_drops_what_was_acknowledged_at_leader_only(log, autojump_clock):
    dropped = []
    log.on_drop.append(lambda *args: dropped.append(args))
    await log.append("t", 0, batch(b"safe"), Ack.ALL)
    log.faults.replication_stopped = True
    assert await log.append("t", 0, batch(b"lost"), Ack.LEADER) == [Stored(1)]
    assert await stored_values(log) == [b"safe"]
    log.change_leader()
    log.faults.heal()
    assert dropped == [("t", 0, 1)]
    assert await log.append("t", 0, batch(b"next"), Ack.ALL) == [Stored(1)]
    assert await stored_values(log) == [b"safe", b"next"]


async def test_what_was_unreplicated_becomes_readable_when_replication_goes_on(log, autojump_clock):
    log.faults.replication_stopped = True
    await log.append("t", 0, batch(b"a"), Ack.LEADER)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def tail():
            async with log.reader("t", {0: 0}) as reader:
                assert [r.value for r in await reader.next_batch(9, 99)] == [b"a"]

        await trio.testing.wait_all_tasks_blocked()
        log.faults.replication_stopped = False
    log.change_leader()
    assert await stored_values(log) == [b"a"]


async def test_ack_all_waits_for_the_followers_and_is_unknown_when_the_leader_changes(
    log, autojump_clock
):
    log.faults.replication_stopped = True
    outcomes = []

    async def append(value):
        outcomes.extend(await log.append("t", 0, batch(value), Ack.ALL))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, b"a")
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == []
        log.change_leader()
    assert isinstance(outcomes.pop(), UnknownRecord)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, b"b")
        await trio.testing.wait_all_tasks_blocked()
        log.faults.heal()
    assert outcomes == [Stored(0)]
    assert await stored_values(log) == [b"b"]


async def test_retention_past_a_position_is_told_to_a_reader_that_waits_to_read(
    log, autojump_clock
):
    await log.topics.alter("t", TopicSettings(partitions=2, retention_ms=0))
    expired = []
    log.on_expire.append(lambda *args: expired.append(args))
    await log.append("t", 0, batch(b"a", b"b"), Ack.ALL)
    async with log.reader("t", {0: 1}) as reader:
        log.expire(10_000)
        with pytest.raises(OffsetOutOfRange):
            await reader.next_batch(1, 1)
    assert expired == [("t", 0, 2)]


async def test_observers_see_each_record_and_commit_as_stored(log, autojump_clock):
    seen, commits = [], []
    log.on_append.append(lambda topic, r: seen.append((topic, r.partition, r.offset, r.value)))
    log.on_commit.append(lambda *args: commits.append(args))
    log.faults.acknowledgement_lost_rate = 1.0
    await log.append("t", 1, batch(b"a", b"b"), Ack.ALL)
    await log.commit("g", "t", {1: Commit(2)})
    assert seen == [("t", 1, 0, b"a"), ("t", 1, 1, b"b")]
    assert commits == [("g", "t", 1, Commit(2))]


async def test_a_cut_log_refuses_everything_until_healed(log, autojump_clock):
    log.faults.cut()
    outcomes = await log.append("t", 0, batch(b"a"), Ack.ALL)
    assert isinstance(outcomes[0], UnavailableRecord)
    with pytest.raises(LogUnavailable):
        await log.positions("t", LATEST)
    with pytest.raises(LogUnavailable):
        await log.commit("g", "t", {0: Commit(1)})
    log.faults.heal()
    assert await log.append("t", 0, batch(b"a"), Ack.ALL) == [Stored(0)]
