"""The writing side of the embedded log's file, without threads: the operations within a
transaction.

Inside a transaction the state in memory is ahead of the file. After a failed one, `roll_back` makes
the next transaction read it again.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hermes_actors.log.append_time import AppendTime
from hermes_actors.log.base import (
    Commit,
    Outcome,
    RefusedRecord,
    Stored,
    StoredRun,
    TopicSettings,
    UnknownTopic,
    check_alteration,
    no_such_partition,
    too_large,
)
from hermes_actors.log.embedded.acknowledged import ACKNOWLEDGED_NAME, Acknowledged
from hermes_actors.log.embedded.schema import (
    FILE_ERRORS,
    PARTITION_ID_MAX,
    CorruptLog,
    PartitionRow,
    TopicRow,
    chunk_id,
    encode_chunk,
    encode_entry,
    encode_run,
    read_position_at,
    read_topics,
)
from hermes_actors.log.folder import WatchedFiles
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun

_CHUNK_BYTES = 256 * 1024
_CHUNK_RECORDS = 1_024
_RECLAIM_CHUNKS = 32
_EXPIRE_PARTITIONS = 16
_HELD_BYTES = 1024 * 1024
_HELD_BYTES_EACH = 64 * 1024

Moved = list[tuple[str, int, int]]
"""(topic, partition, new start): the effect of retention."""
Appended = tuple[Sequence[Outcome], Sequence[Record], int, int | None]
"""(outcomes, records stored, offset of the first one, the log's timestamp if it stamps)."""


class _UnstoredRecords:
    """The last records of one partition, from `first` on, that are not in a row yet."""

    __slots__ = ("entries", "first", "partition", "size_bytes")

    def __init__(self, partition: PartitionRow) -> None:
        self.partition = partition
        self.first = partition.end
        self.entries: list[bytes] = []
        self.size_bytes = 0


class Store:
    """The tables, for the only writer. One thread at a time may call its methods."""

    def __init__(
        self,
        path: Path,
        lock: int,
        connection: sqlite3.Connection,
        *,
        accepted_missing: int = 0,
    ) -> None:
        self.path = path
        self.connection = connection
        self.accepted_missing = accepted_missing
        self.topics: dict[str, TopicRow] = {}
        self._lock = lock
        self._appended: dict[int, PartitionRow] = {}
        self._is_stale = False
        # An open query, which keeps this connection's read lock from one transaction to the next.
        self._held: sqlite3.Cursor | None = None
        self._held_bytes = 0
        self._pending: dict[int, _UnstoredRecords] = {}
        # By partition id.
        self._append_times: dict[int, AppendTime] = {}
        # (partition id, first offset to keep; None if the partition was dropped).
        self._garbage: deque[tuple[int, int | None]] = deque()
        # (topic, number) of the partitions that retention still has to check.
        self._to_expire: deque[tuple[str, int]] = deque()
        self._expired_at_ms = 0
        self.load()
        self._acknowledged = Acknowledged(
            path.with_name(ACKNOWLEDGED_NAME),
            {each.id: each.end for topic in self.topics.values() for each in topic.partitions},
        )
        self.files = WatchedFiles()
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", ACKNOWLEDGED_NAME):
            self.files.add(path.with_name(name))

    def load(self) -> None:
        """Read topics, positions and pending deletions from the file."""
        self._pending.clear()
        self.topics = {topic.name: topic for topic in read_topics(self.connection)}
        partitions = [each for topic in self.topics.values() for each in topic.partitions]
        times = self._append_times
        self._append_times = {each.id: times[each.id] for each in partitions if each.id in times}
        self._garbage = deque(
            self.connection.execute(
                "SELECT id, CASE WHEN topic_id IS NULL THEN NULL ELSE start END"
                " FROM partition WHERE topic_id IS NULL OR start > 0"
            ).fetchall()
        )

    def close(self) -> None:
        """Close the file, which merges the write-ahead log into it, and release the lock."""
        self._acknowledged.close()
        self.let_go()
        self.connection.close()
        os.close(self._lock)

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction; after a failed one, read the state from the file first."""
        if self._is_stale:
            self.load()
            self._is_stale = False
        if self._held is None:
            self._held = self.connection.execute("SELECT 1 FROM sqlite_master")
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            # SQLite waits for another process's lock only while it holds none itself.
            self.let_go()
            self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End the transaction. When this returns, its changes are on the disk."""
        self._held_bytes += _HELD_BYTES_EACH
        if self._held_bytes > _HELD_BYTES:
            self.let_go()
        self.connection.execute("COMMIT")
        if self._appended:
            self._acknowledged.advance({key: row.end for key, row in self._appended.items()})
            self._appended.clear()

    def roll_back(self) -> None:
        """Undo the transaction; the next `begin` reads the state again."""
        self._is_stale = True
        self._pending.clear()
        self._appended.clear()
        self._to_expire.clear()
        self.let_go()
        with suppress(*FILE_ERRORS):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def let_go(self) -> None:
        """Close the open query. Holding its lock saves a small transaction four system calls, but
        meanwhile SQLite does not move the write-ahead log into the file, so it must not last.
        """
        if self._held is not None:
            self._held.close()
            self._held, self._held_bytes = None, 0

    def flush(self) -> None:
        """Write the rows of all appended records."""
        for pending in self._pending.values():
            self._insert(pending)
        self._pending.clear()

    def _insert(self, pending: _UnstoredRecords) -> None:
        partition, records = pending.partition, pending.partition.end - pending.first
        checksum, content = encode_chunk(pending.entries, records)
        self._held_bytes += len(content)
        row_id = chunk_id(partition.id, pending.first)
        self.connection.execute(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?)",
            (row_id, records, partition.high_ms, checksum, content),
        )

    # Operations within a transaction.

    def append(
        self, topic: str, number: int, batch: Sequence[Record], now_ms: int, monotonic_s: float
    ) -> Appended:
        """Append the records that fit the topic. `flush` writes the rows."""
        known = self.topics.get(topic)
        if known is None:
            reason = f"there is no topic {topic}"
            return [RefusedRecord(reason) for _ in batch], [], 0, None
        if not 0 <= number < len(known.partitions):
            reason = no_such_partition(topic, number, len(known.partitions))
            return [RefusedRecord(reason) for _ in batch], [], 0, None
        partition = known.partitions[number]
        first = partition.end
        stamp_ms = None
        if known.settings.log_append_time:
            times = self._append_times.setdefault(partition.id, AppendTime())
            stamp_ms = times.stamp_ms(partition.high_ms, now_ms, monotonic_s)
        record_bytes_max = known.settings.record_bytes_max
        if isinstance(batch, RecordRun) and batch.largest_bytes <= record_bytes_max:
            self._append_run(partition, batch, stamp_ms)
            return StoredRun(first, len(batch)), batch, first, stamp_ms
        outcomes: list[Outcome] = []
        stored: list[Record] = []
        for record in batch:
            size_bytes = record.size_bytes
            if size_bytes > record_bytes_max:
                outcomes.append(too_large(record, record_bytes_max))
                continue
            timestamp_ms = record.timestamp_ms if stamp_ms is None else stamp_ms
            try:
                entry = encode_entry((timestamp_ms, record.key, record.value, record.headers))
            except (TypeError, ValueError) as error:
                # One bad record must not fail the transaction that it shares with others.
                outcomes.append(RefusedRecord(f"the record cannot be stored: {error}"))
                continue
            outcomes.append(Stored(partition.end))
            stored.append(record)
            self._add(partition, entry, 1, size_bytes, timestamp_ms)
        return outcomes, stored, first, stamp_ms

    def _append_run(self, partition: PartitionRow, run: RecordRun, stamp_ms: int | None) -> None:
        """Append a run whose records all fit the topic: by chunks, not by records."""
        timestamp_ms = run.timestamp_ms if stamp_ms is None else stamp_ms
        while run:
            part = run[:_CHUNK_RECORDS]
            while len(part) > 1 and part.size_bytes > _CHUNK_BYTES:
                part = part[: len(part) // 2]
            entries = encode_run(part, timestamp_ms)
            self._add(partition, entries, len(part), part.size_bytes, timestamp_ms)
            run = run[len(part) :]

    def _add(
        self,
        partition: PartitionRow,
        entries: bytes,
        records: int,
        size_bytes: int,
        timestamp_ms: int,
    ) -> None:
        """Add encoded records to the partition's current chunk; start another if they do not fit. A
        record larger than a chunk is a chunk by itself.
        """
        pending = self._pending.get(partition.id)
        if pending is None or (
            pending.size_bytes + size_bytes > _CHUNK_BYTES
            or partition.end + records > pending.first + _CHUNK_RECORDS
        ):
            if pending is not None:
                self._insert(pending)
            pending = self._pending[partition.id] = _UnstoredRecords(partition)
            self._appended[partition.id] = partition
        pending.entries.append(entries)
        pending.size_bytes += size_bytes
        partition.end += records
        if timestamp_ms > partition.high_ms:
            partition.high_ms = timestamp_ms

    def put_commits(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """Replace the group's commits of these partitions. Raises UnknownTopic."""
        known = self._known(topic)
        for partition in commits:
            if not 0 <= partition < len(known.partitions):
                raise UnknownTopic(no_such_partition(topic, partition, len(known.partitions)))
        self.connection.executemany(
            "INSERT OR REPLACE INTO group_commit VALUES (?, ?, ?, ?, ?)",
            [(group, known.id, n, c.position, c.metadata) for n, c in commits.items()],
        )

    def create_topic(self, topic: str, settings: TopicSettings) -> bool:
        """Create the topic and its partitions. False if it exists."""
        if topic in self.topics:
            return False
        row_id = self.connection.execute(
            "INSERT INTO topic (name, retention_ms, record_bytes_max, log_append_time)"
            " VALUES (?, ?, ?, ?) RETURNING id",
            (topic, settings.retention_ms, settings.record_bytes_max, settings.log_append_time),
        ).fetchone()[0]
        known = self.topics[topic] = TopicRow(row_id, topic, settings, [])
        self._add_partitions(known, settings.partitions)
        return True

    def alter_topic(self, topic: str, settings: TopicSettings) -> None:
        """Replace the topic's settings and add partitions. Raises UnknownTopic, ValueError."""
        known = self._known(topic)
        check_alteration(topic, known.settings, settings)
        self.connection.execute(
            "UPDATE topic SET retention_ms = ?, record_bytes_max = ?, log_append_time = ?"
            " WHERE id = ?",
            (settings.retention_ms, settings.record_bytes_max, settings.log_append_time, known.id),
        )
        known.settings = settings
        self._add_partitions(known, settings.partitions)

    def _add_partitions(self, topic: TopicRow, count: int) -> None:
        for number in range(len(topic.partitions), count):
            row_id = self.connection.execute(
                "INSERT INTO partition (topic_id, number) VALUES (?, ?) RETURNING id",
                (topic.id, number),
            ).fetchone()[0]
            if row_id > PARTITION_ID_MAX:
                raise sqlite3.OperationalError("no room for another partition in this file")
            topic.partitions.append(PartitionRow(row_id, number, 0, 0, 0))

    def delete_topic(self, topic: str) -> bool:
        """Delete the topic. False if there is none. `keep_house` deletes its records later."""
        known = self.topics.pop(topic, None)
        if known is None:
            return False
        for statement in (
            "DELETE FROM topic WHERE id = ?",
            "UPDATE partition SET topic_id = NULL WHERE topic_id = ?",
            "DELETE FROM group_commit WHERE topic_id = ?",
        ):
            self.connection.execute(statement, (known.id,))
        self._garbage.extend((partition.id, None) for partition in known.partitions)
        for partition in known.partitions:
            self._append_times.pop(partition.id, None)
            self._appended.pop(partition.id, None)
        return True

    def _known(self, topic: str) -> TopicRow:
        known = self.topics.get(topic)
        if known is None:
            raise UnknownTopic(topic)
        return known

    # Retention, in small steps between appends.

    def plan_expiry(self, now_ms: int) -> None:
        """Let `keep_house` check all partitions with a retention time, as of this time."""
        self._expired_at_ms = now_ms
        self._to_expire = deque(
            (name, number)
            for name, topic in self.topics.items()
            if topic.settings.retention_ms is not None
            for number in range(len(topic.partitions))
        )

    @property
    def has_chores(self) -> bool:
        """True if partitions are waiting for retention, or there are records to delete: below a
        partition's start, or of a deleted topic.
        """
        return bool(self._to_expire or self._garbage)

    def keep_house(self) -> Moved:
        """Take one step: advance the starts of a few partitions, or delete some unreadable chunks.
        Returns the starts that were advanced.
        """
        if self._to_expire:
            return self.expire()
        self._reclaim()
        return []

    def expire(self, partitions_max: int | None = _EXPIRE_PARTITIONS) -> Moved:
        """Advance the starts of at most `partitions_max` partitions (None: all) that `plan_expiry`
        has queued.
        """
        moved: Moved = []
        for _ in range(len(self._to_expire))[:partitions_max]:
            name, number = self._to_expire.popleft()
            topic = self.topics.get(name)
            if topic is None or topic.settings.retention_ms is None:
                continue
            if number >= len(topic.partitions):
                continue
            partition = topic.partitions[number]
            oldest_ms = self._expired_at_ms - topic.settings.retention_ms
            try:
                start = read_position_at(self.connection, partition, oldest_ms)
            except CorruptLog:
                # Its readers get the error; retention continues with the other partitions.
                continue
            if start > partition.start:
                self._set_start(partition, start)
                moved.append((name, number, start))
        return moved

    def _set_start(self, partition: PartitionRow, start: int) -> None:
        self.connection.execute(
            "UPDATE partition SET start = ?, high_ms = ? WHERE id = ?",
            (start, partition.high_ms, partition.id),
        )
        partition.start = start
        self._garbage.append((partition.id, start))

    def _reclaim(self) -> None:
        if not self._garbage:
            return  # An earlier transaction failed, and the state was read again.
        partition_id, keep_from = self._garbage[0]
        end = chunk_id(partition_id + 1, 0)
        below = end if keep_from is None else chunk_id(partition_id, keep_from)
        deleted = self.connection.execute(
            "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk"
            " WHERE id >= ? AND id < ? AND id + records <= ? ORDER BY id LIMIT ?)",
            (chunk_id(partition_id, 0), below, below, _RECLAIM_CHUNKS),
        ).rowcount
        if deleted < _RECLAIM_CHUNKS:
            if keep_from is None:
                self.connection.execute("DELETE FROM partition WHERE id = ?", (partition_id,))
            self._garbage.popleft()
