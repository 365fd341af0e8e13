from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from os import getpid
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import Log
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock
from tests.contract.namespaced import NamespacedLog
from tests.hand_clock import HandClock


class LogUnderTest:
    """One kind of log, which can be closed and reopened with its records. The test sets its clock,
    and `expire` does what its retention would do now.

    Kafka's timestamps come from the broker's clock, whatever `clock` says.
    """

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.clock = HandClock()
        self._directory = directory
        self._memory = MemoryLog("dc1", self.clock)

    def now_ms(self) -> int:
        """The time by the log's own clock."""
        return self.clock.now_ms()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Log]:
        if self.kind == "memory":
            yield self._memory
        else:
            from hermes_actors.log.embedded.log import open_embedded_log

            async with open_embedded_log(self._directory, "dc1", self.clock) as log:
                yield log

    async def expire(self, log: Any) -> None:
        done: Awaitable[None] | None = log.expire(self.clock.now_ms())
        if done is not None:
            await done


_namespaces = count()


class KafkaUnderTest:
    """A namespace on a real broker. Needs guest mode."""

    kind = "kafka"

    def __init__(self, bootstrap_servers: Sequence[str]) -> None:
        self.clock = HandClock()
        self._bootstrap_servers = list(bootstrap_servers)
        self._prefix = f"contract-{getpid()}-{next(_namespaces)}-"

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Log]:
        from hermes_actors.log.kafka.log import open_kafka_log

        cluster = KafkaClusterConfig(self._bootstrap_servers)
        # A loaded machine is slow; no test waits for these time-outs.
        settings = KafkaConfig(request_timeout_ms=30_000, append_timeout_ms=30_000)
        async with open_kafka_log("dc1", cluster, settings, SystemClock()) as log:
            yield NamespacedLog(log, self._prefix)

    async def expire(self, log: NamespacedLog) -> None:
        """Kafka's retention removes whole segments, at some time. This moves the log's start by
        deleting records, to where retention by the test's clock would put it.
        """
        starts = {}
        for topic in await log.topics.names():
            settings = await log.topics.describe(topic)
            if settings is not None and settings.retention_ms is not None:
                oldest_ms = self.clock.now_ms() - settings.retention_ms
                for partition, offset in (await log.positions(topic, oldest_ms)).items():
                    place = TopicPartition(log.full(topic), partition)
                    starts[place] = RecordsToDelete(before_offset=offset)
        await guest.call(self._delete_records, starts)

    async def _delete_records(self, starts: dict[TopicPartition, RecordsToDelete]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        await admin.start()
        try:
            await admin.delete_records(starts)
        finally:
            await admin.close()


KINDS = ["memory", "embedded", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=KINDS)
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> LogUnderTest | KafkaUnderTest:
    if request.param == "kafka":
        return KafkaUnderTest(request.getfixturevalue("kafka_cluster").bootstrap_servers)
    return LogUnderTest(request.param, tmp_path / "log")


@pytest.fixture(params=["memory", "embedded"])
def under_settable_clock(request: pytest.FixtureRequest, tmp_path: Path) -> LogUnderTest:
    """Logs with timestamps from the test's clock; a broker's clock cannot be set."""
    return LogUnderTest(request.param, tmp_path / "log")


@pytest.fixture(scope="session")
def make_log_under_test() -> Callable[[str, Path], LogUnderTest]:
    return LogUnderTest


@pytest.fixture(scope="session")
def make_kafka_under_test(request: pytest.FixtureRequest) -> Callable[[], KafkaUnderTest]:
    servers = request.getfixturevalue("kafka_cluster").bootstrap_servers
    return lambda: KafkaUnderTest(servers)


@pytest.fixture
def record() -> Callable[..., Record]:
    def make(
        value: bytes,
        timestamp_ms: int = 1_000,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> Record:
        return Record(key, value, headers, timestamp_ms)

    return make


@pytest.fixture
def write() -> Callable[..., Awaitable[list[int]]]:
    """Append records with these values and return their offsets; each must be stored."""

    async def append(
        log: Log, topic: str, values: list[bytes], partition: int = 0, timestamp_ms: int = 1_000
    ) -> list[int]:
        batch = [Record(None, value, (), timestamp_ms) for value in values]
        outcomes = await log.append(topic, partition, batch, Ack.ALL)
        return [outcome.offset for outcome in outcomes]  # type: ignore[union-attr]

    return append
