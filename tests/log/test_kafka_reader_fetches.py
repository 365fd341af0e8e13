"""What a reader does with answers that come at an awkward moment, from scripted brokers."""

import asyncio  # noqa: TID251 -- the fetches live on the host loop
import io
import struct

import aiokafka.errors as kafka_errors
import pytest
import trio
from aiokafka.protocol.fetch import FetchRequest_v10, FetchResponse_v10
from aiokafka.record._crecords import crc32c_cython
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import LogUnavailable, OffsetOutOfRange
from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.reader import KafkaReader
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import system_rng

OUT_OF_RANGE = kafka_errors.OffsetOutOfRangeError.errno


def batch_of(first, *values, header=b"h"):
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for n, value in enumerate(values):
        builder.append(n, 7, None, value, [(header.decode(), b"")])
    data = bytearray(builder.build())
    data[0:8] = first.to_bytes(8, "big")
    return bytes(data)


class ScriptedBrokers(Brokers):
    """Leads everything itself. A fetch waits in `fetches` for the test's `answer`."""

    def __init__(self):
        cluster = KafkaClusterConfig(["127.0.0.1:1"])
        settings = KafkaConfig(request_timeout_ms=500, reconnect_backoff_ms=1)
        super().__init__(KafkaCluster("dc1", cluster, settings), system_rng())
        self.fetches = []

    async def leaders(self, topic, *, age_max_s=0):
        return {0: 1, 1: 1}

    def spare(self, node):
        return self

    def give_back(self, connection, *, is_usable):
        pass

    def version(self, api_key, lowest, highest):
        return highest

    def ask(self, api_key, version, body, told, *, timeout_s):
        # From version 11 on followers answer as well.
        assert (api_key, version) == (FetchRequest_v10.API_KEY, 10)
        ((_, wanted),) = FetchRequest_v10.decode(io.BytesIO(body)).topics
        self.fetches.append(({number: at for number, _, at, *_ in wanted}, told))

    async def asked(self, count):
        with trio.fail_after(10):
            while len(self.fetches) < count:  # noqa: ASYNC110 -- both loops share a thread
                await trio.sleep(0.001)
        return self.fetches[count - 1][0]

    def answer(self, index, **partitions):
        """`p0=data or code`."""
        answers = [
            (
                int(name[1:]),
                *(
                    (found, -1, -1, -1, [], None)
                    if isinstance(found, int)
                    else (0, 9, 9, 0, [], found)
                ),
            )
            for name, found in partitions.items()
        ]
        answer = FetchResponse_v10(
            throttle_time_ms=0, error_code=0, session_id=0, topics=[("t", answers)]
        )
        self.fetches[index][1](answer.encode())


class Bounds:
    """Positions that are told when the test says."""

    def __init__(self):
        self.asked = 0
        self.answer = asyncio.get_running_loop().create_future()

    async def bounds(self, topic, partition):
        self.asked += 1
        return await self.answer


def in_guest(test):
    """Run a trio test with scripted brokers as the guest of an asyncio host."""

    def run():
        async def main():
            brokers, positions = ScriptedBrokers(), Bounds()
            try:
                await test(brokers, positions)
            finally:
                await guest.call(brokers.close)

        guest.run(main)

    run.__name__ = test.__name__
    return run


async def until(condition):
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 -- both loops share a thread
            await trio.sleep(0.001)


async def values_of(reader):
    with trio.fail_after(10):
        return [(record.offset, record.value) for record in await reader.next_batch(10, 10_000)]


@in_guest
async def test_a_seek_while_another_partition_is_looked_into_skips_nothing(brokers, positions):
    reader = KafkaReader(brokers, positions, "t", {0: 50, 1: 100})
    with trio.move_on_after(0.05):
        await reader.next_batch(10, 10_000)
    brokers.answer(0, p0=OUT_OF_RANGE, p1=batch_of(100, b"late"))
    await until(lambda: positions.asked)
    reader.seek(0, 7)
    reader.seek(1, 10)
    positions.answer.set_result((60, 90))
    await trio.sleep(0.01)
    async with trio.open_nursery() as nursery:
        found = []

        @nursery.start_soon
        async def read():
            found.extend(await values_of(reader))

        assert await brokers.asked(2) == {0: 7, 1: 10}
        brokers.answer(1, p0=b"", p1=batch_of(10, b"sought"))
    assert found == [(10, b"sought")]
    reader.close()


@in_guest
async def test_what_came_is_not_held_up_by_a_position_that_is_looked_into(brokers, positions):
    reader = KafkaReader(brokers, positions, "t", {0: 50, 1: 100})
    async with trio.open_nursery() as nursery:
        found = []

        @nursery.start_soon
        async def read():
            found.extend(await values_of(reader))

        await brokers.asked(1)
        brokers.answer(0, p0=OUT_OF_RANGE, p1=batch_of(100, b"a"))
    assert found == [(100, b"a")]
    # Only the other one is fetched meanwhile.
    assert await brokers.asked(2) == {1: 101}
    positions.answer.set_result((60, 90))
    with pytest.raises(OffsetOutOfRange, match="50 is not in"):
        await values_of(reader)
    assert positions.asked == 1
    reader.close()


@in_guest
async def test_a_position_that_only_a_lagging_replica_refuses_is_asked_for_again(
    brokers, positions
):
    reader = KafkaReader(brokers, positions, "t", {0: 50})
    positions.answer.set_result((0, 60))
    async with trio.open_nursery() as nursery:
        found = []

        @nursery.start_soon
        async def read():
            found.extend(await values_of(reader))

        await brokers.asked(1)
        brokers.answer(0, p0=OUT_OF_RANGE)
        assert await brokers.asked(2) == {0: 50}
        brokers.answer(1, p0=batch_of(50, b"a"))
    assert found == [(50, b"a")]
    reader.close()


@in_guest
async def test_an_answer_that_nobody_foresaw_is_raised_and_not_waited_on_for_ever(
    brokers, positions
):
    reader = KafkaReader(brokers, positions, "t", {0: 0})
    with trio.move_on_after(0.05):
        await reader.next_batch(10, 10_000)
    brokers.fetches[0][1](b"no answer at all")
    with trio.fail_after(10), pytest.raises(struct.error):
        await reader.next_batch(10, 10_000)
    reader.close()


@in_guest
async def test_a_header_whose_name_is_no_text_is_damage_and_told_as_such(brokers, positions):
    reader = KafkaReader(brokers, positions, "t", {0: 0})
    with trio.move_on_after(0.05):
        await reader.next_batch(10, 10_000)
    data = bytearray(batch_of(0, b"a", header=b"name"))
    data[data.index(b"name")] = 0xFF
    data[17:21] = crc32c_cython(bytes(data[21:])).to_bytes(4, "big")
    brokers.answer(0, p0=bytes(data))
    with trio.fail_after(10), pytest.raises(LogUnavailable, match="utf-8"):
        await reader.next_batch(10, 10_000)
    reader.close()


@in_guest
async def test_who_reads_is_told_before_the_first_record_that_another_broker_may_lead(
    brokers, positions
):
    """It may know less than the one before: what was read may be gone."""
    reader = KafkaReader(brokers, positions, "t", {0: 0})
    found = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def read():
            found.append((await values_of(reader), set(reader.doubtful)))
            found.append((await values_of(reader), set(reader.doubtful)))

        await brokers.asked(1)
        brokers.answer(0, p0=batch_of(0, b"a"))
        await brokers.asked(2)
        brokers.answer(1, p0=kafka_errors.NotLeaderForPartitionError.errno)
        assert await brokers.asked(3) == {0: 1}
        brokers.answer(2, p0=batch_of(1, b"b"))
    assert found == [([(0, b"a")], set()), ([(1, b"b")], {0})]
    reader.close()


@in_guest
async def test_who_stops_reading_before_it_is_known_who_leads_is_told_that_it_may_be_another(
    brokers, positions
):
    reader = KafkaReader(brokers, positions, "t", {0: 0, 1: 0})
    with trio.move_on_after(0.05):
        await reader.next_batch(10, 10_000)
    brokers.answer(0, p0=kafka_errors.NotLeaderForPartitionError.errno, p1=b"")
    assert set(reader.doubtful) == set()
    reader.close()
    assert set(reader.doubtful) == {0}


@in_guest
async def test_one_partition_without_a_leader_casts_no_doubt_on_the_others(brokers, positions):
    reader = KafkaReader(brokers, positions, "t", {0: 0, 1: 0})
    found = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def read():
            found.append((await values_of(reader), set(reader.doubtful)))

        await brokers.asked(1)
        lost = kafka_errors.LeaderNotAvailableError.errno
        brokers.answer(0, p0=b"", p1=lost)
        asked = await brokers.asked(2)
        brokers.answer(1, **{f"p{n}": batch_of(0, b"a") if n == 0 else lost for n in asked})
        if 0 not in asked:
            await brokers.asked(3)
            brokers.answer(2, p0=batch_of(0, b"a"))
    assert found == [([(0, b"a")], {1})]
    reader.close()
