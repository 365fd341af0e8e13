"""The writing side of the embedded log's file, without threads: what one transaction may do.

The state in memory runs ahead of the file inside a transaction; after a failed one `roll_back`
reads it again from the file.
"""

import fcntl
import os
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from hermes_actors.errors import StartupError
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
from hermes_actors.log.embedded_schema import (
    APPLICATION_ID,
    FILE_ERRORS,
    FILE_NAME,
    LOCK_NAME,
    PARTITION_ID_MAX,
    SCHEMA,
    SCHEMA_VERSION,
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
# How much of the write-ahead log is moved into the file at one time, 16 MiB. Every commit of that
# moment waits for it, so it must stay well below a publish's time limit; half as much makes the
# wait so frequent that it is the 99th percentile (14 ms against 7 ms, at 17,000 messages a second
# of 1 KiB), four times as much makes it 90 ms long instead of 25.
_CHECKPOINT_PAGES = 4_000
_WAL_BYTES_KEPT = 64 * 1024 * 1024


class _Pending:
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

    def __init__(self, path: Path, lock: IO[str], connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.topics: dict[str, TopicRow] = {}
        self._lock = lock
        self._is_stale = False
        self._pending: dict[int, _Pending] = {}
        # By partition id.
        self._append_times: dict[int, AppendTime] = {}
        # (partition id, first offset to keep, or None for a dropped partition).
        self._garbage: deque[tuple[int, int | None]] = deque()
        self.load()

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
        """Fold the write-ahead log into the file, close it, and let another process in."""
        self.connection.close()
        self._lock.close()

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction; after a failed one, with the state that the file has."""
        if self._is_stale:
            self.load()
            self._is_stale = False
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End the transaction; what it wrote is on the disk when this returns."""
        self.connection.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo what is not committed; the next `begin` reads the state again."""
        self._is_stale = True
        self._pending.clear()
        with suppress(*FILE_ERRORS):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Write the rows of all appended records."""
        if self._pending:
            for partition_id, pending in self._pending.items():
                self._insert(partition_id, pending)
            self._pending.clear()

    def _insert(self, partition_id: int, pending: _Pending) -> None:
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
            return StoredRun(first, len(batch)), batch, first, stamp_ms
        pending = self._pending.get(partition.id)
        if pending is None:
            pending = self._pending[partition.id] = _Pending(end)
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
                pending = self._pending[partition.id] = _Pending(end)
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
        partition.end = end
        partition.high_ms = high_ms
        return outcomes, stored, first, stamp_ms

    def _append_run(self, partition: PartitionRow, run: RecordRun, stamp_ms: int | None) -> None:
        """The same for a run of which each record fits its topic: by chunks, not by records."""
        timestamp_ms = run.timestamp_ms if stamp_ms is None else stamp_ms
        partition.high_ms = max(partition.high_ms, timestamp_ms)
        while run:
            pending = self._pending.get(partition.id)
            if pending is None:
                pending = self._pending[partition.id] = _Pending(partition.end)
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
        """False when it exists."""
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
        """Raises UnknownTopic, ValueError."""
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
        """False when there is none. Its records are left for `reclaim`."""
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


def open_store(directory: Path) -> Store:
    """Open or create the log in `directory` for writing.

    Raises StartupError, in one line, when the directory cannot be written, another process has the
    log open, or the file is damaged or of another kind.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK_NAME).open("a+", encoding="ascii")
    except OSError as error:
        raise StartupError(
            f"{directory}: the log cannot be written there: {error.strerror}; "
            "name a directory that this user can write to"
        ) from error
    try:
        _take_lock(directory, lock)
        return _open_file(directory / FILE_NAME, lock)
    except BaseException:
        lock.close()
        raise


def _take_lock(directory: Path, lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        raise StartupError(
            f"{directory}: the log is open in another process (pid {holder}); "
            "stop that one or give this one a directory of its own"
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def _open_file(path: Path, lock: IO[str]) -> Store:
    if path.exists() and path.stat().st_size == 0:
        # SQLite would take it for a new file, and what it held would be lost without a word.
        raise StartupError(
            f"{path}: the log is empty, as after a failure of the disk; restore it from a copy, "
            "or delete it to start with an empty log"
        )
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _create(connection, path)
        _check(connection, path)
        return Store(path, lock, connection)
    except FILE_ERRORS as error:
        connection.close()
        raise StartupError(
            f"{path}: the log cannot be opened: {error}; "
            "restore it from a copy, or move it away to start with an empty log"
        ) from error
    except BaseException:
        connection.close()
        raise


def _create(connection: sqlite3.Connection, path: Path) -> None:
    connection.executescript(
        f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
    # The file's own name must survive a crash too.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StartupError unless the file is ours, of this version, and whole in size."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise StartupError(f"{path}: this is a SQLite file, but not a log; move it away")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StartupError(
            f"{path}: the log has schema version {version}, this program reads {SCHEMA_VERSION}; "
            "use the program that wrote it"
        )
    # With nothing left in the write-ahead log, the file must have all its pages.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    size_bytes = path.stat().st_size
    if size_bytes < pages * page_bytes:
        raise StartupError(
            f"{path}: the log is torn: {size_bytes} bytes of {pages * page_bytes} are there; "
            "restore it from a copy"
        )
