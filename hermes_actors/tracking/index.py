"""The index of tracking events by message id: SQLite files by day, the oldest deleted first.

All that it holds comes from the logs, so a file that is damaged is set aside, one of another
version is removed, and the logs are read again. Days are those of the logs' timestamps: a clock
that is set does not matter.
"""

import contextlib
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from hermes_actors.model.message import Via
from hermes_actors.tracking.events import TrackingBatch, TrackingEvent, UntoldEvents, as_unicode

_DAY_MS = 86_400_000
_SEGMENTS_MIN = 8
_VERSION = 2
"""Of the tables. Counted up with them, so that no program opens files of another one."""

_FILES = f"tracking-{_VERSION}-{'[0-9]' * 8}.sqlite"
LOOKED_AT_MAX = 100_000
"""The most events of one message that a look-up reads."""
SHOWN_EACH = 100
"""Of what each subscription, or the publishing, tells of one message beside its ends, so many of
the first and so many of the last are given.
"""

_SKEW_MS = 60_000
"""Clocks of nodes and logs differ by less."""

_SCHEMA = """
create table if not exists event(
  log_dc text, boot text, sequence integer, number integer, node text, message_id blob, data blob,
  primary key (log_dc, boot, sequence, number)) without rowid;
create index if not exists by_message on event(message_id);
create table if not exists source(
  log_dc text, boot text, sequence integer, dropped integer, dropped_terminal integer,
  uncovered integer, told_ms integer, primary key (log_dc, boot));
create table if not exists gap(
  log_dc text, boot text, sequence integer, node text, since_ms integer, until_ms integer,
  missing integer, dropped integer, dropped_terminal integer, uncovered integer,
  primary key (log_dc, boot, sequence));
create table if not exists position(log_dc text primary key, position integer);
create table if not exists span(one integer primary key check (one = 0), last_ms integer);
"""


class IndexUnavailable(Exception):
    """The index cannot be written or read now, e.g. because its disk is full; nothing is lost."""


class IndexRestarted(Exception):
    """A damaged file was set aside: the logs have to be read again from their beginning."""


class TrackedEvent(Struct, frozen=True):
    """An event, and the node and the life of it that told it, in which datacentre's log."""

    event: TrackingEvent
    node: str
    boot: str
    log_dc: str


class Gap(Struct, frozen=True):
    """Events that one life of a node did not tell one datacentre's log, from `since_ms` (0: its
    beginning) to `until_ms`: how many of its batches are missing, and what it said itself that it
    lost.
    """

    log_dc: str
    boot: str
    node: str
    since_ms: int
    until_ms: int
    missing: int
    dropped: int
    dropped_terminal: int
    uncovered: int


_Key = tuple[str, str, int, int]
"""The log's datacentre, the node's life, the batch's number there, the event's place in it."""


class MessageLife(Struct, frozen=True):
    """The events of one message, oldest first, and the gaps in which there may be more of it.

    `left_out`: topic and subscription, "" for the publishing → how many events between its first
    and its last are not given; no end is among them. `is_cut`: it has more than LOOKED_AT_MAX
    events, and of those above nothing is known.
    """

    events: Sequence[TrackedEvent]
    gaps: Sequence[Gap]
    left_out: Mapping[tuple[str, str], int] = {}
    is_cut: bool = False


class _Thinned:
    """The ends that one subscription tells of a message; of the rest, the first and the last."""

    def __init__(self) -> None:
        self.left_out = 0
        self._ends: list[tuple[_Key, TrackedEvent]] = []
        self._others: list[tuple[_Key, TrackedEvent]] = []

    def add(self, key: _Key, found: TrackedEvent) -> None:
        if found.event.is_terminal:
            self._ends.append((key, found))
            return
        self._others.append((key, found))
        if len(self._others) == 8 * SHOWN_EACH:
            self._thin()

    def events(self) -> list[tuple[_Key, TrackedEvent]]:
        self._thin()
        return self._ends + self._others

    def _thin(self) -> None:
        over = len(self._others) - 2 * SHOWN_EACH
        if over > 0:
            self._others.sort(key=_age)
            del self._others[SHOWN_EACH:-SHOWN_EACH]
            self.left_out += over


class IndexedBatch(Struct, frozen=True):
    """A batch, and when the log took it by the log's own time."""

    timestamp_ms: int
    batch: TrackingBatch


_decoder = msgspec.msgpack.Decoder(TrackingEvent)
_GAPS = """
select log_dc, boot, node, min(since_ms), max(until_ms), sum(missing), sum(dropped),
  sum(dropped_terminal), sum(uncovered)
from gap where until_ms >= ? group by log_dc, boot having sum(missing) or sum(dropped)
"""


class _Segment:
    """One file, or a database in memory."""

    def __init__(self, path: Path | None, before: "_Segment | None" = None) -> None:
        """Open it; or begin it, after another one, which may be deleted with what only it says."""
        self.path = path
        is_new = path is None or not path.exists()
        self.connection = sqlite3.connect(
            ":memory:" if path is None else path, check_same_thread=False, isolation_level=None
        )
        try:
            self.connection.execute("pragma journal_mode=wal")
            self.connection.execute("pragma synchronous=normal")
            self.connection.executescript(_SCHEMA)
            (self.last_ms,) = self.connection.execute("select max(last_ms) from span").fetchone()
            if before is not None:
                self._take_over(before)
        except sqlite3.Error:
            if is_new:
                # On a full disk this is tried again and again.
                self.remove()
            self.connection.close()
            raise

    def _take_over(self, before: "_Segment") -> None:
        with _transaction(self) as connection:
            for table in ("source", "position"):
                for row in before.connection.execute(f"select * from {table}"):  # noqa: S608
                    marks = ", ".join("?" * len(row))
                    connection.execute(f"insert into {table} values ({marks})", row)  # noqa: S608

    @property
    def size_bytes(self) -> int:
        (pages,) = self.connection.execute("pragma page_count").fetchone()
        (page_bytes,) = self.connection.execute("pragma page_size").fetchone()
        return int(pages * page_bytes)

    def remove(self) -> None:
        self.connection.close()
        if self.path is not None:
            for each in self.path.parent.glob(f"{self.path.name}*"):
                each.unlink(missing_ok=True)


class TrackingIndex:
    """The index of one management node; its methods block, and may be called from any thread, one
    after the other. Each raises IndexUnavailable.

    At most some `bytes_max` and `days_max` days; `directory` None: in memory. `set_aside` counts
    files that were damaged.
    """

    def __init__(self, directory: Path | None, *, bytes_max: int, days_max: int) -> None:
        self.set_aside = 0
        self._directory = directory
        self._bytes_max = bytes_max
        self._days_max = days_max
        self._segments: list[_Segment] | None = None
        self._numbers = 0
        self._readings = 0
        self._lock = threading.Lock()

    def begin(self, log_dc: str) -> tuple[int, int | None]:
        """The number of this reading, for `take`, and the offset to go on at in that log; None: its
        beginning.
        """
        with self._lock, self._guarded():
            # What an older file says was right when the newer one was begun.
            positions = [
                position
                for segment in reversed(self._opened())
                for (position,) in segment.connection.execute(
                    "select position from position where log_dc = ?", (log_dc,)
                )
            ]
            return self._readings, positions[0] if positions else None

    def restart(self, log_dc: str) -> None:
        """Forget how far the log was read: it is not the one that it was."""
        with self._lock, self._guarded():
            for segment in self._opened():
                segment.connection.execute("delete from position where log_dc = ?", (log_dc,))

    def take(
        self, reading: int, log_dc: str, batches: Iterable[IndexedBatch], position: int
    ) -> None:
        """Take in what was read up to this offset, all or nothing of each day. Raises
        IndexRestarted when the logs have to be read again.
        """
        with self._lock, self._guarded():
            segments = self._opened()
            if reading != self._readings:
                raise IndexRestarted
            for each in batches:
                self._make_room(each.timestamp_ms)
                with _transaction(segments[-1]) as connection:
                    _insert(connection, log_dc, each)
                segments[-1].last_ms = max(segments[-1].last_ms or 0, each.timestamp_ms)
            with _transaction(segments[-1]) as connection:
                connection.execute("replace into position values (?, ?)", (log_dc, position))

    def find(self, message_id: str) -> MessageLife:
        """All that is known of a message; nothing of one that nobody has told of."""
        wanted = as_unicode(message_id).encode()
        seen: set[_Key] = set()
        told: defaultdict[tuple[str, str], _Thinned] = defaultdict(_Thinned)
        gaps: list[Gap] = []
        with self._lock, self._guarded():
            segments = self._opened()
            # The newest first: ends are there.
            for segment in reversed(segments):
                rows = segment.connection.execute(
                    "select log_dc, boot, sequence, number, node, data from event "
                    "where message_id = ? limit ?",
                    (wanted, LOOKED_AT_MAX + 1),
                )
                for log_dc, boot, sequence, number, node, data in rows:
                    if len(seen) > LOOKED_AT_MAX:
                        break
                    key = log_dc, boot, sequence, number
                    # A log that is read again may have its events in two files.
                    if key not in seen:
                        seen.add(key)
                        event = _decoder.decode(data)
                        found = TrackedEvent(event, node, boot, log_dc)
                        told[event.topic, event.subscription].add(key, found)
            events = [each for thinned in told.values() for each in thinned.events()]
            ordered = [found for _, found in sorted(events, key=_age)]
            since_ms = _begun_ms(ordered)
            for segment in segments:
                gaps += [Gap(*row) for row in segment.connection.execute(_GAPS, (since_ms,))]
        left_out = {who: thinned.left_out for who, thinned in told.items() if thinned.left_out}
        return MessageLife(ordered, gaps, left_out, len(seen) > LOOKED_AT_MAX)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for segment in self._segments or ():
                segment.connection.close()
            self._segments = None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise _unavailable(error) from error
        except sqlite3.DatabaseError as error:
            try:
                self._set_damaged_aside()
            except (sqlite3.OperationalError, OSError) as other:
                raise _unavailable(other) from other
            raise IndexRestarted from error

    def _opened(self) -> list[_Segment]:
        if self._segments is None:
            segments: list[_Segment] = []
            if self._directory is not None:
                self._directory.mkdir(parents=True, exist_ok=True)
                _remove_other_versions(self._directory)
                try:
                    for path in sorted(self._directory.glob(_FILES)):
                        segments.append(_Segment(path))
                        self._numbers = int(path.stem.rpartition("-")[2])
                except sqlite3.Error:
                    for segment in segments:
                        segment.connection.close()
                    raise
            self._segments = segments
            if not segments:
                self._add_segment()
        return self._segments

    def _add_segment(self) -> None:
        assert self._segments is not None, "it is open"
        self._numbers += 1
        path = None
        if self._directory is not None:
            path = self._directory / f"tracking-{_VERSION}-{self._numbers:08d}.sqlite"
        segment = _Segment(path, self._segments[-1] if self._segments else None)
        self._segments.append(segment)

    def _make_room(self, timestamp_ms: int) -> None:
        segments = self._segments
        assert segments is not None, "it is open"
        newest = segments[-1]
        is_next_day = newest.last_ms is not None and (
            timestamp_ms // _DAY_MS > newest.last_ms // _DAY_MS
        )
        if is_next_day or newest.size_bytes >= self._bytes_max // _SEGMENTS_MIN:
            self._add_segment()
        while len(segments) > 1 and (
            (segments[0].last_ms or 0) < timestamp_ms - self._days_max * _DAY_MS
            or sum(each.size_bytes for each in segments) > self._bytes_max
        ):
            segments.pop(0).remove()

    def _set_damaged_aside(self) -> None:
        """Put away the files that do not hold together, and forget how far the logs were read."""
        for segment in self._segments or ():
            segment.connection.close()
        self._segments = None
        self._readings += 1
        if self._directory is None:
            return
        for path in sorted(self._directory.glob(_FILES)):
            try:
                segment = _Segment(path)
                with contextlib.closing(segment.connection) as connection:
                    (verdict,) = connection.execute("pragma quick_check(1)").fetchone()
                    if verdict != "ok":
                        raise sqlite3.DatabaseError(verdict)
                    connection.execute("delete from position")
                    connection.execute("delete from source")
                    connection.execute("delete from gap")
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self.set_aside += 1
                for part in self._directory.glob(f"{path.name}*"):
                    part.rename(part.with_name(f"damaged-{part.name}"))


def _remove_other_versions(directory: Path) -> None:
    """Remove the files of programs with other tables: the logs are read again."""
    for path in directory.glob("tracking-*.sqlite*"):
        if not path.name.startswith(f"tracking-{_VERSION}-"):
            path.unlink()


def _age(item: tuple[_Key, TrackedEvent]) -> tuple[int, bool, int, int]:
    (_, _, sequence, number), found = item
    # In one millisecond it is published before it is delivered; a node's own order stands.
    return found.event.at_ms, bool(found.event.subscription), sequence, number


def _begun_ms(events: Sequence[TrackedEvent]) -> int:
    """Before when nothing was told of a message with these events; 0 if that is not known."""
    if not events or events[0].event.subscription or events[0].event.via == Via.SPOOL.value:
        # Of what the spool sends its keeping may have been hours ago.
        return 0
    return events[0].event.at_ms - _SKEW_MS


def _unavailable(error: Exception) -> IndexUnavailable:
    return IndexUnavailable(f"the tracking index cannot be used: {error}")


@contextlib.contextmanager
def _transaction(segment: _Segment) -> Iterator[sqlite3.Connection]:
    connection = segment.connection
    connection.execute("begin")
    try:
        yield connection
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _insert(connection: sqlite3.Connection, log_dc: str, each: IndexedBatch) -> None:
    batch = each.batch
    sequence, losses, told_ms = batch.sequence - 1, UntoldEvents(), 0
    for held in connection.execute(
        "select sequence, dropped, dropped_terminal, uncovered, told_ms from source "
        "where log_dc = ? and boot = ?",
        (log_dc, batch.boot),
    ):
        sequence, *counts, told_ms = held
        losses = UntoldEvents(*counts)
    if batch.sequence <= sequence:
        # It was appended twice, for its answer was lost.
        return
    missing = batch.sequence - sequence - 1
    if missing or batch.losses != losses:
        connection.execute(
            "insert into gap values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                log_dc,
                batch.boot,
                batch.sequence,
                batch.node,
                told_ms,
                each.timestamp_ms,
                missing,
                batch.losses.dropped - losses.dropped,
                batch.losses.dropped_terminal - losses.dropped_terminal,
                batch.losses.uncovered - losses.uncovered,
            ),
        )
    # The node's own times: the log may have taken the batch much later.
    told_ms = max([told_ms, *(event.at_ms for event in batch.events)])
    connection.execute(
        "replace into source values (?, ?, ?, ?, ?, ?, ?)",
        (log_dc, batch.boot, batch.sequence, *astuple(batch.losses), told_ms),
    )
    connection.executemany(
        "insert or ignore into event values (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                log_dc,
                batch.boot,
                batch.sequence,
                number,
                batch.node,
                event.message_id.encode(),
                msgspec.msgpack.encode(event),
            )
            for number, event in enumerate(batch.events)
        ],
    )
    connection.execute(
        "insert into span values (0, ?) on conflict (one) "
        "do update set last_ms = max(last_ms, excluded.last_ms)",
        (each.timestamp_ms,),
    )
