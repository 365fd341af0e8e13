"""Finds what an embedded log has lost while no process had it open, and makes the rest usable.

A log is damaged if a partition ends before the acknowledged end, if SQLite cannot read it, or if a
record's checksum is wrong. A database above READ_BYTES_MAX is not read completely at each start:
there a damaged record stops its partition when it is read, with an error that names it.
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
from hermes_actors.log.embedded.acknowledged import ACKNOWLEDGED_NAME, read_acknowledged
from hermes_actors.log.embedded.schema import (
    APPLICATION_ID,
    FILE_ERRORS,
    PartitionRow,
    chunk_id,
    open_read_only,
    read_topics,
)

READ_BYTES_MAX = 256 * 1024 * 1024
"""A database up to this size is read completely at each start."""
_DAMAGED = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR_SHORT_READ,
)
"""SQLite's codes for a damaged file. Other codes (locked, no room for its -shm file, too many open
files, a failing disk) do not mean damage.
"""
UNKNOWN_TOPIC = "topics that are not known"

Gap = tuple[int, int, int]
"""(partition id, first offset, end) of records that are missing or damaged."""


class LogDamage(Struct):
    """The numbers of missing records by topic, and their ranges. `unreadable`: why SQLite cannot
    read the database; then all of it is missing.
    """

    missing: Counter[str] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)
    unreadable: str = ""

    @property
    def text(self) -> str:
        """The damage and its cost, in one line."""
        count = self.missing.total()
        topics = ", ".join(f"{n} of {topic}" for topic, n in sorted(self.missing.items()) if n)
        verb = "record is" if count == 1 else "records are"
        cost = f"{count} acknowledged {verb} missing" + (f" ({topics})" if topics else "")
        return f"{self.unreadable}; {cost}" if self.unreadable else cost


def find_damage(path: Path, *, reads_all: bool = False) -> LogDamage | None:
    """Check a log that no process has open, without changing it. None if nothing is missing.
    `reads_all`: read a database above READ_BYTES_MAX completely, too. Raises OSError.
    """
    known = read_acknowledged(path.with_name(ACKNOWLEDGED_NAME))
    if not path.exists() or path.stat().st_size == 0:
        lost = sum(known.values())
        # SQLite would treat an empty file as a new log.
        return _all_of(known, f"{path.name} is gone or empty") if lost or path.exists() else None
    reads_all = reads_all or path.stat().st_size <= READ_BYTES_MAX
    try:
        with closing(open_read_only(path)) as connection:
            connection.execute("BEGIN")
            damage = _read(connection, known, reads_all=reads_all)
    except FILE_ERRORS as error:
        # SQLite's messages may quote the damaged bytes, including line ends.
        reason = " ".join(str(error).split())
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code not in _DAMAGED and code & 0xFF not in _DAMAGED:
            raise OSError(reason) from error
        return _all_of(known, f"{path.name} cannot be read: {reason}")
    return damage if damage.missing.total() or damage.gaps else None


def _all_of(known: dict[int, int], reason: str) -> LogDamage:
    return LogDamage(Counter({UNKNOWN_TOPIC: sum(known.values())}), unreadable=reason)


def _read(connection: sqlite3.Connection, known: dict[int, int], *, reads_all: bool) -> LogDamage:
    damage = LogDamage()
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        # Without acknowledged records it was never a log; opening it reports that.
        return _all_of(known, "its header is not a log's") if known else damage
    if reads_all:
        for (line,) in connection.execute("PRAGMA quick_check(1)"):
            if line != "ok":
                raise sqlite3.DatabaseError(line)
    for topic in read_topics(connection):
        for partition in topic.partitions:
            gaps = list(_gaps(connection, partition)) if reads_all else []
            damage.gaps += gaps
            damage.missing[topic.name] += sum(end - first for _, first, end in gaps)
            damage.missing[topic.name] += max(known.get(partition.id, 0) - partition.end, 0)
    # SQLite uses each id once: a lower id without a topic was deleted, a higher one is lost.
    highest = connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()[0] or 0
    damage.missing[UNKNOWN_TOPIC] += sum(end for each, end in known.items() if each > highest)
    return damage


def _gaps(connection: sqlite3.Connection, partition: PartitionRow) -> Iterator[Gap]:
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


def refusal(path: Path, damage: LogDamage) -> DamageFound:
    """The error of a start without permission to lose anything."""
    cost = "continue without them"
    if damage.unreadable:
        cost = "begin an empty log, without its topics and subscriptions"
    return DamageFound(
        f"{path}: the log is damaged: {damage.text}; restore {path.parent} from a copy, or start "
        f"once with --accept-damage to {cost} (the damaged files are kept next to it)"
    )


def set_aside(path: Path, damage: LogDamage) -> list[Path]:
    """Keep the damaged files under other names, and make the rest usable. Returns the new names.
    Raises OSError, sqlite3.Error.
    """
    wal, shm = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    number = 1
    while list(path.parent.glob(f"*.damaged-{number}")):
        number += 1
    kept = []
    for each in (path, wal, path.with_name(ACKNOWLEDGED_NAME)):
        # A database may be large: it is copied only if records in it will be replaced.
        if each.exists() and (damage.gaps or damage.unreadable or each != path):
            aside = each.with_name(f"{each.name}.damaged-{number}")
            if damage.unreadable:
                each.replace(aside)
            else:
                shutil.copyfile(each, aside)
            kept.append(aside)
    if damage.unreadable:
        shm.unlink(missing_ok=True)
    elif damage.gaps:
        _close_gaps(path, damage.gaps)
    return kept


def _close_gaps(path: Path, gaps: list[Gap]) -> None:
    """Insert rows without content for missing records, which readers skip. If the last records of a
    partition are missing, it ends before them.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        # Backwards, so that everything after a gap is already sound or removed.
        for partition_id, first, end in reversed(gaps):
            base, behind = chunk_id(partition_id, 0), chunk_id(partition_id + 1, 0)
            at = chunk_id(partition_id, first)
            (high_ms,) = connection.execute(
                "SELECT max(high_ms) FROM chunk WHERE id < ? AND id >= ?", (at, base)
            ).fetchone()
            # Retention may have removed the beginning of a damaged chunk: delete the whole chunk.
            connection.execute(
                "DELETE FROM chunk WHERE id >= ? AND id < ? AND id + records > ?",
                (base, chunk_id(partition_id, end), at),
            )
            connection.execute(
                "INSERT INTO chunk SELECT ?, ?, ?, 0, x''"
                " WHERE EXISTS (SELECT 1 FROM chunk WHERE id >= ? AND id < ?)",
                (at, end - first, high_ms or 0, at, behind),
            )
        connection.execute("COMMIT")
