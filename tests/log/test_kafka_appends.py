"""Appends to a real Kafka: what each outcome says is what the partition holds."""

from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from os import getpid

import pytest
import trio

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import (
    LATEST,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock
from hermes_local.ports import free_ports

pytestmark = pytest.mark.kafka

PATIENCE_S = 60
ACKS = [Ack.LEADER, Ack.ALL]
_numbers = count()


def fresh_name():
    return f"appends-{getpid()}-{next(_numbers)}"


@asynccontextmanager
async def opened(servers, **settings):
    cluster = KafkaClusterConfig(list(servers))
    async with open_kafka_log("dc1", cluster, KafkaConfig(**settings), SystemClock()) as log:
        yield log


async def until(condition):
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- what is waited for is on the other loop
            await trio.sleep(0.02)


async def stored(log, topic, value, ack=Ack.ALL):
    """Append until it is stored."""
    with trio.fail_after(PATIENCE_S):
        while True:
            (outcome,) = await log.append(topic, 0, [record(value)], ack)
            if isinstance(outcome, Stored):
                return outcome.offset
            await trio.sleep(0.05)


async def values(log, topic, partition=0):
    """Offset → value of all that the partition holds."""
    with trio.fail_after(PATIENCE_S):
        end = (await log.positions(topic, LATEST))[partition]
        found = {}
        async with log.reader(topic, {partition: 0}) as reader:
            while len(found) < end:
                for each in await reader.next_batch(10_000, 10_000_000):
                    found[each.offset] = each.value
        return found


def record(value):
    return Record(None, value, (), 1_000)


def producers_of(log):
    """Behind the check of each record's size, which would keep what Kafka refuses from it."""
    return log._producers


@pytest.mark.parametrize("ack", ACKS)
async def test_records_are_stored_in_order_at_the_offsets_that_are_told(kafka_cluster, ack):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        batch = [record(b"%d" % n) for n in range(1_000)]
        assert await log.append(topic, 0, batch, ack) == [Stored(n) for n in range(1_000)]
        assert await log.append(topic, 0, [], ack) == []
        assert await values(log, topic) == {n: b"%d" % n for n in range(1_000)}


@pytest.mark.parametrize("ack", ACKS)
async def test_a_batch_above_the_topics_limit_is_stored_in_smaller_ones(kafka_cluster, ack):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings(record_bytes_max=20_000))
        batch = [record(b"%03d" % n + bytes(1_000)) for n in range(200)]
        for first in (0, 200):
            outcomes = await log.append(topic, 0, batch, ack)
            assert outcomes == [Stored(first + n) for n in range(200)]
        found = await values(log, topic)
        assert [value[:3] for _, value in sorted(found.items())] == [
            b"%03d" % n for n in range(200)
        ] * 2
        assert log.statistics().replaced == {}


@pytest.mark.parametrize("ack", ACKS)
async def test_a_record_that_kafka_finds_too_large_is_refused_alone(kafka_cluster, ack):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings(record_bytes_max=20_000))
        batch = [record(b"a"), record(bytes(50_000)), record(b"b"), record(b"c")]
        append = partial(producers_of(log).append, topic, 0)
        first, refused, *rest = await append(batch, ack)
        assert isinstance(refused, RefusedRecord)
        assert refused.is_too_large
        assert "MESSAGE_TOO_LARGE" in refused.reason
        assert [first, *rest] == [Stored(0), Stored(1), Stored(2)]
        # Nothing that was refused uses up a number: the partition goes on under its producer id.
        assert await append([record(b"d")], ack) == [Stored(3)]
        assert log.statistics().replaced == {}
        assert list((await values(log, topic)).values()) == [b"a", b"b", b"c", b"d"]


async def test_a_producer_id_that_the_broker_does_not_follow_is_replaced(kafka_cluster):
    topic, other = fresh_name(), fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        for name in (topic, other):
            await log.topics.create(name, TopicSettings())
            await stored(log, name, b"0")
        # As if a batch that the broker never saw had been counted.
        producers_of(log)._places[topic, 0, True].numbering.next += 7
        assert await log.append(topic, 0, [record(b"1")], Ack.ALL) == [Stored(1)]
        assert await log.append(topic, 0, [record(b"2")], Ack.ALL) == [Stored(2)]
        assert await log.append(other, 0, [record(b"1")], Ack.ALL) == [Stored(1)]
        assert log.statistics().replaced == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
        assert list((await values(log, topic)).values()) == [b"0", b"1", b"2"]


async def test_after_a_cancelled_append_the_next_one_is_no_copy_of_it(kafka_cluster):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        await stored(log, topic, b"0")
        for number in range(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.append, topic, 0, [record(b"cancelled")], Ack.ALL)
                await trio.sleep(0.0002 * number)
                nursery.cancel_scope.cancel()
            (outcome,) = await log.append(topic, 0, [record(b"kept%d" % number)], Ack.ALL)
            found = await values(log, topic)
            assert found[outcome.offset] == b"kept%d" % number


async def test_an_unknown_topic_is_refused_soon(kafka_cluster):
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await until(lambda: log.statistics().is_connected)
        started_s = trio.current_time()
        for ack in ACKS:
            (outcome,) = await log.append(fresh_name(), 0, [record(b"v")], ack)
            assert isinstance(outcome, RefusedRecord)
        assert trio.current_time() - started_s < 2.0


async def test_an_unknown_partition_is_refused_until_it_is_added(kafka_cluster):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings(partitions=2))
        (refused,) = await log.append(topic, 2, [record(b"v")], Ack.ALL)
        assert refused == RefusedRecord(f"{topic} has partitions 0 to 1, not 2")
        await log.topics.alter(topic, TopicSettings(partitions=3))
        assert await log.append(topic, 2, [record(b"v")], Ack.ALL) == [Stored(0)]


async def test_a_topic_that_another_node_has_just_created_is_found(kafka_cluster):
    servers = kafka_cluster.bootstrap_servers
    async with opened(servers) as log, opened(servers) as another:
        for _ in range(5):
            topic = fresh_name()
            (refused,) = await log.append(topic, 0, [record(b"v")], Ack.LEADER)
            assert isinstance(refused, RefusedRecord)
            await another.topics.create(topic, TopicSettings())
            assert await log.append(topic, 0, [record(b"v")], Ack.LEADER) == [Stored(0)]


async def test_callers_of_one_partition_take_turns(kafka_cluster):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        seen = {}

        async def append(name):
            for number in range(20):
                value = b"%d-%d" % (name, number)
                (outcome,) = await log.append(topic, 0, [record(value)], Ack.ALL)
                seen[outcome.offset] = value

        async with trio.open_nursery() as nursery:
            for name in range(8):
                nursery.start_soon(append, name)
        assert sorted(seen) == list(range(160))
        assert await values(log, topic) == seen


async def test_a_connection_is_ready_before_the_first_append(kafka_cluster):
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await until(lambda: log.statistics().connections >= 2)
        assert log.statistics().is_connected


async def test_a_log_opens_while_kafka_is_down_and_works_once_it_is_up(make_kafka_cluster, caplog):
    cluster = make_kafka_cluster()
    topic = fresh_name()
    async with opened(cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
    await trio.to_thread.run_sync(cluster.stop)
    caplog.clear()
    with trio.fail_after(PATIENCE_S):
        async with opened(cluster.bootstrap_servers) as log:
            started_s = trio.current_time()
            for ack in ACKS:
                (outcome,) = await log.append(topic, 0, [record(b"lost")], ack)
                assert isinstance(outcome, UnavailableRecord)
                assert "dc1" in outcome.reason
            assert trio.current_time() - started_s < 3.0
            assert not log.statistics().is_connected
            assert "dc1" in log.statistics().reason
            await trio.to_thread.run_sync(cluster.start)
            await until(lambda: log.statistics().is_connected)
            assert await stored(log, topic, b"kept") == 0
            assert list((await values(log, topic)).values()) == [b"kept"]
    # Said once when it was noticed, and once when it was over.
    ours = [r for r in caplog.records if r.name == "hermes_actors.log.kafka.leaders"]
    assert len(ours) == 2
    assert not [r for r in caplog.records if r.name.startswith("aiokafka")]


async def test_what_is_stored_survives_restarts_in_order_and_what_is_not_is_absent(
    make_kafka_cluster,
):
    cluster = make_kafka_cluster()
    topic = fresh_name()
    told = {Ack.LEADER: [], Ack.ALL: []}
    async with opened(cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings(partitions=2))
        is_over = trio.Event()

        async def append(partition, ack):
            for number in count():
                if is_over.is_set():
                    return
                batch = [record(b"%d/%d" % (number, at)) for at in range(3)]
                outcomes = await log.append(topic, partition, batch, ack)
                told[ack] += zip(batch, outcomes, strict=True)
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, 0, Ack.LEADER)
            nursery.start_soon(append, 1, Ack.ALL)
            (broker,) = cluster.brokers
            for end in (cluster.stop, broker.kill):
                progress = len(told[Ack.ALL]) + 30
                await until(lambda more=progress: len(told[Ack.ALL]) > more)
                await trio.to_thread.run_sync(end)
                await until(lambda: isinstance(told[Ack.ALL][-1][1], UnavailableRecord))
                await trio.to_thread.run_sync(cluster.start)
                await until(
                    lambda: all(isinstance(log_of[-1][1], Stored) for log_of in told.values())
                )
            is_over.set()
        for partition, ack in enumerate(ACKS):
            found = await values(log, topic, partition)
            offsets = []
            for each, outcome in told[ack]:
                if isinstance(outcome, Stored):
                    offsets.append(outcome.offset)
                    assert found[outcome.offset] == each.value
                elif isinstance(outcome, UnavailableRecord):
                    assert each.value not in found.values()
            assert offsets == sorted(offsets)
            # Each is there once: what was sent again was recognised, what was not known was left.
            assert len(set(found.values())) == len(found)


async def test_a_broker_that_moved_to_another_port_is_found_by_the_configured_names(
    make_kafka_cluster, tmp_path
):
    cluster = make_kafka_cluster(folder=tmp_path / "kafka")
    (before,) = cluster.brokers
    moved = free_ports(1)
    servers = [*cluster.bootstrap_servers, f"{before.host}:{moved[0]}"]
    topic = fresh_name()
    async with opened(servers) as log:
        await log.topics.create(topic, TopicSettings())
        assert await stored(log, topic, b"before") == 0
        await trio.to_thread.run_sync(cluster.stop)
        again = await trio.to_thread.run_sync(
            partial(make_kafka_cluster, folder=tmp_path / "kafka", ports=moved)
        )
        assert again.brokers[0].port == moved[0]
        for number, ack in enumerate(ACKS, start=1):
            assert await stored(log, topic, b"after", ack) == number


@pytest.mark.parametrize("ack", ACKS)
async def test_no_answer_is_unknown_and_may_be_stored_later(make_kafka_cluster, ack):
    cluster = make_kafka_cluster()
    topic = fresh_name()
    async with opened(cluster.bootstrap_servers, append_timeout_ms=1_000) as log:
        await log.topics.create(topic, TopicSettings())
        await stored(log, topic, b"before", ack)
        (broker,) = cluster.brokers
        broker.pause()
        try:
            started_s = trio.current_time()
            outcomes = await log.append(topic, 0, [record(b"late"), record(b"later")], ack)
            assert 0.9 < trio.current_time() - started_s < 3.0
        finally:
            broker.resume()
        assert [type(outcome) for outcome in outcomes] == [UnknownRecord, UnknownRecord]
        offset = await stored(log, topic, b"after", ack)
        await stored(log, topic, b"last", ack)
        found = await values(log, topic)
        assert found[offset] == b"after"
        assert list(found.values()).count(b"late") <= 1
        assert log.statistics().lost >= 1


@pytest.mark.parametrize("ack", ACKS)
async def test_records_of_a_clock_that_is_ahead_are_refused_and_their_neighbours_stored(
    kafka_cluster, ack
):
    topic, now_ms = fresh_name(), SystemClock().now_ms()
    ahead = {3, 4, 8}
    batch = [
        Record(None, b"%d" % n, (), now_ms + (7_200_000 if n in ahead else 0)) for n in range(10)
    ]
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        outcomes = await log.append(topic, 0, batch, ack)
        found = await values(log, topic)
        for n, outcome in enumerate(outcomes):
            if n in ahead:
                assert isinstance(outcome, RefusedRecord)
                assert "message.timestamp.after.max.ms" in outcome.reason
            else:
                assert found[outcome.offset] == b"%d" % n
        assert list(found.values()) == [b"%d" % n for n in range(10) if n not in ahead]
        assert not log.statistics().replaced


async def test_nothing_is_kept_of_topics_that_have_gone(kafka_cluster):
    topic = fresh_name()
    async with opened(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        await stored(log, topic, b"v")
        producers = producers_of(log)
        assert (topic, 0, True) in producers._places
        await log.topics.delete(topic)
        producers._tidy_at_s = 0.0
        await until(lambda: (topic, 0, True) not in producers._places)
