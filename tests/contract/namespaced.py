"""A log that shows a test only its own topics and groups, under plain names."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from hermes_actors.log.base import (
    Commit,
    Edge,
    Log,
    LogTopics,
    OffsetOutOfRange,
    Outcome,
    Reader,
    TopicSettings,
)
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack


class NamespacedLog:
    """Satisfies `Log`; puts `prefix` before each name, so that tests can share a broker."""

    def __init__(self, log: Log, prefix: str) -> None:
        self.log = log
        self.topics = NamespacedTopics(log.topics, prefix)
        self._prefix = prefix

    def full(self, name: str) -> str:
        return self._prefix + name

    @property
    def dc(self) -> str:
        return self.log.dc

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> list[Outcome]:
        return await self.log.append(self.full(topic), partition, batch, ack)

    @asynccontextmanager
    async def reader(self, topic: str, positions: Mapping[int, int]) -> AsyncIterator[Reader]:
        async with self.log.reader(self.full(topic), positions) as reader:
            yield NamespacedReader(reader, self.dc, topic)

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        return await self.log.positions(self.full(topic), at)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return await self.log.bounds(self.full(topic), partition)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        await self.log.commit(self.full(group), self.full(topic), commits)

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        return await self.log.committed(self.full(group), self.full(topic))


class NamespacedTopics:
    def __init__(self, topics: LogTopics, prefix: str) -> None:
        self._topics = topics
        self._prefix = prefix

    async def create(self, topic: str, settings: TopicSettings) -> bool:
        return await self._topics.create(self._prefix + topic, settings)

    async def alter(self, topic: str, settings: TopicSettings) -> None:
        await self._topics.alter(self._prefix + topic, settings)

    async def delete(self, topic: str) -> bool:
        return await self._topics.delete(self._prefix + topic)

    async def describe(self, topic: str) -> TopicSettings | None:
        return await self._topics.describe(self._prefix + topic)

    async def names(self) -> list[str]:
        names = await self._topics.names()
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        found = await self._topics.partitions([self._prefix + topic for topic in topics])
        return {name.removeprefix(self._prefix): count for name, count in found.items()}


class NamespacedReader:
    def __init__(self, reader: Reader, dc: str, topic: str) -> None:
        self._reader = reader
        self._dc = dc
        self._topic = topic

    @property
    def doubtful(self) -> Collection[int]:
        return self._reader.doubtful

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        try:
            batch = await self._reader.next_batch(records_max, bytes_max)
        except OffsetOutOfRange as error:
            raise OffsetOutOfRange(
                self._topic, error.partition, error.position, error.start, error.end
            ) from error
        return [replace(each, origin=f"{self._dc}:{self._topic}") for each in batch]

    def position(self, partition: int) -> int:
        return self._reader.position(partition)

    def seek(self, partition: int, position: int) -> None:
        self._reader.seek(partition, position)
