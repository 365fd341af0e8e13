"""The search for losses of an embedded log that no process has open, before anything is changed.

Covered are the write-ahead log, the ends of all partitions by what was acknowledged, and, up to
READ_BYTES_MAX, each page and each record of the database. A larger one is not read through at the
start: a damaged record there is found by whoever reads it.
"""

import shutil
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct, field

from hermes_actors.errors import DamageFound
from hermes_actors.log.embedded.acknowledged import (
    ACKNOWLEDGED_NAME,
    Known,
    read_acknowledged,
)
from hermes_actors.log.embedded.schema import (
    APPLICATION_ID,
    FILE_ERRORS,
    PartitionRow,
    TopicRow,
    chunk_id,
    open_read_only,
    read_topics,
)
from hermes_actors.log.embedded.wal import find_damage, wal_of

READ_BYTES_MAX = 256 * 1024 * 1024
"""A database up to this size is read through at each start."""
LOST_TOPIC = ""
"""Counted under this name is what topics have lost that cannot be told any more."""

Gap = tuple[int, int, int]
"""(partition id, first offset, end) of records that are not there or not as they were."""


class LogContent(Struct):
    """The readable part of a log: topics, numbers of missing records by topic, and where they are.

    `knows_ends`: this version of the program has written it, so that the file beside must be there.
    `unreadable`: why SQLite cannot read it; then all is missing.
    """

    topics: list[TopicRow] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    knows_ends: bool = False
    unreadable: str = ""


class LogDamage(Struct):
    """The damage of a log, in words, and the best content that can be gone on with.

    `uses_wal`: with what SQLite takes of the write-ahead log.
    """

    reasons: list[str]
    uses_wal: bool
    content: LogContent

    @property
    def messages(self) -> int:
        """How many acknowledged records are missing, as far as that is known: messages, and what
        the broker itself keeps.
        """
        return self.content.missing.total()

    @property
    def text(self) -> str:
        """The damage and its cost, without a way out."""
        return f"{'; '.join(self.reasons)}; {self._cost}"

    @property
    def _cost(self) -> str:
        if not self.messages:
            return "no record is known to be missing"
        missing = self.content.missing
        unknown = missing[LOST_TOPIC]
        parts = [
            f"{count} of {topic}"
            for topic, count in sorted(missing.items())
            if count and topic != LOST_TOPIC
        ]
        if unknown and parts:
            parts.append(f"{unknown} of topics that are not known")
        elif unknown:
            parts.append("which topics' is not known; the broker's own records are among them")
        noun = "record is" if self.messages == 1 else "records are"
        return f"{self.messages} {noun} missing ({', '.join(parts)})"


def find_all_damage(path: Path, *, reads_all: bool = False) -> LogDamage | None:
    """Look at a log that no process has open; None when it is as it was left, or torn at its end.
    `reads_all`: also a database above READ_BYTES_MAX is read through.

    Nothing is changed. Raises OSError, and StartupError for a file that is no log.
    """
    known = read_acknowledged(path.with_name(ACKNOWLEDGED_NAME))
    wal = wal_of(path)
    if not path.exists():
        if known is None and not wal.exists():
            return None
        return LogDamage([f"{path.name} is gone"], False, _nothing("is gone", known))
    if path.stat().st_size == 0:
        # SQLite would take it for a new one.
        return LogDamage([f"{path.name} is empty"], False, _nothing("is empty", known))
    reasons = []
    if wal.exists():
        if (found := find_damage(path)) is not None:
            reasons.append(
                f"{wal.name} is damaged at byte {found.at}, where {found.transactions} transactions"
                " follow that were whole once"
            )
    elif known is not None and known.was_closed is False:
        reasons.append(f"{wal.name} is gone, although the log was not closed in good order")
    if known is not None and not known.is_whole:
        reasons.append(f"{ACKNOWLEDGED_NAME} is damaged")
    reads_all = reads_all or bool(reasons) or path.stat().st_size <= READ_BYTES_MAX
    content = _look(path, known, with_wal=wal.exists(), reads_all=reads_all)
    if content.unreadable:
        reasons.append(f"{path.name} cannot be read: {content.unreadable}")
    elif known is None and content.knows_ends:
        reasons.append(f"{ACKNOWLEDGED_NAME} is gone")
    if not reasons and content.missing.total():
        reasons.append(f"{path.name} or {wal.name} is damaged or has lost its end")
    return _best(path, known, reasons, content) if reasons else None


def _best(path: Path, known: Known | None, reasons: list[str], content: LogContent) -> LogDamage:
    """Go on with the write-ahead log as far as it is whole, without it, or with nothing."""
    uses_wal = wal_of(path).exists()
    if uses_wal and (content.unreadable or content.missing.total()):
        alone = _look(path, known, with_wal=False, reads_all=True)
        if not alone.unreadable and (
            content.unreadable or alone.missing.total() < content.missing.total()
        ):
            content, uses_wal = alone, False
    return LogDamage(reasons, uses_wal and not content.unreadable, content)


def set_aside(path: Path, damage: LogDamage, suffix: str) -> list[Path]:
    """Keep what is damaged under another name, so that the log can be opened; the new names.

    Raises OSError.
    """
    copied = [wal_of(path), path.with_name(ACKNOWLEDGED_NAME)]
    moved = []
    if damage.content.unreadable:
        moved, copied = [path, *copied], []
    elif not damage.uses_wal:
        moved, copied = copied[:1], copied[1:]
    if damage.content.gaps:
        copied.append(path)
    kept = []
    for each in (*copied, *moved):
        if each.exists():
            aside = each.with_name(f"{each.name}.{suffix}")
            if each in moved:
                each.replace(aside)
            else:
                shutil.copyfile(each, aside)
            kept.append(aside)
    # It belongs to the files that were here; SQLite makes it anew.
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    return kept


def refusal(path: Path, damage: LogDamage) -> DamageFound:
    """The error of a start that nobody has allowed to lose anything."""
    cost = "go on without them"
    if damage.content.unreadable:
        cost = "begin an empty log, without any topic and subscription of this one"
    return DamageFound(
        f"{path}: the log is damaged: {damage.text}; restore {path.parent} from a copy, or start "
        f"once with --accept-damage to {cost} (the damaged files are kept beside)"
    )


def _look(path: Path, known: Known | None, *, with_wal: bool, reads_all: bool) -> LogContent:
    """Read what the database holds and misses; where SQLite cannot read it, only why."""
    try:
        with closing(_connect(path, with_wal=with_wal)) as connection:
            connection.execute("BEGIN")
            return _read(connection, known, reads_all=reads_all)
    except FILE_ERRORS as error:
        # SQLite's own texts may quote what is damaged, line ends and all.
        return _nothing(" ".join(str(error).split()), known)


def _connect(path: Path, *, with_wal: bool) -> sqlite3.Connection:
    if with_wal:
        return open_read_only(path)
    # As it stands: even a reader would make a write-ahead log where there is none.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None
    )


def _read(connection: sqlite3.Connection, known: Known | None, *, reads_all: bool) -> LogContent:
    content = LogContent()
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        # Without a file beside it never was one, and the opening says so.
        return content if known is None else _nothing("its header is not a log's", known)
    if reads_all:
        for (line,) in connection.execute("PRAGMA quick_check(1)"):
            if line != "ok":
                raise sqlite3.DatabaseError(line)
    content.knows_ends = knows_ends(connection)
    content.topics = read_topics(connection)
    ends = {} if known is None else known.ends
    unknown = dict(ends)
    for topic in content.topics:
        for partition in topic.partitions:
            end = unknown.pop(partition.id, 0)
            if reads_all:
                content.gaps += _gaps(connection, partition)
            content.missing[topic.name] += max(end - partition.end, 0)
            content.missing[topic.name] += sum(
                stop - first for owner, first, stop in content.gaps if owner == partition.id
            )
    for (dropped,) in connection.execute("SELECT id FROM partition WHERE topic_id IS NULL"):
        unknown.pop(dropped, None)
    content.missing[LOST_TOPIC] += sum(unknown.values())
    return content


def _gaps(connection: sqlite3.Connection, partition: PartitionRow) -> Iterator[Gap]:
    """Give the partition's gaps between start and end: chunks that are missing or damaged."""
    base = chunk_id(partition.id, 0)
    at = partition.start
    for row_id, records, checksum, content in connection.execute(
        "SELECT id, records, checksum, content FROM chunk"
        " WHERE id >= ? AND id < ? AND id + records > ? ORDER BY id",
        (base, chunk_id(partition.id + 1, 0), base + at),
    ):
        first = row_id - base
        if first > at:
            yield partition.id, at, first
        if zlib.crc32(content) != checksum:
            yield partition.id, max(first, at), first + records
        at = first + records


def knows_ends(connection: sqlite3.Connection) -> bool:
    """True when ends are kept beside the database, so that their file must be there."""
    return bool(
        connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'ends_are_beside'"
        ).fetchone()[0]
    )


def _nothing(unreadable: str, known: Known | None) -> LogContent:
    lost = 0 if known is None else sum(known.ends.values())
    return LogContent(missing=Counter({LOST_TOPIC: lost}), unreadable=unreadable)
