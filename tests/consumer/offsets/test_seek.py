"""Retransmission: a durable Seek takes a subscription elsewhere, whatever was committed before."""

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.log.base import Commit, OffsetOutOfRange, TopicSettings
from hermes_actors.log.commits import CommitOwner, decode, encode
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_chaos.sim.environment.clock import EPOCH_MS

LATER_MS = EPOCH_MS + 86_400_000
"""Retransmissions are requested after the records that they skip were stored."""
OK = SendOutcome(200)
BUSY = SendOutcome(503)


def seek_to(number, positions=None, *, time_ms=None, dc="dc1"):
    at = {} if positions is None else {dc: positions}
    return Seek(LATER_MS + number, SeekBody(7, 0, at, time_ms))


def sought(live, seek):
    return msgspec.structs.replace(live, seek=seek)


def numbers(first, end):
    return [b"%d" % n for n in range(first, end)]


async def test_a_running_consumer_goes_back_and_delivers_again(world, autojump_clock):
    await world.publish(*numbers(0, 10))
    live = world.live()
    async with world.consuming(live) as consumer:
        await trio.sleep(3)
        consumer.ref.tell(sought(live, seek_to(100, {0: 4})))
        await trio.sleep(3)
        assert world.sender.bodies == numbers(0, 10) + numbers(4, 10)
    commit = await world.committed()
    assert (commit.position, decode(commit).ownership.seek) == (10, LATER_MS + 100)


async def test_a_seek_to_the_end_drops_what_was_read_and_what_waits_for_a_retry(
    world, autojump_clock
):
    """Records that had been read must not escape a retransmission, as they do in Hermes."""
    world.sender.script = lambda _push: BUSY
    await world.publish(*numbers(0, 500))
    live = world.live(policy={"rate": 50, "message_backoff": 1_000})
    async with world.consuming(live) as consumer:
        await trio.sleep(2)
        status = consumer.status()
        assert min(status.fresh, status.waiting_retries) > 0
        consumer.ref.tell(sought(live, seek_to(100, {0: 500})))
        await trio.testing.wait_all_tasks_blocked()
        world.sender.script = lambda _push: OK
        before = len(world.sender.pushes)
        await world.publish(b"new")
        await trio.sleep(10)
        assert world.sender.bodies[before:] == [b"new"]
        assert consumer.status().buffered_bytes == 0
    assert (await world.committed()).position == 501


async def test_what_is_in_flight_at_a_seek_ends_and_changes_nothing_of_the_new_positions(
    world, autojump_clock
):
    world.sender.script = lambda _push: (5.0, OK)
    await world.publish(*numbers(0, 3))
    live = world.live()
    async with world.consuming(live) as consumer:
        await trio.sleep(1)
        world.sender.script = lambda _push: None
        consumer.ref.tell(sought(live, seek_to(100, {0: 1})))
        await trio.sleep(6)
        assert world.count("delivered") == 3
        assert world.sender.bodies == numbers(0, 3) + numbers(1, 3)
        assert consumer.status().positions == {0: 1}
        assert (await world.committed()).position == 1


async def test_a_failing_attempt_that_a_seek_has_left_behind_is_not_tried_again(
    world, autojump_clock
):
    world.sender.script = lambda _push: (2.0, BUSY)
    await world.publish(*numbers(0, 3))
    live = world.live()
    async with world.consuming(live) as consumer:
        await trio.sleep(1)
        consumer.ref.tell(sought(live, seek_to(100, {0: 3})))
        await trio.sleep(60)
        assert len(world.sender.pushes) == 3
        assert consumer.status().buffered_bytes == 0


async def test_a_seek_is_committed_at_once_and_not_with_the_next_message(world, autojump_clock):
    await world.publish(*numbers(0, 5))
    live = world.live(policy={"rate": 1})
    async with world.consuming(live) as consumer:
        await trio.sleep(3)
        consumer.ref.tell(sought(live, seek_to(100, {0: 5})))
        await trio.testing.wait_all_tasks_blocked()
        commit = await world.committed()
        assert (commit.position, decode(commit).ownership.seek) == (5, LATER_MS + 100)


async def test_a_crash_between_seek_and_commit_does_not_lose_the_seek(world, autojump_clock):
    await world.publish(*numbers(0, 6))
    async with world.consuming():
        await trio.sleep(2)
    assert (await world.committed()).position == 6
    async with world.consuming(sought(world.live(), seek_to(100, {0: 2}))):
        await trio.sleep(2)
    assert world.sender.bodies == numbers(0, 6) + numbers(2, 6)
    # It is done with: a further start goes on behind it.
    async with world.consuming(sought(world.live(), seek_to(100, {0: 2}))):
        await trio.sleep(2)
    assert len(world.sender.pushes) == 10


@pytest.mark.parametrize("seconds", [0.5, 2.5, 8.0])
async def test_a_late_commit_of_a_former_owner_is_committed_over(world, autojump_clock, seconds):
    await world.publish(*numbers(0, 6))
    late = Commit(6, encode(6, (), CommitOwner(0, 7)))
    live = sought(world.live(policy={"rate": 1}), seek_to(100, {0: 0}))
    world.sender.script = lambda _push: None
    async with world.consuming(live):
        await trio.sleep(seconds)
        await world.log.commit("shop_orders_push", "shop.orders", {0: late})
        await trio.sleep(13)
        commit = await world.committed()
        assert (commit.position, decode(commit).ownership.seek) == (0, LATER_MS + 100)


async def test_only_the_partitions_that_a_seek_names_are_moved(make_world, autojump_clock):
    world = make_world(partitions=2)
    await world.create()
    await world.publish(*numbers(0, 4), partition=0)
    await world.publish(*numbers(10, 14), partition=1)
    live = world.live()
    async with world.consuming(live) as consumer:
        await trio.sleep(2)
        consumer.ref.tell(sought(live, seek_to(100, {1: 2})))
        await trio.sleep(2)
        assert world.sender.bodies[8:] == numbers(12, 14)
        seeks = [decode(await world.committed(each)).ownership.seek for each in (0, 1)]
        assert seeks == [LATER_MS + 100] * 2
    async with world.consuming(sought(live, seek_to(200, {1: 4}))):
        await trio.sleep(2)
    assert len(world.sender.pushes) == 10


async def test_a_seek_of_another_datacentre_alone_changes_nothing_here(world, autojump_clock):
    await world.publish(*numbers(0, 4))
    live = world.live()
    async with world.consuming(live) as consumer:
        await trio.sleep(2)
        consumer.ref.tell(sought(live, seek_to(100, {0: 0}, dc="dc2")))
        await trio.sleep(2)
    assert len(world.sender.pushes) == 4
    async with world.consuming(sought(live, seek_to(100, {0: 0}, dc="dc2"))):
        await trio.sleep(2)
    assert len(world.sender.pushes) == 4


async def test_a_time_is_resolved_by_whoever_consumes_where_no_position_was_known(
    world, autojump_clock
):
    await world.publish(b"early")
    await trio.sleep(60)
    at_ms = world.clock.now_ms()
    await world.publish(b"late")
    live = world.live(created_at=0)
    async with world.consuming(live) as consumer:
        await trio.sleep(2)
        consumer.ref.tell(sought(live, seek_to(100, time_ms=at_ms)))
        await trio.sleep(2)
    assert world.sender.bodies == [b"early", b"late", b"late"]


async def test_a_seek_waits_for_a_log_that_is_away_and_delivers_nothing_old_meanwhile(
    world, autojump_clock
):
    await world.publish(*numbers(0, 100))
    live = world.live(policy={"rate": 10})
    async with world.consuming(live) as consumer:
        await trio.sleep(2)
        world.log.faults.reads_failing = True
        before = len(world.sender.pushes)
        consumer.ref.tell(sought(live, seek_to(100, {0: 98})))
        await trio.sleep(5)
        assert len(world.sender.pushes) == before
        assert "the log cannot be read" in consumer.status().why
        world.log.faults.heal()
        await trio.sleep(5)
        assert world.sender.bodies[before:] == numbers(98, 100)


async def test_a_seek_below_the_logs_start_goes_to_its_start_and_says_so(
    make_world, autojump_clock, caplog
):
    world = make_world(retention_ms=1_000)
    await world.create()
    await world.publish(*numbers(0, 5))
    await trio.sleep(60)
    await world.publish(b"5")
    world.log.expire(world.clock.now_ms())
    async with world.consuming(sought(world.live(), seek_to(100, {0: 1}))):
        await trio.sleep(2)
    assert world.sender.bodies == [b"5"]
    assert "asks for offset 1; the log begins at 5" in caplog.text
    assert world.count("expired_by_retention") == 0


async def test_an_older_seek_that_comes_late_changes_nothing(world, autojump_clock):
    await world.publish(*numbers(0, 4))
    live = sought(world.live(), seek_to(200, {0: 3}))
    async with world.consuming(live) as consumer:
        await trio.sleep(2)
        consumer.ref.tell(sought(live, seek_to(100, {0: 0})))
        consumer.ref.tell(live)
        await trio.sleep(2)
    assert world.sender.bodies == [b"3"]


async def test_a_partition_added_after_a_seek_is_read_from_its_beginning(
    make_world, autojump_clock
):
    world = make_world(partitions=1)
    await world.create()
    await world.publish(*numbers(0, 4))
    live = world.live()
    for seek in (seek_to(100, {0: 4}), seek_to(200, time_ms=world.clock.now_ms() + 1_000)):
        async with world.consuming(sought(live, seek)):
            await trio.sleep(2)
            partitions = (await world.log.topics.describe("shop.orders")).partitions
            await world.log.topics.alter("shop.orders", TopicSettings(partitions=partitions + 1))
            await world.publish(b"added", partition=partitions)
            await trio.sleep(40)
        assert world.sender.bodies.pop() == b"added"


async def test_a_consumer_under_load_that_is_sent_back_loses_nothing(world, autojump_clock):
    world.sender.script = lambda push: (0.05, BUSY if len(push.body) == 3 else OK)
    live = world.live(policy={"rate": 500, "message_backoff": 200})
    async with world.consuming(live) as consumer, trio.open_nursery() as nursery:

        async def publish():
            for n in range(1_000):
                await world.publish(b"%d" % n)
                await trio.sleep(0.01)

        nursery.start_soon(publish)
        for seconds, number, position in ((2, 100, 50), (2, 200, 0), (1, 300, 120)):
            await trio.sleep(seconds)
            consumer.ref.tell(sought(live, seek_to(number, {0: position})))
        await trio.sleep(6)
        world.sender.script = lambda _push: (0.05, OK)
        await trio.sleep(20)
        after = world.sender.bodies[-2_000:]
        assert set(numbers(120, 1_000)) <= set(after)
        assert consumer.status().positions == {0: 1_000}
    assert (await world.committed()).position == 1_000


async def test_a_commit_that_no_consumer_of_ours_made_counts_after_a_seek_is_done(
    world, autojump_clock
):
    """Offsets may be set with Kafka's tools while a subscription is suspended."""
    await world.publish(*numbers(0, 6))
    live = sought(world.live(), seek_to(100, {0: 2}))
    async with world.consuming(live):
        await trio.sleep(2)
    await world.log.commit("shop_orders_push", "shop.orders", {0: Commit(5)})
    async with world.consuming(live):
        await trio.sleep(2)
    assert world.sender.bodies == [*numbers(2, 6), b"5"]


async def test_what_the_log_says_of_a_place_that_a_seek_has_left_counts_no_more(
    world, monkeypatch, autojump_clock
):
    """The log answers that it has been cut, at the moment when a seek goes elsewhere."""
    said = trio.Event()
    readers = []

    class Cut:
        doubtful = ()

        async def next_batch(self, _records_max, _bytes_max):
            with trio.CancelScope(shield=True):
                await said.wait()
            raise OffsetOutOfRange(world.topic, 0, 10, 0, 5)

    @asynccontextmanager
    async def reader(topic, positions):
        if not readers:
            readers.append(positions)
            yield Cut()
            return
        async with read(topic, positions) as real:
            yield real

    read = world.log.reader
    monkeypatch.setattr(world.log, "reader", reader)
    await world.publish(*numbers(0, 10))
    live = world.live()
    async with world.consuming(live) as consumer:
        await trio.sleep(1)
        consumer.ref.tell(sought(live, seek_to(1, {0: 3})))
        await trio.sleep(1)
        said.set()
        await trio.sleep(1)
        assert consumer.status().positions == {0: 10}
    assert world.sender.bodies == numbers(3, 10)
    assert world.crashes == []
