"""A stated range of a partition is read whole, in either direction, without waiting for more."""

import pytest
import trio

from hermes_actors.log import ranges
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.log.ranges import read_backwards, read_forwards
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock


@pytest.fixture
async def log(monkeypatch):
    monkeypatch.setattr(ranges, "BATCH_RECORDS_MAX", 4)
    log = MemoryLog("dc1", SystemClock())
    await log.topics.create("t", TopicSettings(partitions=2, retention_ms=50))
    await log.append("t", 1, [Record(None, b"%d" % n, (), n) for n in range(11)], Ack.LEADER)
    return log


async def forwards(log, start, end, most=1_000):
    found = []

    def take(batch):
        found.extend(record.offset for record in batch)
        return len(found) < most

    with trio.fail_after(5):
        await read_forwards(log, "t", 1, start, end, take)
    return found


async def backwards(log, start, end, most=1_000):
    found = []

    def take(piece):
        found.extend(piece)
        return len(found) < most

    def convert(record):
        return (record.offset,) if record.offset % 2 else ()

    with trio.fail_after(5):
        await read_backwards(log, "t", 1, start, end, convert, take)
    return found


async def test_forwards_from_the_start_to_below_the_end(log):
    assert await forwards(log, 2, 11) == list(range(2, 11))
    assert await forwards(log, 3, 9) == list(range(3, 9))
    assert await forwards(log, 5, 5) == []
    assert await forwards(log, 0, 11, most=4) == [0, 1, 2, 3]


async def test_backwards_newest_first_what_is_converted(log):
    assert await backwards(log, 0, 11) == [9, 7, 5, 3, 1]
    assert await backwards(log, 4, 8) == [7, 5]
    assert await backwards(log, 0, 11, most=2) == [9, 7]


async def test_what_retention_took_is_left_out(log):
    log.expire(56)
    assert await forwards(log, 0, 11) == [6, 7, 8, 9, 10]
    assert await backwards(log, 0, 11) == [9, 7]
    assert await forwards(log, 0, 3) == []


async def test_a_log_that_lost_its_end_has_nothing_more(log):
    assert await forwards(log, 20, 30) == []
