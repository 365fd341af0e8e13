"""The embedded log's file: its tables, the encoding of records, and the read-only queries.

A partition's records are in *chunks*: a row for each run of records that were appended together. A
chunk's id combines its partition's id and its first offset in one integer, so a partition is one
range of the table. A chunk's `high_ms` is the highest timestamp of its partition so far, so chunks
can be searched by time without an index. `checksum` is the CRC-32 of the content. A chunk without
content represents records that were lost to damage, which an operator has accepted.

Another process may read the file while a node writes it: open it with `open_read_only`. Nothing
here needs an event loop.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.cursor import Room
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.run import ID_BYTES, ID_HEADER, RecordRun

FILE_NAME = "log.sqlite"
LOCK_NAME = "log.lock"
APPLICATION_ID = 0x484C4F47
"""The application id in the file's header: "HLOG"."""
SCHEMA_VERSION = 1
OFFSET_BITS = 40
"""A partition holds up to 2^40 records; a file has up to 2^23 partitions over its life."""
PARTITION_ID_MAX = (1 << 63 - OFFSET_BITS) - 1

SCHEMA = """
CREATE TABLE topic (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    retention_ms INTEGER,
    record_bytes_max INTEGER NOT NULL,
    log_append_time INTEGER NOT NULL
) STRICT;
-- A dropped partition has no topic; its row goes when its chunks are gone. `start` is the first
-- offset held, `high_ms` the highest timestamp at the time it was set.
CREATE TABLE partition (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic_id INTEGER,
    number INTEGER NOT NULL,
    start INTEGER NOT NULL DEFAULT 0,
    high_ms INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic_id, number)
) STRICT;
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY,
    records INTEGER NOT NULL,
    high_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE TABLE group_commit (
    group_name TEXT NOT NULL,
    topic_id INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    position INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (group_name, topic_id, partition)
) STRICT, WITHOUT ROWID;
"""

T = TypeVar("T")
Entry = tuple[int, bytes | None, bytes, tuple[tuple[str, bytes], ...]]
"""A record in a chunk: timestamp_ms, key, value, headers. Its offset follows from its place."""

_encoder = msgspec.msgpack.Encoder()

decode_entries: Callable[[bytes], list[Entry]] = msgspec.msgpack.Decoder(list[Entry]).decode
"""Decodes the content of a chunk, for `decode_chunk` and `read_chunks`."""


class CorruptLog(Exception):
    """The file contains something that was not written by the log."""


FILE_ERRORS = (sqlite3.Error, CorruptLog, UnicodeDecodeError)
"""The errors of reading a damaged file. SQLite's messages may quote bytes that are not UTF-8."""


class PartitionRow(Struct):
    """A partition in the file; it holds offsets from `start` to below `end`."""

    id: int
    number: int
    start: int
    end: int
    high_ms: int


class TopicRow(Struct):
    """A topic in the file, with its partitions in order of number."""

    id: int
    name: str
    settings: TopicSettings
    partitions: list[PartitionRow]


def chunk_id(partition_id: int, offset: int) -> int:
    """The id of a chunk that begins at this offset."""
    return partition_id << OFFSET_BITS | offset


def encode_entry(entry: Entry) -> bytes:
    """Encode one record for `encode_chunk`. Raises ValueError for invalid Unicode, TypeError."""
    return _encoder.encode(entry)


def encode_run(run: RecordRun, timestamp_ms: int) -> bytes:
    """Encode the records of a run for `encode_chunk`; the same bytes as `encode_entry` for each,
    joined.
    """
    encode = _encoder.encode
    lengths = list(map(len, run.values))
    sizes = {length: _bin_header(length) for length in set(lengths)}
    front = b"\x94" + encode(timestamp_ms)
    keys = run.keys
    fields: Iterable[bytes]
    if keys is None or isinstance(keys, bytes):
        fields = repeat(encode(keys))
    else:
        of_key = {key: encode(key) for key in set(keys)}
        fields = map(of_key.__getitem__, keys)
    model = encode(((ID_HEADER, bytes(ID_BYTES)), *run.headers))
    before_id, after_id = model.split(bytes(ID_BYTES), 1)
    columns = zip(
        repeat(front),
        fields,
        map(sizes.__getitem__, lengths),
        run.values,
        repeat(before_id),
        run.ids,
        repeat(after_id),
        strict=False,
    )
    return b"".join(chain.from_iterable(columns))


def _bin_header(length: int) -> bytes:
    if length < 1 << 8:
        return b"\xc4" + length.to_bytes(1, "big")
    if length < 1 << 16:
        return b"\xc5" + length.to_bytes(2, "big")
    return b"\xc6" + length.to_bytes(4, "big")


def encode_chunk(entries: Sequence[bytes], records: int) -> tuple[int, bytes]:
    """Return (checksum, content): a MessagePack array of the entries, which have this number of
    records.
    """
    content = b"\xdd" + records.to_bytes(4, "big") + b"".join(entries)
    return zlib.crc32(content), content


def decode_chunk(
    records: int, checksum: int, content: bytes, decode: Callable[[bytes], list[T]]
) -> list[T]:
    """The inverse of `encode_chunk`; empty for records that are known to be lost. `decode` is
    `decode_entries`, or another decoder. Raises CorruptLog.
    """
    if zlib.crc32(content) != checksum:
        raise CorruptLog("its checksum does not match")
    if not content:
        return []
    try:
        entries = decode(content)
    except msgspec.DecodeError as error:
        raise CorruptLog(str(error)) from error
    if len(entries) != records:
        raise CorruptLog(f"it has {len(entries)} records instead of {records}")
    return entries


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a read-only connection that sees each committed state; any one thread at a time may use
    it. Raises sqlite3.Error.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0
    )


def read_topics(connection: sqlite3.Connection) -> list[TopicRow]:
    """Return all topics, sorted by name. Inside a transaction they are consistent. Raises
    CorruptLog, sqlite3.Error.
    """
    topics = {
        row[0]: TopicRow(row[0], row[1], TopicSettings(0, row[2], row[3], bool(row[4])), [])
        for row in connection.execute(
            "SELECT id, name, retention_ms, record_bytes_max, log_append_time"
            " FROM topic ORDER BY name"
        )
    }
    for topic_id, row_id, number, start, high_ms in connection.execute(
        "SELECT topic_id, id, number, start, high_ms FROM partition"
        " WHERE topic_id IS NOT NULL ORDER BY topic_id, number"
    ).fetchall():
        last = connection.execute(
            "SELECT id, records, high_ms FROM chunk"
            " WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1",
            (chunk_id(row_id, 0), chunk_id(row_id + 1, 0)),
        ).fetchone()
        end = start
        if last is not None:
            end = max(start, last[0] - chunk_id(row_id, 0) + last[1])
            high_ms = max(high_ms, last[2])
        topic = topics.get(topic_id)
        if topic is None or number != len(topic.partitions):
            raise CorruptLog(f"partition {row_id} has no place in a topic")
        topic.partitions.append(PartitionRow(row_id, number, start, end, high_ms))
    for topic in topics.values():
        topic.settings = msgspec.structs.replace(topic.settings, partitions=len(topic.partitions))
    return list(topics.values())


def read_commits(
    connection: sqlite3.Connection, group: str, topic_id: int
) -> list[tuple[int, int, str]]:
    """Return (partition, position, metadata) of each commit of the group, sorted."""
    return connection.execute(
        "SELECT partition, position, metadata FROM group_commit"
        " WHERE group_name = ? AND topic_id = ? ORDER BY partition",
        (group, topic_id),
    ).fetchall()


def read_chunks(
    connection: sqlite3.Connection,
    partition_id: int,
    position: int,
    end: int,
    decode: Callable[[bytes], list[T]],
) -> Iterator[tuple[int, list[T]]]:
    """Yield (first offset, entries) of each chunk, in order and without gaps, from `position` to
    below `end`. `decode` is that of `decode_chunk`.

    Close the iterator if it is not read to its end: an open one prevents SQLite from shrinking its
    write-ahead log. Raises CorruptLog, sqlite3.Error.
    """
    base = chunk_id(partition_id, 0)
    next_offset = position
    with closing(
        connection.execute(
            "SELECT id, records, checksum, content FROM chunk WHERE id < ? AND id >="
            " (SELECT max(id) FROM chunk WHERE id >= ? AND id <= ?) ORDER BY id",
            (base + end, base, base + position),
        )
    ) as rows:
        for row_id, records, checksum, content in rows:
            first = row_id - base
            if not first <= next_offset < first + records:
                break
            try:
                entries = decode_chunk(records, checksum, content, decode)
            except CorruptLog as error:
                raise CorruptLog(f"the chunk at offset {first} is damaged: {error}") from error
            if entries:
                yield next_offset, entries[next_offset - first : end - first]
            next_offset = first + records
    if next_offset < end:
        raise CorruptLog(f"offset {next_offset} is missing")


def read_entries(
    connection: sqlite3.Connection, partition_id: int, position: int, end: int
) -> Iterator[tuple[int, Entry]]:
    """Yield (offset, entry) from `position` to below `end`; otherwise as `read_chunks`."""
    chunks = read_chunks(connection, partition_id, position, end, decode_entries)
    with closing(chunks):  # type: ignore[type-var]
        for first, entries in chunks:
            yield from enumerate(entries, first)


def read_batch(
    connection: sqlite3.Connection,
    partition: PartitionRow,
    position: int,
    room: Room,
    origin: str = "",
) -> list[StoredRecord]:
    """Return records from `position` as far as there is room, stopping before damage. Raises like
    `read_entries`; CorruptLog only if the first record is damaged.
    """
    batch: list[StoredRecord] = []
    number = partition.number
    with closing(read_entries(connection, partition.id, position, partition.end)) as entries:  # type: ignore[type-var]
        try:
            for offset, (timestamp_ms, key, value, headers) in entries:
                record = StoredRecord(number, offset, timestamp_ms, key, value, headers, origin)
                if not room.take(record.size_bytes):
                    break
                batch.append(record)
        except CorruptLog:
            if not batch:
                raise
    return batch


def read_position_at(
    connection: sqlite3.Connection, partition: PartitionRow, timestamp_ms: int
) -> int:
    """Return the first offset in [start, end) with that timestamp or a later one, else the end.
    Raises like `read_entries`.
    """
    base = chunk_id(partition.id, 0)
    low, high = partition.start, partition.end
    # `high_ms` never decreases along a partition: find the first chunk that reaches the time.
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT id, records, high_ms FROM chunk WHERE id <= ? AND id >= ?"
            " ORDER BY id DESC LIMIT 1",
            (base + middle, base),
        ).fetchone()
        if row is None:
            raise CorruptLog(f"offset {middle} is missing")
        if row[2] >= timestamp_ms:
            high = row[0] - base
        else:
            low = row[0] - base + row[1]
    # That maximum may come from a record that retention removed, so check the records themselves.
    position = max(low, partition.start)
    if position >= partition.end:
        return partition.end
    with closing(read_entries(connection, partition.id, position, partition.end)) as entries:  # type: ignore[type-var]
        for offset, entry in entries:
            if entry[0] >= timestamp_ms:
                return offset
    return partition.end
