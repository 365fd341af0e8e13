"""Reading from a real Kafka: gaps, quiet partitions, brokers that leave, fall silent or move."""

import asyncio  # noqa: TID251 -- the other producers live on the host loop
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic  # noqa: TID251 -- how long a real broker took

import pytest
import trio
from aiokafka import AIOKafkaProducer

from hermes_actors.log.base import LATEST, LogUnavailable, Stored, TopicSettings, UnknownTopic
from hermes_actors.management.messages.newest import newest
from hermes_actors.metadata.creation import read_creation
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest

pytestmark = pytest.mark.kafka
PATIENCE_S = 60


async def write(log, topic, value, partition=0):
    with trio.fail_after(PATIENCE_S):
        while True:
            outcomes = await log.append(topic, partition, [Record(None, value, (), 1)], Ack.ALL)
            if isinstance(outcomes[0], Stored):
                return outcomes[0].offset
            await trio.sleep(0.05)


async def read(reader, count):
    found = []
    with trio.fail_after(PATIENCE_S):
        while len(found) < count:
            found += await reader.next_batch(100, 1_000_000)
    return [record.value for record in found]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_what_others_wrote_compressed_is_read(kafka_cluster, open_log, fresh, compression):
    topic = fresh("t")
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())

        async def others():
            producer = AIOKafkaProducer(
                bootstrap_servers=kafka_cluster.bootstrap_servers, compression_type=compression
            )
            await producer.start()
            try:
                for value in (b"a" * 500, b"b" * 500):
                    await producer.send_and_wait(topic, value, partition=0)
            finally:
                await producer.stop()

        await guest.call(others)
        async with log.reader(topic, {0: 0}) as reader:
            assert await read(reader, 2) == [b"a" * 500, b"b" * 500]


@asynccontextmanager
async def transactional(servers, *ids):
    producers = [AIOKafkaProducer(bootstrap_servers=servers, transactional_id=each) for each in ids]
    try:
        for producer in producers:
            await producer.start()
        yield producers
    finally:
        for producer in producers:
            await producer.stop()


async def test_of_transactions_what_is_committed_is_read_and_no_end_counts_their_marks(
    kafka_cluster, open_log, fresh
):
    topic, servers = fresh("t"), kafka_cluster.bootstrap_servers
    go_on = asyncio.Event()

    async def transactions(is_open):
        async with transactional(servers, fresh("x"), fresh("y"), fresh("z")) as (x, y, z):
            for producer in (x, y):
                await producer.begin_transaction()
            for producer, value in ((x, b"x1"), (y, b"y1"), (x, b"x2"), (y, b"y2")):
                await producer.send_and_wait(topic, value, partition=0)
            await x.abort_transaction()
            await y.send_and_wait(topic, b"y3", partition=0)
            await y.commit_transaction()
            await x.begin_transaction()
            await x.send_and_wait(topic, b"x3", partition=0)
            await x.abort_transaction()
            await z.begin_transaction()
            await z.send_and_wait(topic, b"z1", partition=0)
            is_open.set()
            await go_on.wait()
            await z.commit_transaction()

    async with (
        open_log(servers) as log,
        open_log(servers, isolation="read_uncommitted") as uncommitted,
        trio.open_nursery() as nursery,
    ):
        await log.topics.create(topic, TopicSettings())
        is_open = trio.Event()
        nursery.start_soon(guest.call, transactions, is_open)
        with trio.fail_after(PATIENCE_S):
            await is_open.wait()
            # x1 y1 x2 y2 [abort x] y3 [commit y] x3 [abort x], and z1, whose transaction is open.
            while await log.positions(topic, LATEST) != {0: 9}:  # noqa: ASYNC110 -- marks come late
                await trio.sleep(0.05)
        assert await uncommitted.bounds(topic, 0) == (0, 10)
        async with uncommitted.reader(topic, {0: 0}) as reader:
            assert len(await read(reader, 7)) == 7
        async with log.reader(topic, {0: 0}) as reader:
            assert await read(reader, 3) == [b"y1", b"y2", b"y3"]
            with trio.fail_after(PATIENCE_S):
                while reader.position(0) < 9:
                    assert await reader.next_batch(100, 1_000_000) == ()
            with trio.move_on_after(0.3) as scope:
                await reader.next_batch(1, 1)
            assert scope.cancelled_caught
            assert reader.position(0) == 9
            # What reads up to an end waits for nothing that is not there.
            with trio.fail_after(PATIENCE_S):
                assert [each.value for each in await newest(log, topic, {0: 9}, 2)] == [
                    b"y2",
                    b"y3",
                ]
                creation = await read_creation(log, topic)
            assert (creation.ends, creation.last_records) == ({0: 9}, {})
            go_on.set()
            assert await read(reader, 1) == [b"z1"]


async def test_a_busy_partition_does_not_wait_for_a_quiet_one(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    async with open_log(kafka_cluster.bootstrap_servers, fetch_wait_ms=60_000) as log:
        await log.topics.create(topic, TopicSettings(partitions=3))
        async with log.reader(topic, {0: 0, 1: 0, 2: 0}) as reader:
            started_s = monotonic()
            for n in range(20):
                for partition in (0, 1):
                    await write(log, topic, b"%d.%d" % (partition, n), partition)
                assert set(await read(reader, 2)) == {b"0.%d" % n, b"1.%d" % n}
            assert monotonic() - started_s < 30


async def test_a_seek_does_not_wait_for_the_fetch_that_is_out(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    async with open_log(kafka_cluster.bootstrap_servers, fetch_wait_ms=60_000) as log:
        await log.topics.create(topic, TopicSettings())
        await write(log, topic, b"a")
        async with log.reader(topic, {0: 1}) as reader:
            started_s = monotonic()
            for _ in range(5):
                with trio.move_on_after(0.05):
                    await reader.next_batch(1, 1)
                reader.seek(0, 0)
                assert await read(reader, 1) == [b"a"]
            assert monotonic() - started_s < 30


async def test_a_reader_waits_for_longer_than_one_fetch(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    async with open_log(kafka_cluster.bootstrap_servers, fetch_wait_ms=50) as log:
        await log.topics.create(topic, TopicSettings())
        async with log.reader(topic, {0: 0}) as reader, trio.open_nursery() as nursery:

            async def later():
                await trio.sleep(0.5)
                await write(log, topic, b"late")

            nursery.start_soon(later)
            assert await read(reader, 1) == [b"late"]


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_readers_opened_and_closed_at_the_end_do_not_pile_up(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    async with open_log(kafka_cluster.bootstrap_servers, fetch_wait_ms=60_000) as log:
        await log.topics.create(topic, TopicSettings())
        before = open_files()
        for _ in range(100):
            async with log.reader(topic, {0: 0}) as reader:
                with trio.move_on_after(0.005):
                    await reader.next_batch(1, 1)
        assert open_files() - before < 50
        await write(log, topic, b"a")
        started_s = monotonic()
        async with log.reader(topic, {0: 0}) as reader:
            assert await read(reader, 1) == [b"a"]
        assert monotonic() - started_s < 30


async def test_a_partition_added_elsewhere_is_read(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    servers = kafka_cluster.bootstrap_servers
    async with open_log(servers) as log, open_log(servers) as other:
        await log.topics.create(topic, TopicSettings())
        assert await log.positions(topic, LATEST) == {0: 0}
        await other.topics.alter(topic, TopicSettings(partitions=2))
        await write(other, topic, b"new", 1)
        async with log.reader(topic, {1: 0}) as reader:
            assert await read(reader, 1) == [b"new"]


async def test_a_topic_deleted_elsewhere_is_told(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    servers = kafka_cluster.bootstrap_servers
    async with open_log(servers) as log, open_log(servers) as other:
        await log.topics.create(topic, TopicSettings())
        async with log.reader(topic, {0: 0}) as reader, trio.open_nursery() as nursery:
            nursery.start_soon(other.topics.delete, topic)
            with trio.fail_after(PATIENCE_S), pytest.raises(UnknownTopic):
                await reader.next_batch(1, 1)


async def test_a_reader_outlives_the_broker_and_says_so_meanwhile(
    make_kafka_cluster, open_log, fresh
):
    topic = fresh("t")
    cluster = make_kafka_cluster()
    async with open_log(
        cluster.bootstrap_servers, request_timeout_ms=1_500, fetch_wait_ms=1_000
    ) as log:
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    if await log.topics.create(topic, TopicSettings()) is not None:
                        break
                except LogUnavailable:
                    continue
        await write(log, topic, b"before")
        async with log.reader(topic, {0: 0}) as reader:
            assert await read(reader, 1) == [b"before"]
            (broker,) = cluster.brokers
            broker.pause()
            with trio.fail_after(PATIENCE_S), pytest.raises(LogUnavailable, match="dc1"):
                await reader.next_batch(1, 1)
            broker.resume()
            await write(log, topic, b"resumed")
            assert await read_through(reader) == b"resumed"
            broker.kill()
            with trio.fail_after(PATIENCE_S), pytest.raises(LogUnavailable, match="dc1"):
                await reader.next_batch(1, 1)
            with pytest.raises(LogUnavailable):
                await log.positions(topic, LATEST)
            with pytest.raises(LogUnavailable):
                await log.committed("g", topic)
            await trio.to_thread.run_sync(cluster.start)
            await write(log, topic, b"restarted")
            assert await read_through(reader) == b"restarted"


async def read_through(reader):
    """The next record, however often the reader says that the log is not there yet."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                (record,) = await reader.next_batch(1, 1)
            except LogUnavailable:
                continue
            return record.value
