"""The writing side of the embedded log's file, without threads: what one transaction may do.

The state in memory runs ahead of the file inside a transaction; after a failed one `roll_back`
reads it again from the file.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

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
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun

_CHUNK_BYTES = 256 * 1024
_CHUNK_RECORDS = 1_024
_RECLAIM_CHUNKS = 32
_EXPIRE_PARTITIONS = 16


class _UnstoredRecords:
    """Records of one partition that are not yet in a row."""

    __slots__ = ("entries", "first", "high_ms", "records", "size_bytes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.entries: list[bytes] = []
        self.records = 0
        self.size_bytes = 0
        self.high_ms = 0


class Store:
    """The tables, as the one writer sees them. All methods belong in one thread at a time."""

    def __init__(
        self,
        path: Path,
        lock: IO[str],
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
        self._dropped: list[int] = []
        self._is_stale = False
        self._pending: dict[int, _UnstoredRecords] = {}
        # By partition id.
        self._append_times: dict[int, AppendTime] = {}
        # (partition id, first offset to keep, or None for a dropped partition).
        self._garbage: deque[tuple[int, int | None]] = deque()
        self.load()
        self._acknowledged = Acknowledged(
            path.with_name(ACKNOWLEDGED_NAME),
            {each.id: each.end for topic in self.topics.values() for each in topic.partitions},
        )
        names = (path.name, f"{path.name}-wal", f"{path.name}-shm", ACKNOWLEDGED_NAME)
        self._files = {file: _identity(file) for file in (path.with_name(name) for name in names)}

    def load(self) -> None:
        """Read topics, positions and what is to be reclaimed from the file."""
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
        """Fold the write-ahead log into the file, close it, and let another process in.

        From there on the next start needs no write-ahead log: that is said on the disk before
        SQLite deletes it.
        """
        with suppress(*FILE_ERRORS, OSError):
            is_busy = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if not is_busy and not self.lost_file():
                self._acknowledged.end_in_order()
        self._acknowledged.close()
        self.connection.close()
        self._lock.close()

    def lost_file(self) -> str:
        """The name of a file that was deleted, moved or replaced since the log was opened."""
        return next((file.name for file, had in self._files.items() if _identity(file) != had), "")

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction; after a failed one, with the state that the file has."""
        if self._is_stale:
            self.load()
            self._is_stale = False
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End the transaction; what it wrote is on the disk when this returns."""
        if self._dropped:
            self._acknowledged.forget(self._dropped)
            self._dropped.clear()
        self.connection.execute("COMMIT")
        if self._appended:
            self._acknowledged.advance({key: row.end for key, row in self._appended.items()})
            self._appended.clear()

    def roll_back(self) -> None:
        """Undo what is not committed; the next `begin` reads the state again."""
        self._is_stale = True
        self._pending.clear()
        self._appended.clear()
        self._dropped.clear()
        with suppress(*FILE_ERRORS):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Write the rows of all appended records."""
        if self._pending:
            for partition_id, pending in self._pending.items():
                self._insert(partition_id, pending)
            self._pending.clear()

    def _insert(self, partition_id: int, pending: _UnstoredRecords) -> None:
        checksum, content = encode_chunk(pending.entries, pending.records)
        row = (chunk_id(partition_id, pending.first), pending.records, pending.high_ms)
        self.connection.execute(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?)", (*row, checksum, content)
        )

    # What a transaction may do.

    def append(
        self, topic: str, number: int, batch: Sequence[Record], now_ms: int, monotonic_s: float
    ) -> tuple[Sequence[Outcome], Sequence[Record], int, int | None]:
        """(outcomes, records stored, the first one's offset, the log's timestamp if it stamps).

        The rows are written by `flush`.
        """
        known = self.topics.get(topic)
        if known is None:
            reason = f"there is no topic {topic}"
            return [RefusedRecord(reason) for _ in batch], [], 0, None
        if not 0 <= number < len(known.partitions):
            reason = no_such_partition(topic, number, len(known.partitions))
            return [RefusedRecord(reason) for _ in batch], [], 0, None
        partition = known.partitions[number]
        first = end = partition.end
        high_ms = partition.high_ms
        stamp_ms = None
        if known.settings.log_append_time:
            times = self._append_times.setdefault(partition.id, AppendTime())
            stamp_ms = times.stamp_ms(high_ms, now_ms, monotonic_s)
        record_bytes_max = known.settings.record_bytes_max
        if isinstance(batch, RecordRun) and batch.largest_bytes <= record_bytes_max:
            self._append_run(partition, batch, stamp_ms)
            self._appended[partition.id] = partition
            return StoredRun(first, len(batch)), batch, first, stamp_ms
        pending = self._pending.get(partition.id)
        if pending is None:
            pending = self._pending[partition.id] = _UnstoredRecords(end)
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
                # One bad record must not cost the transaction that it shares with others.
                outcomes.append(RefusedRecord(f"the record cannot be stored: {error}"))
                continue
            if pending.size_bytes + size_bytes > _CHUNK_BYTES or (
                pending.records >= _CHUNK_RECORDS
            ):
                if pending.entries:
                    pending.high_ms = high_ms
                    self._insert(partition.id, pending)
                pending = self._pending[partition.id] = _UnstoredRecords(end)
            if timestamp_ms > high_ms:
                high_ms = timestamp_ms
            pending.entries.append(entry)
            pending.records += 1
            pending.size_bytes += size_bytes
            outcomes.append(Stored(end))
            stored.append(record)
            end += 1
        if pending.entries:
            pending.high_ms = high_ms
        else:
            del self._pending[partition.id]
        if stored:
            self._appended[partition.id] = partition
        partition.end = end
        partition.high_ms = high_ms
        return outcomes, stored, first, stamp_ms

    def _append_run(self, partition: PartitionRow, run: RecordRun, stamp_ms: int | None) -> None:
        """Append a run of which each record fits its topic: by chunks, not by records."""
        timestamp_ms = run.timestamp_ms if stamp_ms is None else stamp_ms
        partition.high_ms = max(partition.high_ms, timestamp_ms)
        while run:
            pending = self._pending.get(partition.id)
            if pending is None:
                pending = self._pending[partition.id] = _UnstoredRecords(partition.end)
            count = min(len(run), _CHUNK_RECORDS - pending.records)
            while count and run[:count].size_bytes > _CHUNK_BYTES - pending.size_bytes:
                count //= 2
            if not count and pending.records:
                self._insert(partition.id, pending)
                del self._pending[partition.id]
                continue
            # A record that is larger than a chunk is a chunk alone.
            part = run[: max(count, 1)]
            pending.entries.append(encode_run(part, timestamp_ms))
            pending.records += len(part)
            pending.size_bytes += part.size_bytes
            pending.high_ms = partition.high_ms
            partition.end += len(part)
            run = run[len(part) :]

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
        """Create the topic and its partitions; False when it exists."""
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
        """Delete the topic; False when there is none. Its records are left for `reclaim`."""
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
        self._dropped += [partition.id for partition in known.partitions]
        for partition in known.partitions:
            self._append_times.pop(partition.id, None)
            self._appended.pop(partition.id, None)
        return True

    def _known(self, topic: str) -> TopicRow:
        known = self.topics.get(topic)
        if known is None:
            raise UnknownTopic(topic)
        return known

    # Retention. Each step is a short transaction of its own, so that appends run in between.

    def expire(self, now_ms: int) -> Iterator[list[tuple[str, int, int]]]:
        """Advance the starts of partitions, a few at each step: (topic, partition, new start)."""
        due = [
            (name, number)
            for name, topic in self.topics.items()
            if topic.settings.retention_ms is not None
            for number in range(len(topic.partitions))
        ]
        for at in range(0, len(due), _EXPIRE_PARTITIONS):
            self.begin()
            moved = []
            for name, number in due[at : at + _EXPIRE_PARTITIONS]:
                topic = self.topics.get(name)
                if topic is None or topic.settings.retention_ms is None:
                    continue
                if number >= len(topic.partitions):
                    continue
                partition = topic.partitions[number]
                try:
                    start = read_position_at(
                        self.connection, partition, now_ms - topic.settings.retention_ms
                    )
                except CorruptLog:
                    # Its readers are told; the other partitions' retention goes on.
                    continue
                if start > partition.start:
                    self._set_start(partition, start)
                    moved.append((name, number, start))
            self.commit()
            yield moved

    def _set_start(self, partition: PartitionRow, start: int) -> None:
        self.connection.execute(
            "UPDATE partition SET start = ?, high_ms = ? WHERE id = ?",
            (start, partition.high_ms, partition.id),
        )
        partition.start = start
        self._garbage.append((partition.id, start))

    @property
    def has_garbage(self) -> bool:
        """True while there are records below a partition's start, or of a deleted topic."""
        return bool(self._garbage)

    def reclaim(self) -> None:
        """Delete some chunks that nobody can read any more, in a short transaction of its own."""
        self.begin()
        if not self._garbage:
            self.commit()
            return
        partition_id, keep_from = self._garbage[0]
        end = chunk_id(partition_id + 1, 0)
        below = end if keep_from is None else chunk_id(partition_id, keep_from)
        deleted = self.connection.execute(
            "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk"
            " WHERE id >= ? AND id < ? AND id + records <= ? ORDER BY id LIMIT ?)",
            (chunk_id(partition_id, 0), below, below, _RECLAIM_CHUNKS),
        ).rowcount
        if deleted < _RECLAIM_CHUNKS and keep_from is None:
            self.connection.execute("DELETE FROM partition WHERE id = ?", (partition_id,))
        self.commit()
        if deleted < _RECLAIM_CHUNKS:
            self._garbage.popleft()


def _identity(file: Path) -> tuple[int, int] | None:
    """Give the file's device and inode, by which a later file of its name differs; None for no
    file.
    """
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
