"""A log in one SQLite file: acknowledged records are durable; one process writes, any number reads.

It replaces Kafka on a laptop and in small installations. A writer thread commits all waiting
changes as one transaction; readers at the tail are served from memory, others by reading threads.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from hermes_actors.log.base import (
    EARLIEST,
    Commit,
    Edge,
    LogUnavailable,
    Outcome,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
    UnknownTopic,
    check_commits,
    check_settings,
    no_such_partition,
)
from hermes_actors.log.cursor import Cursor, Room
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import (
    FILE_ERRORS,
    CorruptLog,
    open_read_only,
    read_batch,
    read_commits,
    read_position_at,
)
from hermes_actors.log.embedded.store import Appended, Moved, Store
from hermes_actors.log.embedded.view import Run, TopicView, View
from hermes_actors.log.embedded.writer import EmbeddedLimits, Job, Writer, WriterStatistics
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.run import RecordRun
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.guest import end_of_turn, threads_caller

T = TypeVar("T")


_RECORD_OVERHEAD_BYTES = 256
"""Approximate memory of a waiting or cached record besides its value."""


@asynccontextmanager
async def open_embedded_log(
    directory: Path | str,
    dc: str,
    clock: Clock,
    *,
    retention_check_interval_ms: int = 60_000,
    limits: EmbeddedLimits = EmbeddedLimits(),  # noqa: B008 -- frozen
    accepts_damage: bool = False,
) -> AsyncIterator["EmbeddedLog"]:
    """Open the log in `directory`, which is created if it does not exist.

    `clock` is also used in the writer's thread. At the end of the block queued changes are finished
    first. Raises StartupError if the directory cannot be written or another process has the log
    open, and DamageFound if acknowledged messages are missing; with `accepts_damage` it continues
    without them.
    """
    opening = partial(open_store, Path(directory), accepts_damage=accepts_damage)
    store = await trio.to_thread.run_sync(opening)
    log = EmbeddedLog(store, dc, clock, retention_check_interval_ms, limits)
    try:
        yield log
    finally:
        with trio.CancelScope(shield=True):
            await log.close()


class EmbeddedLog:
    """One datacentre's log in one file; implements `Log`. Open it with `open_embedded_log`."""

    def __init__(
        self,
        store: Store,
        dc: str,
        clock: Clock,
        retention_check_interval_ms: int,
        limits: EmbeddedLimits,
    ) -> None:
        self.dc = dc
        """The datacentre of this log."""
        self._path = store.path
        self.accepted_missing = store.accepted_missing
        self._limits = limits
        self._view = View(store.topics.values(), limits.tail_bytes_max)
        self.topics = EmbeddedTopics(self, self._view)
        self._clock = clock
        self._jobs: dict[Job[Any], None] = {}
        self._queued_bytes = 0
        self._is_closed = False
        self._ended = trio.Event()
        self._at_end_of_turn = end_of_turn()
        self._threads = trio.CapacityLimiter(limits.reading_threads)
        self._connections: list[sqlite3.Connection] = []
        self._writer = Writer(
            store,
            clock,
            threads_caller(),
            limits,
            retention_check_interval_ms,
            on_commit=self._committed,
            on_expire=self._view.moved,
            on_end=self._writer_ended,
        )
        self._writer.start()

    @property
    def trouble(self) -> str:
        """Why nothing can be stored until the node is restarted; empty string if it can."""
        return self._writer.trouble

    @property
    def refusal(self) -> str:
        """Why the last transaction failed (for example a full disk); empty string if it did not."""
        return self._writer.trouble or self._writer.refusal

    async def close(self) -> None:
        """Finish queued changes, then close the file; waiting readers raise LogUnavailable."""
        self._is_closed = True
        self._view.wake_all()
        # Before the writer's connection: the last one to close merges the write-ahead log into the
        # file.
        self._close_connections()
        self._at_end_of_turn(partial(self._writer.queue.put, None))
        await self._ended.wait()

    def statistics(self) -> WriterStatistics:
        """Return the counts of commits, records and bytes since the log was opened."""
        return self._writer.statistics

    # Appending.

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`; at every ack level the records are on the disk."""
        await trio.lowlevel.checkpoint_if_cancelled()
        size_bytes = sum(_value_lengths(batch)) + _RECORD_OVERHEAD_BYTES * len(batch)
        reason = None
        if self._is_closed:
            reason = f"{self._path}: the log is closed"
        elif self._queued_bytes + size_bytes > self._limits.queued_bytes_max and self._jobs:
            reason = f"{self._path}: {self._queued_bytes} bytes wait to be written"
        if reason is not None or not batch:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return [UnavailableRecord(reason or "") for _ in batch]
        clock = self._clock

        def change(store: Store) -> Appended:
            return store.append(topic, partition, batch, clock.now_ms(), clock.monotonic_s())

        def show(appended: Appended) -> None:
            _outcomes, stored, first, stamp_ms = appended
            if stored:
                self._view.appended(topic, partition, Run(first, stored, stamp_ms, size_bytes))

        job = Job(change, show, _stored, records=len(batch), size_bytes=size_bytes)
        self._put(job)
        with trio.move_on_after(self._limits.append_timeout_s):
            await job.is_done.wait()
        if not job.is_done.is_set():
            timeout_s = self._limits.append_timeout_s
            return [UnknownRecord(f"{self._path}: no answer within {timeout_s:g} s") for _ in batch]
        if job.error is None:
            return job.result[0]
        outcome = UnknownRecord if job.may_be_stored else UnavailableRecord
        return [outcome(str(job.error)) for _ in batch]

    def _put(self, job: Job[Any]) -> None:
        self._queued_bytes += job.size_bytes
        self._jobs[job] = None
        self._at_end_of_turn(partial(self._writer.queue.put, job))

    def _committed(self, jobs: list[Job[Any]]) -> None:
        """Handle the end of a transaction, successful or not: apply its changes to the view, and
        answer its callers.
        """
        for job in jobs:
            # The writer's own jobs, for retention, are not in it.
            self._jobs.pop(job, None)
            self._queued_bytes -= job.size_bytes
            job.end()

    def _writer_ended(self) -> None:
        """The writer's thread has ended or died: fail all open calls, and wake the readers."""
        self._is_closed = True
        for job in self._jobs:
            job.fail(f"{self._path}: the log's writer has ended", may_be_stored=True)
            job.is_done.set()
        self._jobs.clear()
        self._view.wake_all()
        self._ended.set()

    # Changes.

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """As `Log.commit`."""
        check_commits(commits)
        await self.change(lambda store: store.put_commits(group, topic, commits))

    async def expire(self, now_ms: int) -> None:
        """Apply retention now and completely. Raises LogUnavailable."""

        def change(store: Store) -> Moved:
            # Rows that this transaction appends must be written, so that retention sees how young
            # they are.
            store.flush()
            store.plan_expiry(now_ms)
            return store.expire(None)

        await self.change(change, self._view.moved)

    async def change(
        self, change: Callable[[Store], T], show: Callable[[T], None] | None = None
    ) -> T:
        """Make a change in the writer's thread, then apply `show` to its result. Raises
        LogUnavailable.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._is_closed:
            raise LogUnavailable(f"{self._path}: the log is closed")
        job = Job(change, show)
        self._put(job)
        await job.is_done.wait()
        if job.error is not None:
            raise job.error
        return job.result

    # Reading.

    @asynccontextmanager
    async def reader(
        self, topic: str, positions: Mapping[int, int]
    ) -> AsyncIterator["_EmbeddedReader"]:
        """As `Log.reader`; only `next_batch` raises."""
        yield _EmbeddedReader(self, topic, positions)

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        """As `Log.positions`."""
        await trio.lowlevel.checkpoint()
        rows = [copy(view.row) for view in self.view_of(topic).partitions]
        if isinstance(at, Edge):
            return {row.number: row.start if at is EARLIEST else row.end for row in rows}
        time_ms = at

        def look_up(connection: sqlite3.Connection) -> dict[int, int]:
            return {row.number: read_position_at(connection, row, time_ms) for row in rows}

        return await self.in_thread(look_up)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """As `Log.bounds`."""
        await trio.lowlevel.checkpoint()
        for view in self.view_of(topic).partitions:
            if view.row.number == partition:
                return view.row.start, view.row.end
        raise UnknownTopic(no_such_partition(topic, partition, len(self.view_of(topic).partitions)))

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """As `Log.committed`."""
        await trio.lowlevel.checkpoint()
        view = self._view.topics.get(topic)
        if view is None:
            return {}
        topic_id = view.id
        rows = await self.in_thread(lambda connection: read_commits(connection, group, topic_id))
        return {partition: Commit(position, metadata) for partition, position, metadata in rows}

    def view_of(self, topic: str) -> TopicView:
        """Return the topic's current settings, positions and readers. Raises UnknownTopic;
        LogUnavailable once the log is closed.
        """
        if self._is_closed:
            raise LogUnavailable(f"{self._path}: the log is closed")
        view = self._view.topics.get(topic)
        if view is None:
            raise UnknownTopic(topic)
        return view

    async def in_thread(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Read the file in a thread, with a separate connection. Raises LogUnavailable."""

        def work() -> T:
            connection = self._connections.pop() if self._connections else None
            try:
                if connection is None:
                    connection = open_read_only(self._path)
                return read(connection)
            except FILE_ERRORS as error:
                raise LogUnavailable(f"{self._path}: {error}") from error
            finally:
                if connection is not None:
                    self._connections.append(connection)

        try:
            return await trio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            if self._is_closed:
                self._close_connections()

    def _close_connections(self) -> None:
        while self._connections:
            self._connections.pop().close()


def _check_copies(settings: TopicSettings) -> None:
    if settings.copies_min > 1:
        raise ValueError(
            f"durability CONSISTENT needs {settings.copies_min} copies, and the embedded log keeps "
            "one; EVENTUAL is on its disk before the answer, or use Kafka"
        )


class EmbeddedTopics:
    """The topics of an embedded log; implements `LogTopics`."""

    def __init__(self, log: EmbeddedLog, view: View) -> None:
        self._log = log
        self._view = view

    async def create(self, topic: str, settings: TopicSettings) -> bool:
        """As `LogTopics.create`."""
        check_settings(settings)
        _check_copies(settings)

        def change(store: Store) -> TopicView | None:
            return TopicView(store.topics[topic]) if store.create_topic(topic, settings) else None

        def show(created: TopicView | None) -> None:
            if created is not None:
                self._view.topics[topic] = created

        return await self._log.change(change, show) is not None

    async def alter(self, topic: str, settings: TopicSettings) -> None:
        """As `LogTopics.alter`."""
        _check_copies(settings)

        def change(store: Store) -> TopicView:
            store.alter_topic(topic, settings)
            return TopicView(store.topics[topic])

        await self._log.change(change, lambda altered: self._view.altered(topic, altered))

    async def delete(self, topic: str) -> bool:
        """As `LogTopics.delete`; the space is reused soon."""

        def show(was_there: bool) -> None:
            if was_there:
                self._view.remove(topic)

        return await self._log.change(lambda store: store.delete_topic(topic), show)

    async def describe(self, topic: str) -> TopicSettings | None:
        """As `LogTopics.describe`."""
        await trio.lowlevel.checkpoint()
        view = self._view.topics.get(topic)
        return None if view is None else view.settings

    async def names(self) -> list[str]:
        """As `LogTopics.names`."""
        await trio.lowlevel.checkpoint()
        return sorted(self._view.topics)

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """As `LogTopics.partitions`."""
        await trio.lowlevel.checkpoint()
        held = self._view.topics
        return {topic: len(held[topic].partitions) for topic in topics if topic in held}


class _EmbeddedReader:
    doubtful = ()

    def __init__(self, log: EmbeddedLog, topic: str, positions: Mapping[int, int]) -> None:
        self._log = log
        self._topic = topic
        self._origin = f"{log.dc}:{topic}"
        self._cursor = Cursor(topic, positions)

    def position(self, partition: int) -> int:
        return self._cursor.position(partition)

    def seek(self, partition: int, position: int) -> None:
        self._cursor.seek(partition, position)

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        await trio.lowlevel.checkpoint()
        while True:
            view = self._log.view_of(self._topic)
            self._check(view)
            room = Room(records_max, bytes_max)
            batch = self._read_tails(view, room)
            if batch is None:
                batch = await self._read_file(view, Room(records_max, bytes_max))
            if batch:
                self._cursor.advance(batch)
                return batch
            await view.readers.park()

    def _check(self, view: TopicView) -> None:
        count = len(view.partitions)
        for number, _ in self._cursor.in_turn():
            if number >= count:
                raise UnknownTopic(no_such_partition(self._topic, number, count))
            row = view.partitions[number].row
            self._cursor.check(number, row.start, row.end)

    def _read_tails(self, view: TopicView, room: Room) -> list[StoredRecord] | None:
        """Return the records that fit, from memory; None if one of them is not there."""
        batch: list[StoredRecord] = []
        for number, position in self._cursor.in_turn():
            partition = view.partitions[number]
            if position == partition.row.end or not room.records_left:
                continue
            found = partition.read_tail(position, room, self._origin)
            if found is None:
                return None
            batch += found
        return batch

    async def _read_file(self, view: TopicView, room: Room) -> list[StoredRecord]:
        wanted = [
            (copy(view.partitions[number].row), position)
            for number, position in self._cursor.in_turn()
            if position < view.partitions[number].row.end
        ]

        def read(connection: sqlite3.Connection) -> list[StoredRecord]:
            batch: list[StoredRecord] = []
            damage: CorruptLog | None = None
            for row, position in wanted:
                if room.records_left:
                    try:
                        batch += read_batch(connection, row, position, room, self._origin)
                    except CorruptLog as error:
                        damage = error
            if damage is not None and not batch:
                raise damage
            return batch

        try:
            batch = await self._log.in_thread(read)
        except LogUnavailable:
            # Records that retention or a deletion removed during the read are not damaged.
            self._check(self._log.view_of(self._topic))
            raise
        if self._log.view_of(self._topic) is not view:
            raise UnknownTopic(self._topic)
        return batch


def _value_lengths(batch: Sequence[Record]) -> Iterable[int]:
    if isinstance(batch, RecordRun):
        return map(len, batch.values)
    return [len(record.value) for record in batch]


def _stored(appended: Appended) -> int:
    """How many records were stored; refused ones do not count as written."""
    return len(appended[1])
