"""What waits for the log is bounded, numbered, and never lost silently."""

import random

import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.log.memory import MemoryLog
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import (
    RECORD_BYTES_MAX,
    TRACKING_TOPIC,
    EventKind,
    TrackingEvent,
    as_told,
    decode,
    encode,
    terminal_of,
)
from hermes_actors.tracking.writer import TrackingWriter
from hermes_chaos.sim.environment.clock import SimulatedClock


def event(message_id="m1", kind=EventKind.DELIVERED, **fields):
    return TrackingEvent(kind, message_id, "shop.orders", 7, "dc1", **fields)


def buffer(events_max=10, **bounds):
    return TrackingBuffer("dc1", "one", "boot", events_max=events_max, **bounds)


@given(st.lists(st.tuples(st.text(max_size=255), st.sampled_from(EventKind)), min_size=1))
def test_a_batch_is_read_as_it_was_written_whatever_the_ids_are(told):
    waits = buffer(1_000)
    for message_id, kind in [("\ud800x", EventKind.DEAD), *told]:
        waits.add(event(as_told(message_id), kind, subscription="billing"))
    events = decode(encode(waits.next_batch())).events
    assert [(each.message_id, each.kind) for each in events] == [("?x", EventKind.DEAD), *told]


@given(st.lists(st.sampled_from(["add", "next", "stored"]), max_size=60))
def test_every_event_is_stored_waiting_or_counted_as_dropped(steps):
    waits, asked, stored, last = buffer(5), 0, [], None
    for step in steps:
        if step == "add":
            waits.add(event(f"m{asked}"))
            asked += 1
        else:
            batch = waits.next_batch()
            assert batch is None or last is None or batch == last
            last = batch
            if step == "stored" and batch is not None:
                assert batch.sequence == len(stored)
                waits.appended()
                stored.append(batch)
                last = None
    told = sum(len(each.events) for each in stored)
    assert told == waits.stored
    assert told + len(waits) + waits.dropped == asked


def test_what_was_dropped_is_told_by_the_next_batch():
    waits = buffer(2)
    for number in range(5):
        waits.add(event(f"m{number}"))
    waits.drop(3)
    batch = waits.next_batch()
    assert len(batch.events) == 2
    assert batch.dropped == 6


def test_a_batch_of_the_longest_ids_fits_into_a_record():
    waits = buffer(100_000, bytes_max=100_000_000)
    for _ in range(3_000):
        waits.add(event("€" * 1_024, reason="€" * 200, subscription="s" * 255))
    batch = waits.next_batch()
    assert 100 < len(batch.events) < 3_000
    assert len(encode(batch)) < RECORD_BYTES_MAX


def test_delivered_once_is_delivered_whatever_else_a_crash_has_made_of_it():
    dead, first = event(kind=EventKind.DEAD), event()
    again = replace(first, epoch=3)
    assert list(terminal_of([dead, first, first, again]).values()) == [first, again]


async def run(log, waits, work):
    clock = SimulatedClock()
    writer = TrackingWriter(log, waits, clock=clock, rng=random.Random(1))
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run, stop)
        await work(writer)
        stop.set()
    return [decode(each.value) for each in await records(log)]


async def records(log):
    if await log.topics.describe(TRACKING_TOPIC) is None:
        return []
    async with log.reader(TRACKING_TOPIC, {0: 0}) as reader:
        return await reader.next_batch(1_000, 10_000_000)


async def test_batches_are_numbered_and_what_waits_at_the_end_is_written(autojump_clock):
    waits = buffer()

    async def work(writer):
        waits.add(event("m1"))
        await writer.cover()
        assert waits.stored == 1
        waits.add(event("m2"))

    told = await run(MemoryLog("dc1", SimulatedClock()), waits, work)
    assert [(each.sequence, len(each.events)) for each in told] == [(0, 1), (1, 1)]


async def test_who_has_nothing_to_tell_writes_nothing(autojump_clock):
    async def work(writer):
        await writer.cover()
        await trio.sleep(60)

    log = MemoryLog("dc1", SimulatedClock())
    assert await run(log, buffer(), work) == []
    assert await log.topics.describe(TRACKING_TOPIC) is None


async def test_a_commit_waits_a_second_at_most_for_a_silent_log(
    autojump_clock,
):
    log, waits = MemoryLog("dc1", SimulatedClock()), buffer()

    async def work(writer):
        waits.add(event("m1"))
        await writer.cover()
        log.faults.silent = True
        waits.add(event("m2"))
        began_s = trio.current_time()
        await writer.cover()
        assert 0.99 < trio.current_time() - began_s < 1.01
        log.faults.silent = False
        await trio.sleep(30)

    told = await run(log, waits, work)
    assert {each.message_id for batch in told for each in batch.events} == {"m1", "m2"}


async def test_a_topic_tracked_at_50_000_a_second_is_bounded_while_its_log_stands_still(
    autojump_clock,
):
    log, waits = MemoryLog("dc1", SimulatedClock()), buffer(20_000)

    async def work(writer):
        log.faults.silent = True
        for number in range(100_000):
            waits.add(event(f"m{number}"))
            if number % 10_000 == 0:
                await trio.sleep(0.2)
        # What is in the batch under way waits beside the others.
        assert len(waits) <= 22_000
        log.faults.silent = False
        await trio.sleep(60)

    told = await run(log, waits, work)
    distinct = {each.message_id for batch in told for each in batch.events}
    assert len(distinct) + told[-1].dropped == 100_000
