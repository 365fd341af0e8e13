"""A log as one node reaches it: when the node is killed, nothing more gets through.

Cancelling a node runs its `finally` blocks, which a killed process does not run. Behind this log
they have no effect.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from hermes_actors.coordination.commands import COORDINATION_TOPIC, Heartbeat, Join, decode
from hermes_actors.log.base import (
    LATEST,
    Commit,
    Edge,
    Log,
    LogTopics,
    LogUnavailable,
    Outcome,
    Reader,
    Stored,
    UnavailableRecord,
    UnknownTopic,
)
from hermes_actors.model.dead_letter import Letter, dlq_topic, read_entry
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.coordination_way import CoordinationWay, LateReader
from hermes_chaos.sim.history.events import (
    Committing,
    Handed,
    History,
    Lettering,
    Overtaken,
    Recalled,
    Told,
)
from hermes_chaos.sim.history.standing import Named, Renewed
from hermes_chaos.sim.workload.plans import GROUP

_LETTERS = dlq_topic(GROUP)
_KIND_BYTES = 24
_UNDER_WAY_S = 2.0
"""A commit older than this was answered or given up, so it cannot be in a socket."""


class MortalLog:
    """Satisfies `Log`: the cluster's log until `die`, unreachable from then on."""

    def __init__(
        self,
        log: Log,
        life: str,
        topics: Mapping[str, str],
        history: History,
        way: CoordinationWay,
    ) -> None:
        """The log as `life` reaches it. What it is handed of the log's `topics`, and what it
        answers, is reported. Coordination takes another `way`.
        """
        self._way = way
        self._log = log
        self._life = life
        self._topics = topics
        self._history = history
        self._is_dead = False
        # By boot and number: when each unread heartbeat was sent.
        self._beats: dict[tuple[str, int], float] = {}
        # For each commit that may be under way: when it began, its group, topic and content.
        self._commits: list[tuple[float, str, str, Mapping[int, Commit]]] = []

    def die(self, commits_after_s: float | None = None) -> None:
        """The node is gone. With a time, its last commits reach the log again then, as if they had
        been in a socket.
        """
        self._is_dead = True
        late: dict[tuple[str, str], dict[int, Commit]] = {}
        for _, group, topic, commits in self._under_way():
            late.setdefault((group, topic), {}).update(commits)
        if commits_after_s is not None and late:
            trio.lowlevel.spawn_system_task(self._commit_late, commits_after_s, late)

    async def _commit_late(
        self, after_s: float, late: Mapping[tuple[str, str], Mapping[int, Commit]]
    ) -> None:
        await trio.sleep(after_s)
        for (group, topic), commits in late.items():
            with suppress(LogUnavailable, UnknownTopic):
                await self._log.commit(group, topic, commits)
                for partition, commit in commits.items():
                    place = (self.dc, topic, partition)
                    self._history.tell(Overtaken(place, group, commit))

    def _under_way(self) -> list[tuple[float, str, str, Mapping[int, Commit]]]:
        since_s = trio.current_time() - _UNDER_WAY_S
        return [each for each in self._commits if each[0] >= since_s]

    @property
    def dc(self) -> str:
        """The datacentre whose log this is."""
        return self._log.dc

    @property
    def topics(self) -> LogTopics:
        """As `Log.topics`."""
        return self._living().topics

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`."""
        if self._is_dead:
            return [UnavailableRecord("the node is dead") for _ in batch]
        if topic == COORDINATION_TOPIC:
            self._hear_speak(batch)
            return await self._way.append(self._log, topic, partition, batch, ack)
        if topic == _LETTERS:
            self._tell_letters(batch)
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
            if topic == COORDINATION_TOPIC:
                yield LateReader(reader, self._way, self._hear_read)
            else:
                yield reader

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        """As `Log.positions`."""
        if topic == COORDINATION_TOPIC and at is LATEST:
            await self._way.gate()
        return await self._living().positions(topic, at)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """As `Log.bounds`."""
        return await self._living().bounds(topic, partition)

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """As `Log.commit`."""
        log = self._living()
        now_s = trio.current_time()
        self._history.tell(Committing(self._life, self.dc, group, commits, now_s))
        self._commits = [*self._under_way(), (now_s, group, topic, commits)]
        await log.commit(group, topic, commits)

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """As `Log.committed`."""
        commits = await self._living().committed(group, topic)
        self._history.tell(Recalled(self._life, self.dc, group, topic, commits))
        return commits

    def _hear_speak(self, batch: Sequence[Record]) -> None:
        for record in batch:
            said = decode(record.value)
            if isinstance(said, Join):
                self._history.tell(Named(self._life, said.boot))
            elif isinstance(said, Heartbeat):
                self._beats[said.boot, said.number] = trio.current_time()

    def _hear_read(self, batch: Sequence[StoredRecord]) -> None:
        for record in batch:
            if b'"heartbeat"' not in record.value[:_KIND_BYTES]:
                continue
            said = decode(record.value)
            if isinstance(said, Heartbeat):
                sent_s = self._beats.pop((said.boot, said.number), None)
                if sent_s is not None:
                    self._history.tell(Renewed(self._life, sent_s, trio.current_time()))

    def _tell_letters(self, batch: Sequence[Record]) -> None:
        for number, record in enumerate(batch):
            stored = StoredRecord(
                0, number, record.timestamp_ms, record.key, record.value, record.headers
            )
            entry = read_entry(stored)
            if isinstance(entry, Letter):
                now_s = trio.current_time()
                self._history.tell(Lettering(self._life, self.dc, entry, now_s))

    def _living(self) -> Log:
        if self._is_dead:
            raise LogUnavailable("the node is dead")
        return self._log
