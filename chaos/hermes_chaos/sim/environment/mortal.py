"""A log as one node reaches it: when the node is killed, nothing more of it gets through.

Cancelling a node lets its `finally` blocks run, which a killed process does not do; behind this,
what they try has no effect.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from hermes_actors.coordination.commands import COORDINATION_TOPIC, Join, decode
from hermes_actors.log.base import (
    Commit,
    Log,
    LogUnavailable,
    Outcome,
    Reader,
    Stored,
    TopicSettings,
    UnavailableRecord,
)
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.coordination_way import CoordinationWay, LateReader
from hermes_chaos.sim.history.events import Committing, Handed, History, Named, Told


class MortalLog:
    """Satisfies `Log`: the cluster's log until `die`, unreachable ever after."""

    def __init__(
        self,
        log: Log,
        life: str,
        topics: Mapping[str, str],
        history: History,
        way: CoordinationWay,
    ) -> None:
        """`life` reaches it; of the log's `topics` what it is handed, and what it says, is told.
        Coordination goes another `way`.
        """
        self._way = way
        self._log = log
        self._life = life
        self._topics = topics
        self._history = history
        self._is_dead = False

    def die(self) -> None:
        """The node behind this is gone."""
        self._is_dead = True

    @property
    def dc(self) -> str:
        """The datacentre whose log this is."""
        return self._log.dc

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`."""
        if self._is_dead:
            return [UnavailableRecord("the node is dead") for _ in batch]
        if topic == COORDINATION_TOPIC:
            self._tell_names(batch)
            return await self._way.append(self._log, topic, partition, batch, ack)
        name = self._topics.get(topic)
        if name is None:
            return await self._log.append(topic, partition, batch, ack)
        headers = [dict(record.headers) for record in batch]
        ids = tuple(each.get("id", b"").decode() for each in headers)
        vias = tuple(each.get("via", b"").decode() for each in headers)
        told = self._history.tell
        told(Handed(self._life, self.dc, name, ids, vias, trio.current_time()))
        outcomes = await self._log.append(topic, partition, batch, ack)
        stored = (
            message_id
            for message_id, outcome in zip(ids, outcomes, strict=True)
            if isinstance(outcome, Stored)
        )
        told(Told(self._life, self.dc, name, tuple(stored), trio.current_time(), ids))
        return outcomes

    @asynccontextmanager
    async def reader(self, topic: str, positions: Mapping[int, int]) -> AsyncIterator[Reader]:
        """As `Log.reader`."""
        async with self._living().reader(topic, positions) as reader:
            yield LateReader(reader, self._way) if topic == COORDINATION_TOPIC else reader

    async def start_positions(self, topic: str) -> dict[int, int]:
        """As `Log.start_positions`."""
        return await self._living().start_positions(topic)

    async def end_positions(self, topic: str) -> dict[int, int]:
        """As `Log.end_positions`."""
        if topic == COORDINATION_TOPIC:
            await self._way.gate()
        return await self._living().end_positions(topic)

    async def position_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """As `Log.position_at`."""
        return await self._living().position_at(topic, timestamp_ms)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """As `Log.commit`."""
        log = self._living()
        self._history.tell(Committing(self._life, self.dc, group, commits, trio.current_time()))
        await log.commit(group, topic, commits)

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """As `Log.committed`."""
        return await self._living().committed(group, topic)

    async def create_topic(self, topic: str, settings: TopicSettings) -> bool:
        """As `Log.create_topic`."""
        return await self._living().create_topic(topic, settings)

    async def alter_topic(self, topic: str, settings: TopicSettings) -> None:
        """As `Log.alter_topic`."""
        await self._living().alter_topic(topic, settings)

    async def delete_topic(self, topic: str) -> bool:
        """As `Log.delete_topic`."""
        return await self._living().delete_topic(topic)

    async def describe_topic(self, topic: str) -> TopicSettings | None:
        """As `Log.describe_topic`."""
        return await self._living().describe_topic(topic)

    async def topics(self) -> list[str]:
        """As `Log.topics`."""
        return await self._living().topics()

    def _tell_names(self, batch: Sequence[Record]) -> None:
        for record in batch:
            said = decode(record.value)
            if isinstance(said, Join):
                self._history.tell(Named(self._life, said.boot))

    def _living(self) -> Log:
        if self._is_dead:
            raise LogUnavailable("the node is dead")
        return self._log
