"""Where a serial consumer starts, what it commits, and what a stop or a crash leaves."""

import random
from contextlib import asynccontextmanager

import msgspec
import trio

from hermes_actors.consumer.senders.http1.pool import Http1Sender, PoolLimits
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import Commit, TopicSettings
from hermes_actors.log.commits import decode
from tests.consumer.hand_net import HandNet

OK = SendOutcome(200)
BUSY = SendOutcome(503)


async def test_a_crash_ends_what_is_under_way_so_that_no_window_is_exceeded(world, autojump_clock):
    """Over the pools: the dead life's pushes would be under way beside the next life's."""
    net = HandNet()
    world.sender = Http1Sender(net, PoolLimits(connections_max=2))
    await world.publish(*(b"%d" % n for n in range(20)))
    live = world.live(policy={"inflight_size": 10})
    async with world.consuming(live) as consumer:
        await trio.sleep(1)
        for _ in range(3):
            wires = [net.connect(), net.connect()]
            assert world.sender.statistics() == (2, 0, 8)
            consumer.supervisor.crash("consumer")
            await trio.sleep(30)
            # Nobody would hear of what was written, and the window of one life waits.
            assert [wire.is_closed for wire in wires] == [True, True]
            assert world.sender.statistics() == (0, 0, 10)
        assert len(consumer.made) == 4


async def test_a_last_commit_that_the_log_does_not_take_is_told_of(
    make_world, autojump_clock, caplog
):
    world = make_world(partitions=2)
    await world.create()
    world.sender.script = lambda _push: (0.5, OK)
    async with world.consuming() as consumer:
        await world.publish(b"taken")
        await trio.sleep(1)
        await consumer.stop()
    assert not caplog.records
    await world.publish(b"not taken")
    async with world.consuming() as consumer:
        await trio.sleep(0.25)
        world.log.faults.reads_silent = True
        await consumer.stop()
    world.log.faults.heal()
    assert [push.body for push in world.sender.pushes] == [b"taken", b"not taken"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("shop.orders$push: stopped, but its last commit was not taken")
    assert "partitions 0 delivered since" in told
    assert "may be delivered again" in told


async def test_stopping_waits_no_longer_than_the_grace(make_world, autojump_clock):
    world = make_world(stop_grace_ms=2_000)
    await world.create()
    world.sender.script = lambda push: None if push.body == b"1" else OK
    await world.publish(b"0", b"1", b"2")
    async with world.consuming() as consumer:
        await trio.sleep(0.1)
        before_s = trio.current_time()
        await consumer.stop()
        assert 1.9 < trio.current_time() - before_s < 2.5
    commit = await world.committed()
    assert commit.position == 1
    assert decode(commit).intervals == ((2, 3),)
    # An answer that comes after the end changes nothing and harms nobody.
    world.sender.unanswered[0](OK)
    assert world.count("delivered") == 2


async def test_the_commit_of_another_incarnation_is_ignored(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    async with world.consuming(world.live(incarnation=7)):
        await trio.sleep(2)
    assert len(world.sender.pushes) == 3
    async with world.consuming(world.live(incarnation=8)):
        await trio.sleep(2)
    assert world.sender.bodies[3:] == [b"0", b"1", b"2"]
    async with world.consuming(world.live(incarnation=8, topic_incarnation=5)):
        await trio.sleep(2)
    assert len(world.sender.bodies) == 9


async def test_a_commit_made_with_the_logs_own_tools_counts(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    await world.log.commit("shop_orders_push", world.topic, {0: Commit(2, "")})
    async with world.consuming():
        await trio.sleep(2)
    assert world.sender.bodies == [b"2"]


async def test_what_retention_removed_unread_is_counted_as_expired(make_world, autojump_clock):
    world = make_world(retention_ms=10_000, inflight_max=2, read_batch_records_max=2)
    await world.create()
    world.sender.script = lambda _push: (1.0, OK)
    await world.publish(*(b"%d" % n for n in range(100)))
    async with world.consuming(world.live(policy={"rate": 1})) as consumer:
        await trio.sleep(11)
        world.log.expire(world.clock.now_ms())
        await world.publish(b"new")
        await trio.sleep(20)
        assert consumer.status().why == ""
    seen = len(world.sender.pushes) - 1
    assert world.sender.bodies[-1] == b"new"
    assert 5 < seen < 20
    assert world.count("expired_by_retention") == 100 - seen
    assert (await world.committed()).position == 101


async def test_a_consumer_of_stated_partitions_reads_no_others(make_world, autojump_clock):
    world = make_world(partitions=3)
    await world.create()
    for partition in range(3):
        await world.publish(b"%d" % partition, partition=partition)
    async with world.consuming(owned=Owned((0, 2))):
        await trio.sleep(60)
    assert sorted(world.sender.bodies) == [b"0", b"2"]


async def test_a_partition_that_is_owned_before_the_log_shows_it_is_lag_until_it_is_read(
    world, autojump_clock
):
    async with world.consuming(owned=Owned((0, 1))) as consumer:
        await trio.sleep(10)
        assert consumer.made[-1].reached().settled == {0: 0, 1: 0}
        assert "partitions 1 were added" in consumer.status().held_back
        await world.log.topics.alter(world.topic, TopicSettings(partitions=2))
        await world.publish(b"new", partition=1)
        await trio.sleep(2)
        assert consumer.made[-1].reached().settled == {0: 0, 1: 1}
    assert world.sender.bodies == [b"new"]


class _Marked:
    """Reads a log in which some records are marks of transactions: no reader is given these."""

    def __init__(self, reader):
        self._reader = reader
        self.doubtful, self.position, self.seek = reader.doubtful, reader.position, reader.seek

    async def next_batch(self, _records_max, bytes_max):
        batch = await self._reader.next_batch(1, bytes_max)
        return [record for record in batch if b"mark" not in record.value]


async def test_what_lies_in_a_partition_and_is_not_for_readers_is_passed_and_committed(
    world, monkeypatch, autojump_clock
):
    @asynccontextmanager
    async def reader(topic, positions):
        async with read(topic, positions) as real:
            yield _Marked(real)

    read = world.log.reader
    monkeypatch.setattr(world.log, "reader", reader)
    await world.publish(b"mark", b"a", b"mark", b"mark", b"b", b"mark")
    for _ in range(2):
        async with world.consuming() as consumer:
            await trio.sleep(2)
            assert consumer.made[-1].reached().settled == {0: 6}
        assert world.sender.bodies == [b"a", b"b"]
        assert (await world.committed()).position == 6
    world.sender.script = lambda _push: BUSY
    async with world.consuming() as consumer:
        await world.publish(b"c", b"mark", b"mark")
        await trio.sleep(2)
        # What waits for its retry is one, whatever lies behind it.
        assert consumer.made[-1].reached().settled == {0: 8}
    assert decode(await world.committed()).intervals == ((7, 9),)


async def test_a_log_that_is_not_there_yet_is_waited_for(make_world, autojump_clock):
    world = make_world()
    async with world.consuming() as consumer:
        await trio.sleep(5)
        assert "no topic shop.orders" in consumer.status().why
        assert not world.started
        await world.create()
        await world.publish(b"0")
        await trio.sleep(5)
        assert consumer.status().why == ""
        assert len(world.started) == 1
        world.log.faults.reads_failing = True
        await world.publish(b"1")
        await trio.sleep(5)
        assert "cannot be read" in consumer.status().why
        world.log.faults.reads_failing = False
        await trio.sleep(5)
    assert world.sender.bodies == [b"0", b"1"]
    assert world.crashes == []


async def test_a_failure_inside_a_callback_restarts_the_actor_and_loses_nothing(
    world, autojump_clock
):
    class Broken(random.Random):
        is_broken = False

        def random(self):
            if self.is_broken:
                raise RuntimeError("no dice")
            return super().random()

    def script(_push):
        rng.is_broken = True
        return BUSY

    # The jitter is drawn in the sender's callback, outside of any task.
    rng = Broken(1)
    world.parts = msgspec.structs.replace(world.parts, rng=rng)
    world.sender.script = script
    await world.publish(b"0", b"1")
    async with world.consuming() as consumer:
        await trio.sleep(1)
        assert "no dice" in repr(world.crashes[0].error.exceptions)
        world.sender.script = lambda _push: OK
        rng.is_broken = False
        await trio.sleep(60)
        assert len(consumer.made) > 1
        assert world.count("delivered") == 2
    assert (await world.committed()).position == 2


async def test_a_stopped_consumer_shows_and_holds_nothing_any_more(world, autojump_clock):
    world.sender.script = lambda push: BUSY if push.body < b"5" else None
    await world.publish(*(b"%d" % n for n in range(10)))

    def gauges():
        return {
            sample.name: sample.value
            for family in world.metrics.collect()
            if family.type == "gauge"
            for sample in family.samples
        }

    policy = {"message_backoff": 60_000, "inflight_size": 7}
    async with world.consuming(world.live(policy=policy)) as consumer:
        await trio.sleep(1)
        assert gauges() == {
            "hermes_consumers_subscription_inflight": 5.0,
            "hermes_consumers_subscription_pending_offsets": 10 / world.config.unsettled_span_max,
            "hermes_consumers_subscription_waiting_dead_letters": 0.0,
            "hermes_consumers_subscription_waiting_retries": 5.0,
        }
        await consumer.stop()
        assert set(gauges().values()) == {0.0}
        status = consumer.status()
        assert (status.inflight, status.fresh, status.buffered_bytes) == (0, 0, 0)
        # What is answered too late is nobody's any more.
        for done in world.sender.unanswered:
            done(OK)
        assert set(gauges().values()) == {0.0}
    assert world.crashes == []


async def test_versions_that_waited_through_a_restart_do_not_undo_the_latest(world, autojump_clock):
    latest = msgspec.structs.replace(world.live(endpoint="http://new/"), stamp=9)
    older = msgspec.structs.replace(world.live(endpoint="http://old/"), stamp=8)
    async with world.consuming(latest) as consumer:
        consumer.ref.tell(older)
        await trio.sleep(0.1)
        await world.publish(b"1")
        await trio.sleep(1)
    assert [push.route.origin.host for push in world.sender.pushes] == ["new"]
