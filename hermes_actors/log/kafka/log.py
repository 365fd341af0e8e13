"""One datacentre's Kafka as a Log. Its methods are for trio; the clients run on the host loop.

Nothing hangs while Kafka is down: the log opens at once, appends return UnavailableRecord, and
every other method raises LogUnavailable within the request timeout. Everything works again once
Kafka is up, even if its name resolves to another address by then.
"""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import Commit, Edge, Outcome, Reader, TopicSettings
from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.groups import GroupOffsets
from hermes_actors.log.kafka.positions import Positions
from hermes_actors.log.kafka.producers import Producers, ProducerStatistics
from hermes_actors.log.kafka.reader import open_reader
from hermes_actors.log.kafka.topics import TopicAdmin
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import Clock, system_rng


@asynccontextmanager
async def open_kafka_log(
    dc: str, cluster: KafkaClusterConfig, settings: KafkaConfig, clock: Clock
) -> AsyncIterator["KafkaLog"]:
    """Open the log in `dc`'s Kafka. In trio, as the guest of an asyncio host.

    Opens at once, even if Kafka is down. Raises StartupError for an invalid configuration: no
    address, or a certificate or password file that cannot be read.
    """
    connection = KafkaCluster(dc, cluster, settings)
    rng = system_rng()
    brokers = Brokers(connection, random.Random(rng.random()))  # noqa: S311 -- jitter
    producers = Producers(brokers, clock, random.Random(rng.random()))  # noqa: S311 -- jitter
    positions = Positions(brokers)
    topics = TopicAdmin(brokers, positions)
    try:
        await guest.call(producers.open)
        yield KafkaLog(connection, producers, brokers, positions, topics)
    finally:
        with trio.CancelScope(shield=True):
            for part in (producers, brokers, connection):
                await guest.call(part.close)


class KafkaLog:
    """Implements hermes_actors.log.base.Log. Made by `open_kafka_log`."""

    def __init__(
        self,
        connection: KafkaCluster,
        producers: Producers,
        brokers: Brokers,
        positions: Positions,
        topics: TopicAdmin,
    ) -> None:
        self._connection = connection
        self._producers = producers
        self._brokers = brokers
        self._positions = positions
        self.topics = KafkaTopics(topics, producers)
        self._groups = GroupOffsets(brokers)

    @property
    def dc(self) -> str:
        """The datacentre whose log this is."""
        return self._connection.dc

    def statistics(self) -> ProducerStatistics:
        """Return the log's counters and whether it is connected, for metrics and readiness."""
        return self._producers.statistics()

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`."""
        return await self._producers.append(topic, partition, batch, ack)

    def reader(
        self, topic: str, positions: Mapping[int, int]
    ) -> AbstractAsyncContextManager[Reader]:
        """As `Log.reader`."""
        return open_reader(self._brokers, self._positions, topic, positions)

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        """As `Log.positions`."""
        return await guest.call(self._positions.find, topic, at)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """As `Log.bounds`."""
        return await guest.call(self._positions.bounds, topic, partition)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """As `Log.commit`, but a failure may leave some partitions stored; the error says which."""
        await guest.call(self._groups.commit, group, topic, commits)

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """As `Log.committed`."""
        return await guest.call(self._groups.committed, group, topic)


class KafkaTopics:
    """Satisfies `LogTopics`."""

    def __init__(self, admin: TopicAdmin, producers: Producers) -> None:
        self._admin = admin
        self._producers = producers

    async def create(self, topic: str, settings: TopicSettings) -> bool:
        """As `LogTopics.create`."""
        return await guest.call(self._admin.create, topic, settings)

    async def alter(self, topic: str, settings: TopicSettings) -> None:
        """As `LogTopics.alter`."""
        await guest.call(self._admin.alter, topic, settings)

    async def delete(self, topic: str) -> bool:
        """As `LogTopics.delete`."""
        try:
            return await guest.call(self._admin.delete, topic)
        finally:
            self._producers.forget(topic)

    async def describe(self, topic: str) -> TopicSettings | None:
        """As `LogTopics.describe`."""
        return await guest.call(self._admin.describe, topic)

    async def names(self) -> list[str]:
        """As `LogTopics.names`."""
        return await guest.call(self._admin.names)

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """As `LogTopics.partitions`."""
        return await guest.call(self._admin.partitions, topics)
