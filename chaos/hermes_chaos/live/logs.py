"""A real Kafka as the product's log, for synchronous tests."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import trio

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import EARLIEST, LATEST, Log
from hermes_actors.log.kafka.log import KafkaLog, open_kafka_log
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock

T = TypeVar("T")

_POLL_S = 0.02
_BYTES_MAX = 4_194_304

RETENTION_RESTS = {
    "log.initial.task.delay.ms": "86400000",
    "log.retention.check.interval.ms": "86400000",
}
"""Tests write old records and move the log's start themselves, so retention must not run."""


def on_kafka(
    main: Callable[..., Awaitable[T]],
    *bootstrap_servers: Sequence[str],
    within_s: float = 90.0,
    **settings: Any,
) -> T:
    """Run `main` as a guest, with one log for each cluster (dc1, dc2…), and return its result.

    `settings` are fields of KafkaConfig. Raises trio.TooSlowError after `within_s`.
    """

    async def opened() -> T:
        async with AsyncExitStack() as stack:
            logs: list[KafkaLog] = []
            for number, servers in enumerate(bootstrap_servers, start=1):
                cluster = KafkaClusterConfig(bootstrap_servers=list(servers))
                log = open_kafka_log(f"dc{number}", cluster, KafkaConfig(**settings), SystemClock())
                logs.append(await stack.enter_async_context(log))
            with trio.fail_after(within_s):
                return await main(*logs)

    return guest.run(opened)


async def read_all(log: Log, topic: str, partition: int = 0) -> list[StoredRecord]:
    """All current records of a partition. Raises what reading raises."""
    start = (await log.positions(topic, EARLIEST))[partition]
    end = (await log.positions(topic, LATEST))[partition]
    records: list[StoredRecord] = []
    async with log.reader(topic, {partition: start}) as reader:
        while (records[-1].offset + 1 if records else start) < end:
            records += await reader.next_batch(10_000, _BYTES_MAX)
    return records


async def until(condition: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Wait until the condition holds. The caller bounds the time."""
    while True:
        found = condition()
        if not isinstance(found, bool):
            found = await found
        if found:
            return
        await trio.sleep(_POLL_S)
