"""An in-memory log for simulations and tests: pure trio, deterministic, with controllable faults.

Several simulated nodes share one MemoryLog as they would share a cluster. Without faults, appends
are done in the order of the calls and without waiting.
"""

import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from hermes_actors.log.base import (
    Commit,
    Edge,
    LogUnavailable,
    Outcome,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
    UnknownTopic,
    check_alteration,
    check_commits,
    check_settings,
    no_such_partition,
    too_large,
)
from hermes_actors.log.cursor import Cursor, Room
from hermes_actors.log.faults import Faults
from hermes_actors.log.memory_state import MemoryPartition, MemoryTopic, StuckAppend
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock

_REQUESTS_MAX = 10_000
"""Maximum number of requests that wait for one partition of a slow broker; further appends are
Unavailable.
"""


class MemoryLog:
    """One datacentre's log in memory; implements `Log`.

    `append_timeout_s` limits an append that a fault holds: its records are then Unknown.
    `on_append`, `on_commit`, `on_expire` and `on_drop` are lists of callbacks for checkers: each
    record when it is stored, each commit, each new start of a partition (retention), and each new
    end (a leader change dropped the records above).
    """

    def __init__(
        self,
        dc: str,
        clock: Clock,
        *,
        faults: Faults | None = None,
        append_timeout_s: float = 5.0,
    ) -> None:
        self.dc = dc
        self._clock = clock
        self._append_timeout_s = append_timeout_s
        self.faults = Faults(random.Random(0)) if faults is None else faults  # noqa: S311
        self.topics = MemoryTopics(dc, self.faults)
        self.faults.on_heal.append(self._replicate)
        self.on_append: list[Callable[[str, StoredRecord], None]] = []
        self.on_commit: list[Callable[[str, str, int, Commit], None]] = []
        self.on_expire: list[Callable[[str, int, int], None]] = []
        self.on_drop: list[Callable[[str, int, int], None]] = []

    # Appending.

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> list[Outcome]:
        """As `Log.append`. If it is cancelled before the call, nothing is stored."""
        await trio.lowlevel.checkpoint_if_cancelled()
        known = self.topics.by_name.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            outcomes = self._store(topic, partition, batch)
        elif known.partitions[partition].requests or self.faults.hold_appends:
            return await self._append_held(
                topic, partition, known.partitions[partition], batch, ack
            )
        else:
            outcomes = self._store(topic, partition, batch)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return outcomes

    async def _append_held(
        self, topic: str, number: int, partition: MemoryPartition, batch: Sequence[Record], ack: Ack
    ) -> list[Outcome]:
        """Queue the append at a broker that may be slow, and wait for its answer."""
        if len(partition.requests) >= _REQUESTS_MAX:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return [UnavailableRecord("too many requests wait for the broker") for _ in batch]
        request = StuckAppend(topic, number, tuple(batch), ack)
        partition.requests.append(request)
        if len(partition.requests) == 1:
            # A system task, because a broker continues with a request whose sender has given up.
            trio.lowlevel.spawn_system_task(self._serve, partition)
        try:
            with trio.move_on_after(self._append_timeout_s):
                await request.is_answered.wait()
        finally:
            request.is_abandoned = True
        if request.is_answered.is_set():
            return request.outcomes
        return [UnknownRecord(f"no answer within {self._append_timeout_s:g} s") for _ in batch]

    async def _serve(self, partition: MemoryPartition) -> None:
        """Process one partition's held appends as its broker: in order, and perhaps late."""
        faults = self.faults
        while partition.requests:
            request = partition.requests[0]
            if faults.delay_s is not None:
                await trio.sleep(faults.draw_between(faults.delay_s))
            while faults.silent:
                await faults.healed()
            if faults.late_store or not request.is_abandoned:
                request.outcomes = self._store(request.topic, request.partition, request.batch)
                if request.ack.waits_for_replicas and faults.replication_stopped:
                    partition.unreplicated.append(request)
                else:
                    request.is_answered.set()
            # Remove it only now: a later append must not overtake it.
            partition.requests.popleft()

    def _store(self, topic: str, partition: int, batch: Sequence[Record]) -> list[Outcome]:
        faults = self.faults
        if faults.draw(faults.unavailable_rate):
            return [UnavailableRecord(f"the log of {self.dc} has no leader") for _ in batch]
        known = self.topics.by_name.get(topic)
        if known is None:
            return [RefusedRecord(f"there is no topic {topic}") for _ in batch]
        count = len(known.partitions)
        if not 0 <= partition < count:
            return [RefusedRecord(no_such_partition(topic, partition, count)) for _ in batch]
        torn_at = len(batch)
        if torn_at > 1 and faults.draw(faults.partial_rate):
            torn_at = faults.draw_prefix(torn_at)
        record_bytes_max = known.settings.record_bytes_max
        outcomes: list[Outcome] = []
        for number, record in enumerate(batch):
            if number >= torn_at:
                outcomes.append(UnavailableRecord("the broker left in the middle of the batch"))
            elif record.size_bytes > record_bytes_max:
                outcomes.append(too_large(record, record_bytes_max))
            else:
                outcomes.append(Stored(self._store_one(topic, known, partition, record)))
        if not faults.replication_stopped:
            known.partitions[partition].replicate()
            known.readers.unpark_all()
        if faults.draw(faults.acknowledgement_lost_rate):
            return [
                UnknownRecord("the connection broke before the acknowledgement")
                if isinstance(outcome, Stored)
                else outcome
                for outcome in outcomes
            ]
        return outcomes

    def _store_one(self, topic: str, known: MemoryTopic, number: int, record: Record) -> int:
        partition = known.partitions[number]
        timestamp_ms = record.timestamp_ms
        if known.settings.log_append_time:
            clock = self._clock
            timestamp_ms = partition.append_time.stamp_ms(
                partition.high_ms, clock.now_ms(), clock.monotonic_s()
            )
        partition.high_ms = max(partition.high_ms, timestamp_ms)
        stored = StoredRecord(
            number,
            partition.end,
            timestamp_ms,
            record.key,
            record.value,
            record.headers,
            f"{self.dc}:{topic}",
        )
        partition.records.append(stored)
        for callback in self.on_append:
            callback(topic, stored)
        return stored.offset

    # Events.

    def expire(self, now_ms: int) -> None:
        """Retention: remove each partition's oldest records, up to the first that is young enough.
        Offsets are never reused. Seen by
        `tests/live/test_kafka_faults.py::test_retention_that_passes_a_position_is_out_of_range_until_the_reader_seeks`.
        """
        for name, topic in self.topics.by_name.items():
            retention_ms = topic.settings.retention_ms
            if retention_ms is None:
                continue
            for number, partition in enumerate(topic.partitions):
                start = partition.position(now_ms - retention_ms)
                if start == partition.start:
                    continue
                del partition.records[: start - partition.start]
                partition.start = start
                for callback in self.on_expire:
                    callback(name, number, start)
            topic.readers.unpark_all()

    def change_leader(self, topic: str | None = None) -> None:
        """Make a follower the leader (for one topic or all); records that it had not copied are
        lost.

        Only records appended while `faults.replication_stopped` are lost, including those
        acknowledged at LEADER; their offsets are reused, as in Kafka. Seen by
        `tests/live/test_three_brokers.py::test_ack_leader_loses_what_the_followers_had_not_copied_when_the_leader_is_killed`.
        """
        for name in list(self.topics.by_name) if topic is None else [topic]:
            for number, partition in enumerate(self.topics.by_name[name].partitions):
                if partition.truncate():
                    for callback in self.on_drop:
                        callback(name, number, partition.end)

    def _replicate(self) -> None:
        for topic in self.topics.by_name.values():
            if not self.faults.replication_stopped:
                for partition in topic.partitions:
                    partition.replicate()
            topic.readers.unpark_all()

    # Reading.

    @asynccontextmanager
    async def reader(
        self, topic: str, positions: Mapping[int, int]
    ) -> AsyncIterator["_MemoryReader"]:
        """As `Log.reader`; only `next_batch` raises."""
        yield _MemoryReader(self, topic, positions)

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        """As `Log.positions`; records that are not replicated do not count, as in Kafka."""
        return {n: p.position(at) for n, p in enumerate((await self._look_up(topic)).partitions)}

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """As `Log.bounds`."""
        partitions = (await self._look_up(topic)).partitions
        if not 0 <= partition < len(partitions):
            raise UnknownTopic(no_such_partition(topic, partition, len(partitions)))
        return partitions[partition].start, partitions[partition].replicated

    async def _look_up(self, topic: str) -> MemoryTopic:
        await self.faults.reading(self.dc)
        return self.topics.known(topic)

    # Commits.

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """As `Log.commit`."""
        check_commits(commits)
        await self.faults.answering()
        if self.faults.commits_failing:
            raise LogUnavailable(f"the log of {self.dc} takes no commits")
        known = self.topics.known(topic)
        count = len(known.partitions)
        for partition in commits:
            if not 0 <= partition < count:
                raise UnknownTopic(no_such_partition(topic, partition, count))
        kept = known.commits.setdefault(group, {})
        for partition, commit in commits.items():
            last = kept.get(partition)
            kept[partition] = (commit, None if last is None else last[0])
            for callback in self.on_commit:
                callback(group, topic, partition, commit)

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """As `Log.committed`."""
        await self.faults.reading(self.dc)
        topic_there = self.topics.by_name.get(topic)
        kept = {} if topic_there is None else topic_there.commits.get(group, {})
        stale = self.faults.stale_commits
        found = {n: last_but_one if stale else last for n, (last, last_but_one) in kept.items()}
        return {n: commit for n, commit in sorted(found.items()) if commit is not None}


class MemoryTopics:
    """The topics of a memory log; implements `LogTopics`."""

    def __init__(self, dc: str, faults: Faults) -> None:
        self.by_name: dict[str, MemoryTopic] = {}
        self._dc = dc
        self._faults = faults

    def known(self, topic: str) -> MemoryTopic:
        """The topic's state. Raises UnknownTopic."""
        known = self.by_name.get(topic)
        if known is None:
            raise UnknownTopic(topic)
        return known

    async def create(self, topic: str, settings: TopicSettings) -> bool:
        """As `LogTopics.create`."""
        check_settings(settings)
        await self._change_gate()
        if topic in self.by_name:
            return False
        self.by_name[topic] = MemoryTopic(settings)
        return True

    async def alter(self, topic: str, settings: TopicSettings) -> None:
        """As `LogTopics.alter`."""
        await self._change_gate()
        known = self.known(topic)
        check_alteration(topic, known.settings, settings)
        known.settings = settings
        while len(known.partitions) < settings.partitions:
            known.partitions.append(MemoryPartition())
        known.readers.unpark_all()

    async def delete(self, topic: str) -> bool:
        """As `LogTopics.delete`."""
        await self._change_gate()
        known = self.by_name.pop(topic, None)
        if known is not None:
            known.readers.unpark_all()
        return known is not None

    async def describe(self, topic: str) -> TopicSettings | None:
        """As `LogTopics.describe`."""
        await self._faults.reading(self._dc)
        known = self.by_name.get(topic)
        return None if known is None else known.settings

    async def names(self) -> list[str]:
        """As `LogTopics.names`."""
        await self._faults.reading(self._dc)
        return sorted(self.by_name)

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """As `LogTopics.partitions`."""
        await self._faults.reading(self._dc)
        held = self.by_name
        return {topic: len(held[topic].partitions) for topic in topics if topic in held}

    async def _change_gate(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._faults.draw(self._faults.unavailable_rate):
            raise LogUnavailable(f"the log of {self._dc} has no leader")


class _MemoryReader:
    def __init__(self, log: MemoryLog, topic: str, positions: Mapping[int, int]) -> None:
        self._log = log
        self._topic = topic
        self._numbers = sorted(positions)
        self._cursor = Cursor(topic, positions)
        self._cuts = self._cuts_of_each()

    @property
    def doubtful(self) -> Collection[int]:
        before, now = self._cuts, self._cuts_of_each()
        return [number for number in now if now[number] > before.get(number, 0)]

    def _cuts_of_each(self) -> dict[int, int]:
        try:
            partitions = self._log.topics.known(self._topic).partitions
        except UnknownTopic:
            return {}
        return {
            number: partitions[number].cuts for number in self._numbers if number < len(partitions)
        }

    def position(self, partition: int) -> int:
        return self._cursor.position(partition)

    def seek(self, partition: int, position: int) -> None:
        self._cursor.seek(partition, position)

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        while True:
            await self._log.faults.reading(self._log.dc)
            known = self._log.topics.known(self._topic)
            batch = self._take(known, Room(records_max, bytes_max))
            if batch:
                self._cursor.advance(batch)
                return batch
            await known.readers.park()

    def _take(self, known: MemoryTopic, room: Room) -> list[StoredRecord]:
        partitions = known.partitions
        for number, _ in self._cursor.in_turn():
            if number >= len(partitions):
                raise UnknownTopic(no_such_partition(self._topic, number, len(partitions)))
            self._cursor.check(number, partitions[number].start, partitions[number].replicated)
        batch: list[StoredRecord] = []
        for number, position in self._cursor.in_turn():
            partition = partitions[number]
            for at in range(position - partition.start, partition.replicated - partition.start):
                record = partition.records[at]
                if not room.take(record.size_bytes):
                    return batch
                batch.append(record)
        return batch
