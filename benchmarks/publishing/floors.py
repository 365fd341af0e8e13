"""Measures the logs' own clients and the disk in the same run, without HTTP: the floors."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import uvloop
from aiokafka import AIOKafkaProducer

from publishing.latencies import Latencies
from publishing.messages import TOPIC, Messages
from publishing.node import PARTITIONS

BATCH = 500
_SKIPPED = 20
"""The first records, not measured because they pay for connections and metadata."""


def one_at_a_time(operation: Callable[[], object], seconds: float) -> dict[str, Any]:
    """Rate and quantiles of a repeated operation."""
    latencies, begun_s = Latencies(), time.perf_counter()
    while (start_s := time.perf_counter()) < begun_s + seconds:
        operation()
        latencies.record(time.perf_counter() - start_s)
    took_s = time.perf_counter() - begun_s
    return {"messages_per_s": round(latencies.count / took_s), **latencies.summary()}


def disk(directory: Path, messages: Messages, seconds: float) -> list[dict[str, Any]]:
    """A message appended and fdatasync'd; a SQLite commit of 1 row, and of 500."""
    body = messages.bodies[0]
    with (directory / "floor").open("ab", buffering=0) as file:

        def append() -> None:
            file.write(body)
            os.fdatasync(file.fileno())

        synced = one_at_a_time(append, seconds)
    with closing(sqlite3.connect(directory / "floor.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE record (offset INTEGER PRIMARY KEY, value BLOB)")

        def commit(rows: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO record (value) VALUES (?)", [(body,) for _ in range(rows)]
            )
            connection.execute("COMMIT")

        single = one_at_a_time(lambda: commit(1), seconds)
        many = one_at_a_time(lambda: commit(BATCH), seconds)
    return [
        {"floor": "fdatasync of each message", "one_in_flight": synced, "batched_per_s": None},
        {
            "floor": "SQLite, synchronous FULL",
            "one_in_flight": single,
            "batched_per_s": many["messages_per_s"] * BATCH,
        },
    ]


def kafka(servers: str, messages: Messages, seconds: float) -> list[dict[str, Any]]:
    """Measure aiokafka and librdkafka, acks=1, with one record in flight and with many."""
    body = messages.bodies[0]
    return [
        {"floor": "aiokafka", **uvloop.run(_aiokafka(servers, body, seconds))},
        {"floor": "librdkafka", **_librdkafka(servers, body, seconds)},
    ]


async def _aiokafka(servers: str, value: bytes, seconds: float) -> dict[str, Any]:
    """Measure one record in flight, then batches to every partition, one in flight for each."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks=1, max_batch_size=1_000_000)
    await producer.start()
    try:
        for _ in range(_SKIPPED):
            await producer.send_and_wait(TOPIC, value, partition=0)
        latencies, begun_s = Latencies(), time.perf_counter()
        while (start_s := time.perf_counter()) < begun_s + seconds:
            await producer.send_and_wait(TOPIC, value, partition=0)
            latencies.record(time.perf_counter() - start_s)
        one = {"messages_per_s": round(latencies.count / (time.perf_counter() - begun_s))}
        sent, begun_s = 0, time.perf_counter()

        async def flood(partition: int) -> None:
            nonlocal sent
            while time.perf_counter() < begun_s + seconds:
                batch = producer.create_batch()
                while (
                    batch.record_count() < BATCH
                    and batch.append(key=None, value=value, timestamp=None) is not None
                ):
                    pass
                count = batch.record_count()
                await (await producer.send_batch(batch, TOPIC, partition=partition))
                sent += count

        await asyncio.gather(*(flood(partition) for partition in range(PARTITIONS)))
        batched = round(sent / (time.perf_counter() - begun_s))
        return {"one_in_flight": {**one, **latencies.summary()}, "batched_per_s": batched}
    finally:
        await producer.stop()


def _librdkafka(servers: str, value: bytes, seconds: float) -> dict[str, Any]:
    """As `_aiokafka`, with librdkafka."""
    settings = {"bootstrap.servers": servers, "acks": 1, "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)

    def produce() -> None:
        producer.produce(TOPIC, value, partition=0)
        producer.flush()

    for _ in range(_SKIPPED):
        produce()
    one = one_at_a_time(produce, seconds)
    sent, begun_s = 0, time.perf_counter()
    while time.perf_counter() < begun_s + seconds:
        try:
            producer.produce(TOPIC, value, partition=sent % PARTITIONS)
            sent += 1
        except BufferError:
            producer.poll(0.01)
        if sent % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    batched = round(sent / (time.perf_counter() - begun_s))
    return {"one_in_flight": one, "batched_per_s": batched}
