"""The index of tracking events by message id: one SQLite file, limited in size.

Everything in it comes from the logs: a damaged file is deleted, and the logs are read again.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.model.message import Via
from hermes_actors.tracking.events import TrackingBatch, TrackingEvent, as_told

_FILE = "tracking-4.sqlite"
"""The name includes the version of the tables."""

SHOWN_MAX = 200
"""A look-up returns this many of a message's first events, as many of its last, and all terminal
ones.
"""

_SKEW_MS = 60_000
"""Maximum difference between the clocks of nodes and logs."""

_TRIM_EVENTS, _TRIMS_MAX = 1_000, 200
"""How many of the oldest events are deleted at once, and how often before the next batches."""

_SCHEMA = """
create table if not exists event(
  id integer primary key, message_id blob, node text, is_end integer, data blob);
create index if not exists by_message on event(message_id, id);
create table if not exists source(
  log_dc text, boot text, node text, sequence integer, dropped integer, told_ms integer,
  missing integer, since_ms integer, until_ms integer, primary key (log_dc, boot)) without rowid;
create table if not exists position(log_dc text primary key, position integer) without rowid;
"""
_EVENTS = """
select data, node from event where message_id = :id and (is_end
  or id in (select id from event where message_id = :id order by id limit :most)
  or id in (select id from event where message_id = :id order by id desc limit :most))
order by id
"""
_GAPS = """
select log_dc, node, since_ms, until_ms, missing, dropped from source
where until_ms >= ? and missing + dropped > 0
"""


class IndexUnavailable(Exception):
    """The index cannot be written or read now, for example because its disk is full; nothing is
    lost.
    """


class TrackedEvent(Struct, frozen=True):
    """An event, and the node that recorded it."""

    event: TrackingEvent
    node: str


class Gap(Struct, frozen=True):
    """Events of one life of a node that are missing in one datacentre's log, from `since_ms` (0:
    its beginning) to `until_ms`: how many of its batches are missing, and how many events it
    dropped.
    """

    log_dc: str
    node: str
    since_ms: int
    until_ms: int
    missing: int
    dropped: int


class MessageLife(Struct, frozen=True):
    """The events of one message, oldest first; the gaps in which more may be missing; and the
    number of events left out between the first and the last.
    """

    events: Sequence[TrackedEvent]
    gaps: Sequence[Gap]
    left_out: int = 0


class IndexedBatch(Struct, frozen=True):
    """A batch, with the log's timestamp."""

    timestamp_ms: int
    batch: TrackingBatch


_decoder = msgspec.msgpack.Decoder(TrackingEvent)


class TrackingIndex:
    """The index of one management node. Its methods block, must be called one at a time, and raise
    IndexUnavailable.

    It keeps the newest events, about `bytes_max`. `directory` None: in memory.
    """

    def __init__(self, directory: Path | None, *, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._connection: sqlite3.Connection | None = None

    def begin(self, log_dc: str, *, is_changed: bool = False) -> int | None:
        """Return the offset at which to continue in that log; None: its beginning. `is_changed`:
        the log is not the one that was read before.
        """
        with self._guarded() as connection:
            if is_changed:
                connection.execute("delete from position where log_dc = ?", (log_dc,))
            return _position(connection, log_dc)

    def take(
        self, log_dc: str, batches: Iterable[IndexedBatch], since: int | None, position: int
    ) -> None:
        """Insert the batches read from offset `since` to `position`, all or nothing."""
        with self._guarded() as connection:
            if _position(connection, log_dc) != since:
                raise IndexUnavailable("the tracking index was begun anew")
            for each in batches:
                _insert(connection, log_dc, each)
            self._trim(connection)
            connection.execute("replace into position values (?, ?)", (log_dc, position))

    def find(self, message_id: str) -> MessageLife:
        """Return everything known of a message; without events if nothing is known."""
        wanted = {"id": as_told(message_id).encode(), "most": SHOWN_MAX}
        with self._guarded() as connection:
            rows = connection.execute(_EVENTS, wanted).fetchall()
            found = [TrackedEvent(_decoder.decode(data), node) for data, node in rows]
            # Within a millisecond, publishing comes before delivery; the order of a node's own
            # events is kept.
            found.sort(key=lambda each: (each.event.at_ms, bool(each.event.subscription)))
            gaps = [Gap(*row) for row in connection.execute(_GAPS, (_begun_ms(found),))]
            query = "select count(*) from event where message_id = :id"
            (count,) = connection.execute(query, wanted).fetchone()
        return MessageLife(found, gaps, count - len(found))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction."""
        try:
            connection = self._opened()
            with connection:
                yield connection
        except (sqlite3.OperationalError, OSError) as error:
            raise IndexUnavailable(f"the tracking index cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            self.close()
            if self._directory is not None:
                for part in self._directory.glob(f"{_FILE}*"):
                    part.unlink()
            raise IndexUnavailable(
                f"the tracking index was damaged and is made anew: {error}"
            ) from error

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

    def _trim(self, connection: sqlite3.Connection) -> None:
        """Delete the oldest events while the index is too large."""
        for _ in range(_TRIMS_MAX):
            if _used_bytes(connection) <= self._bytes_max:
                return
            connection.execute(
                "delete from event where id < (select min(id) from event) + ?", (_TRIM_EVENTS,)
            )


def _position(connection: sqlite3.Connection, log_dc: str) -> int | None:
    query = "select position from position where log_dc = ?"
    row = connection.execute(query, (log_dc,)).fetchone()
    return None if row is None else row[0]


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, page_bytes = (
        connection.execute(f"pragma {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page_bytes)


def _begun_ms(events: Sequence[TrackedEvent]) -> int:
    """A time before which this message has no events; 0 if unknown."""
    if not events or events[0].event.subscription or events[0].event.via == Via.SPOOL.value:
        # The spool may have kept it for hours.
        return 0
    return events[0].event.at_ms - _SKEW_MS


def _insert(connection: sqlite3.Connection, log_dc: str, each: IndexedBatch) -> None:
    batch, source = each.batch, (log_dc, each.batch.boot)
    query = (
        "select sequence, dropped, told_ms, missing, since_ms, until_ms from source "
        "where log_dc = ? and boot = ?"
    )
    held = connection.execute(query, source).fetchone() or (-1, 0, 0, 0, -1, -1)
    sequence, dropped, told_ms, missing, since_ms, until_ms = held
    if batch.sequence <= sequence:
        # It was appended twice, or the log is being read again.
        return
    lost = batch.sequence - sequence - 1
    if lost or batch.dropped > dropped:
        since_ms, until_ms = told_ms if since_ms < 0 else since_ms, each.timestamp_ms
    # The node's own times, because the log may have stored the batch much later.
    told_ms = max([told_ms, *(event.at_ms for event in batch.events)])
    connection.execute(
        "replace into source values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *source,
            batch.node,
            batch.sequence,
            batch.dropped,
            told_ms,
            missing + lost,
            since_ms,
            until_ms,
        ),
    )
    connection.executemany(
        "insert into event(message_id, node, is_end, data) values (?, ?, ?, ?)",
        [
            (
                event.message_id.encode(),
                batch.node,
                event.is_terminal,
                msgspec.msgpack.encode(event),
            )
            for event in batch.events
        ],
    )
