"""Whatever a broker does, an outcome says no more than is true, and order holds.

The production code under a loop whose time jumps, against a broker that recognises copies as Kafka
does, loses requests and answers, stores late, refuses, and fails after it has written.
"""

import asyncio  # noqa: TID251 -- connections live on the host loop
import io
import math
import random
from collections import deque
from types import SimpleNamespace

import pytest
import trio
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.record.memory_records import MemoryRecords

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import RefusedRecord, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.producers import Producers
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from tests.seeds import seeds

PARTITIONS = 3
RECORDS_MAX = 6
"""A batch of more is too large."""


class Partition:
    """A log, and what a broker remembers of each producer: its last five batches."""

    def __init__(self):
        self.log = []
        self._producers = {}

    def append(self, data):
        """(code, base offset), as a leader answers."""
        batch = MemoryRecords(bytes(data)).next_batch()
        values = [record.value for record in batch]
        if len(values) > RECORDS_MAX:
            return 10, -1
        if any(value.endswith(b"bad") for value in values):
            return 32, -1
        first, last = batch.base_sequence, batch.base_sequence + len(values) - 1
        if batch.producer_id >= 0:
            known = self._producers.setdefault(batch.producer_id, deque(maxlen=5))
            for before in known:
                if before[:2] == (first, last):
                    return 0, before[2]
            if known and first != known[-1][1] + 1:
                return (46 if last < known[-1][1] else 45), -1
            known.append((first, last, len(self.log)))
        self.log += values
        return 0, len(self.log) - len(values)


class Wire:
    """What is used of a Session."""

    def __init__(self, kafka):
        self._kafka = kafka
        self._told = None
        self._is_open = True

    def version(self, api_key, lowest, highest):
        return highest

    def ask(self, api_key, version, body, told):
        assert self._is_open
        self._told = told
        request = ProduceRequest_v7.decode(io.BytesIO(body))
        asyncio.get_running_loop().call_soon(self._kafka.handle, self, request, told)

    def connected(self):
        return self._is_open

    def close(self, reason=None):
        self._is_open = False
        if self._told is not None:
            told, self._told = self._told, None
            told(ConnectionError("closed"))

    def answer(self, told, topics):
        if self._told is told:
            self._told = None
            told(ProduceResponse_v7(topics=topics, throttle_time_ms=0).encode())


class Kafka:
    """One broker. `trouble`: how often something goes wrong."""

    def __init__(self, rng, trouble):
        self.rng = rng
        self.trouble = trouble
        self.partitions = [Partition() for _ in range(PARTITIONS)]

    def handle(self, wire, request, told):
        loop, rng = asyncio.get_running_loop(), self.rng
        fate = "fine"
        if rng.random() < self.trouble:
            fate = rng.choice(["swallowed", "stored late", "no answer", "answered late"])
        if fate in ("swallowed", "stored late"):
            if fate == "stored late":
                loop.call_later(rng.uniform(0, 1.0), self._store, request)
            loop.call_later(rng.uniform(0, 0.2), wire.close)
            return
        topics = self._store(request)
        if fate == "no answer":
            loop.call_later(rng.uniform(0, 0.2), wire.close)
        else:
            delay_s = rng.uniform(0, 0.3 if fate == "answered late" else 0.002)
            loop.call_later(delay_s, wire.answer, told, topics)

    def _store(self, request):
        return [
            (
                topic,
                [
                    (number, *self._store_one(request, number, data), -1, 0)
                    for number, data in parts
                ],
            )
            for topic, parts in request.topics
        ]

    def _store_one(self, request, number, data):
        waits = request.required_acks == -1
        rng = self.rng
        if rng.random() < self.trouble:
            codes = [2, 6] + [19] * waits
            # After the write, and only to a producer that waits for the replicas.
            written = rng.choice([False, waits])
            if written:
                self.partitions[number].append(data)
                codes = [6, 7, 20]
            return rng.choice(codes), -1
        return self.partitions[number].append(data)


class Links(KafkaCluster):
    """Connections to the broker of the test."""

    def __init__(self, kafka):
        settings = KafkaConfig(
            request_timeout_ms=250, append_timeout_ms=1_000, reconnect_backoff_ms=10
        )
        super().__init__("dc1", KafkaClusterConfig(["kafka:1"]), settings)
        self._kafka = kafka

    async def connect(self, host, port, purpose, *, timeout_ms=None):
        await asyncio.sleep(self._kafka.rng.uniform(0, 0.01))
        if self._kafka.rng.random() < self._kafka.trouble:
            raise ConnectionRefusedError
        return Wire(self._kafka)


class ScriptedBrokers(Brokers):
    def __init__(self, kafka):
        super().__init__(Links(kafka), kafka.rng)
        self._nodes = {1: ("kafka", 1)}
        self.producer_ids = 0

    async def describe(self, topics, *, node=None):
        await asyncio.sleep(0.001)
        parts = [(0, number, 1, [1], [1]) for number in range(PARTITIONS)]
        return [(0, topic, False, parts) for topic in topics]

    async def ask_any(self, request, *, purpose):
        await asyncio.sleep(0.001)
        self.producer_ids += 1
        return SimpleNamespace(error_code=0, producer_id=self.producer_ids, producer_epoch=0)


class Publisher:
    """One partition's appends, one after the other; some are given up."""

    def __init__(self, producers, rng, partition, ack):
        self._producers = producers
        self._rng = rng
        self._partition = partition
        self._ack = ack
        self.told = []

    async def run(self, appends):
        for number in range(appends):
            batch = [self._record(number, n) for n in range(self._rng.randint(1, 9))]
            outcomes = [UnknownRecord("given up")] * len(batch)
            with trio.move_on_after(0.05 if self._rng.random() < 0.1 else math.inf):
                outcomes = await self._producers.append("t", self._partition, batch, self._ack)
            self.told.append(list(zip([each.value for each in batch], outcomes, strict=True)))

    def _record(self, number, n):
        bad = b"bad" if self._rng.random() < 0.05 else b""
        return Record(None, b"%d/%d/%d" % (self._partition, number, n) + bad, (), 1)


def check(publisher, log):
    offsets = []
    for batch in publisher.told:
        has_failed = False
        for value, outcome in batch:
            assert log.count(value) <= 1, f"{value} is stored twice"
            match outcome:
                case Stored(offset):
                    assert log[offset] == value
                    assert not has_failed, f"{value} was stored after an earlier one had failed"
                    offsets.append(offset)
                case RefusedRecord():
                    assert value.endswith(b"bad")
                    assert value not in log
                case UnavailableRecord():
                    assert value not in log
                    has_failed = True
                case UnknownRecord():
                    has_failed = True
    assert offsets == sorted(offsets)
    return len(offsets)


@pytest.mark.parametrize("ack", [Ack.LEADER, Ack.ALL])
@pytest.mark.parametrize("seed", seeds(25))
def test_outcomes_are_true_whatever_a_broker_does(ack, seed, jumping_loop, run_as_guest_of):
    rng = random.Random(seed)
    kafka = Kafka(rng, trouble=rng.choice([0.0, 0.05, 0.2, 0.5]))
    loop = jumping_loop()

    async def main():
        producers = Producers(ScriptedBrokers(kafka), loop, rng)
        await guest.call(producers.open)
        publishers = [Publisher(producers, rng, n, ack) for n in range(PARTITIONS)]
        async with trio.open_nursery() as nursery:
            for publisher in publishers:
                nursery.start_soon(publisher.run, 30)
        await guest.call(producers.close)
        # What is on its way is stored by then.
        await trio.sleep(5)
        assert len(asyncio.all_tasks()) == 1, "a task was left behind"
        return publishers

    publishers = run_as_guest_of(loop, main)
    logs = [partition.log for partition in kafka.partitions]
    stored = [check(publisher, log) for publisher, log in zip(publishers, logs, strict=True)]
    assert min(stored) > 0
