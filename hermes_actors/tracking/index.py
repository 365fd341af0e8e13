"""The index of tracking events by message id: one SQLite file, bounded in bytes and days.

All that it holds comes from the logs: a file that is damaged is deleted, and the logs are read
again. Days are those of the logs' timestamps.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.model.message import Via
from hermes_actors.tracking.events import TrackingBatch, TrackingEvent, as_unicode

_DAY_MS = 86_400_000
_FILE = "tracking-3.sqlite"
"""With the version of the tables."""

LOOKED_AT_MAX = 20_000
"""The most events of one message that a look-up reads."""

_SKEW_MS = 60_000
"""Clocks of nodes and logs differ by less."""

_TRIM_EVENTS, _TRIMS_MAX = 1_000, 200
"""So many of the oldest events go at once, and so often before the next batches are taken in."""

_SCHEMA = """
create table if not exists event(
  id integer primary key, message_id blob, log_dc text, node text, boot text, taken_ms integer,
  data blob);
create index if not exists by_message on event(message_id);
create table if not exists source(
  log_dc text, boot text, sequence integer, dropped integer, told_ms integer,
  primary key (log_dc, boot)) without rowid;
create table if not exists gap(
  log_dc text, boot text, node text, since_ms integer, until_ms integer, missing integer,
  dropped integer);
create table if not exists position(log_dc text primary key, position integer) without rowid;
"""
_GAPS = """
select log_dc, boot, node, min(since_ms), max(until_ms), sum(missing), sum(dropped)
from gap where until_ms >= ? group by log_dc, boot
"""
_NEVER_MS = 2**62


class IndexUnavailable(Exception):
    """The index cannot be written or read now, e.g. because its disk is full; nothing is lost."""


class IndexRestarted(Exception):
    """A damaged file was deleted: the logs have to be read again from their beginning."""


class TrackedEvent(Struct, frozen=True):
    """An event, and the node and the life of it that told it, in which datacentre's log."""

    event: TrackingEvent
    node: str
    boot: str
    log_dc: str


class Gap(Struct, frozen=True):
    """Events that one life of a node did not tell one datacentre's log, from `since_ms` (0: its
    beginning) to `until_ms`: how many of its batches are missing, and how many events it dropped.
    """

    log_dc: str
    boot: str
    node: str
    since_ms: int
    until_ms: int
    missing: int
    dropped: int


class MessageLife(Struct, frozen=True):
    """The events of one message, oldest first, and the gaps in which there may be more of it.

    `is_cut`: it has more than LOOKED_AT_MAX events, and of those above nothing is known.
    """

    events: Sequence[TrackedEvent]
    gaps: Sequence[Gap]
    is_cut: bool = False


class IndexedBatch(Struct, frozen=True):
    """A batch, and when the log took it by the log's own time."""

    timestamp_ms: int
    batch: TrackingBatch


_decoder = msgspec.msgpack.Decoder(TrackingEvent)


class TrackingIndex:
    """The index of one management node; its methods block, and may be called from any thread, one
    after the other. Each raises IndexUnavailable, and IndexRestarted for a damaged file.

    At most some `bytes_max` and `days_max` days; `directory` None: in memory.
    """

    def __init__(self, directory: Path | None, *, bytes_max: int, days_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._days_max = days_max
        self._connection: sqlite3.Connection | None = None
        self._readings = 0
        self._lock = threading.Lock()

    def begin(self, log_dc: str) -> tuple[int, int | None]:
        """The number of this reading, for `take`, and the offset to go on at in that log; None: its
        beginning.
        """
        with self._guarded() as connection:
            query = "select position from position where log_dc = ?"
            row = connection.execute(query, (log_dc,)).fetchone()
            return self._readings, None if row is None else row[0]

    def restart(self, log_dc: str) -> None:
        """Forget how far the log was read: it is not the one that it was."""
        with self._guarded() as connection:
            connection.execute("delete from position where log_dc = ?", (log_dc,))

    def take(
        self, reading: int, log_dc: str, batches: Iterable[IndexedBatch], position: int
    ) -> None:
        """Take in what was read up to this offset, all or nothing."""
        with self._guarded() as connection:
            if reading != self._readings:
                raise IndexRestarted
            newest_ms = 0
            for each in batches:
                _insert(connection, log_dc, each)
                newest_ms = max(newest_ms, each.timestamp_ms)
            self._trim(connection, newest_ms - self._days_max * _DAY_MS)
            connection.execute("replace into position values (?, ?)", (log_dc, position))

    def find(self, message_id: str) -> MessageLife:
        """All that is known of a message; nothing of one that nobody has told of."""
        wanted = as_unicode(message_id).encode()
        with self._guarded() as connection:
            rows = connection.execute(
                "select data, node, boot, log_dc from event where message_id = ? "
                "order by id limit ?",
                (wanted, LOOKED_AT_MAX + 1),
            ).fetchall()
            found = [TrackedEvent(_decoder.decode(data), *names) for data, *names in rows]
            # In one millisecond it is published before it is delivered; a node's own order stands.
            found.sort(key=lambda each: (each.event.at_ms, bool(each.event.subscription)))
            gaps = [Gap(*row) for row in connection.execute(_GAPS, (_begun_ms(found),))]
        return MessageLife(found[:LOOKED_AT_MAX], gaps, len(found) > LOOKED_AT_MAX)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._lock:
            try:
                connection = self._opened()
                with connection:
                    yield connection
            except (sqlite3.OperationalError, OSError) as error:
                raise IndexUnavailable(f"the tracking index cannot be used: {error}") from error
            except sqlite3.DatabaseError as error:
                self._delete()
                raise IndexRestarted from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            path = ":memory:"
            if self._directory is not None:
                self._directory.mkdir(parents=True, exist_ok=True)
                path = str(self._directory / _FILE)
            connection = sqlite3.connect(path, check_same_thread=False)
            try:
                connection.execute("pragma journal_mode=wal")
                connection.execute("pragma synchronous=normal")
                connection.executescript(_SCHEMA)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _delete(self) -> None:
        self._readings += 1
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        if self._directory is not None:
            for part in self._directory.glob(f"{_FILE}*"):
                part.unlink()

    def _trim(self, connection: sqlite3.Connection, since_ms: int) -> None:
        """Delete what is older than that, and the oldest of what is too much."""
        for _ in range(_TRIMS_MAX):
            oldest = connection.execute("select id, taken_ms from event order by id limit 1")
            first_id, taken_ms = oldest.fetchone() or (0, since_ms)
            # Of what is too much any age goes.
            up_to_ms = since_ms if _used_bytes(connection) <= self._bytes_max else _NEVER_MS
            if taken_ms >= up_to_ms:
                break
            connection.execute(
                "delete from event where id < ? and taken_ms < ?",
                (first_id + _TRIM_EVENTS, up_to_ms),
            )
        connection.execute("delete from gap where until_ms < ?", (since_ms,))


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, page_bytes = (
        connection.execute(f"pragma {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page_bytes)


def _begun_ms(events: Sequence[TrackedEvent]) -> int:
    """Before when nothing was told of a message with these events; 0 if that is not known."""
    if not events or events[0].event.subscription or events[0].event.via == Via.SPOOL.value:
        # Of what the spool sends its keeping may have been hours ago.
        return 0
    return events[0].event.at_ms - _SKEW_MS


def _insert(connection: sqlite3.Connection, log_dc: str, each: IndexedBatch) -> None:
    batch = each.batch
    query = "select sequence, dropped, told_ms from source where log_dc = ? and boot = ?"
    held = connection.execute(query, (log_dc, batch.boot)).fetchone()
    sequence, dropped, told_ms = held or (-1, 0, 0)
    if batch.sequence <= sequence:
        # It was appended twice, or the log is read again.
        return
    missing, lost = batch.sequence - sequence - 1, batch.dropped - dropped
    if missing or lost:
        gap = (log_dc, batch.boot, batch.node, told_ms, each.timestamp_ms, missing, lost)
        connection.execute("insert into gap values (?, ?, ?, ?, ?, ?, ?)", gap)
    # The node's own times: the log may have taken the batch much later.
    told_ms = max([told_ms, *(event.at_ms for event in batch.events)])
    source = (log_dc, batch.boot, batch.sequence, batch.dropped, told_ms)
    connection.execute("replace into source values (?, ?, ?, ?, ?)", source)
    connection.executemany(
        "insert into event(message_id, log_dc, node, boot, taken_ms, data) "
        "values (?, ?, ?, ?, ?, ?)",
        [
            (
                event.message_id.encode(),
                log_dc,
                batch.node,
                batch.boot,
                each.timestamp_ms,
                msgspec.msgpack.encode(event),
            )
            for event in batch.events
        ],
    )
