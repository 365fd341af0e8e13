"""Converts chunks of an embedded log to Arrow batches of the common columns, column by column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.model.message import UndecodableRecord, from_record
from hermes_actors.model.record import StoredRecord

BATCH_RECORDS = 10_000
BATCH_BYTES = 16 << 20
"""A batch ends with the chunk that reaches either bound, because records may have
megabytes each.
"""


# Millions of these live for a moment. Without gc=False the garbage collector would visit them all
# repeatedly.
class StoredEntry(Struct, array_like=True, frozen=True, gc=False):
    """The fields of `Entry`, with the headers still encoded."""

    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: msgspec.Raw


class _Header(Struct, array_like=True, frozen=True, gc=False):
    name: str
    value: bytes


decode = msgspec.msgpack.Decoder(list[StoredEntry]).decode
"""For `read_chunks`."""
_decode_headers = msgspec.msgpack.Decoder(list[_Header]).decode

_Chunk = tuple[int, list[StoredEntry]]
_Said = tuple[list[bytes | None], list[bytes | None], list[bytes | None]]

_PLAIN = b"\x93\x92\xa2id\xc4"
"""The prefix of encoded headers if there are three, the first an id of at most 255 bytes."""


def batches(chunks: Iterable[_Chunk], schema: Any, constants: dict[str, Any]) -> Iterator[Any]:
    """Arrow record batches of that schema, with any selection of the common columns.

    `constants` has the columns that are the same for all: dc, topic and partition.
    """
    import pyarrow as pa

    for offsets, entries in _together(chunks):
        columns = _Columns(offsets, entries, constants)
        arrays = [columns.array(field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _together(chunks: Iterable[_Chunk]) -> Iterator[tuple[list[int], list[StoredEntry]]]:
    offsets: list[int] = []
    entries: list[StoredEntry] = []
    size = 0
    for first, more in chunks:
        offsets += range(first, first + len(more))
        entries += more
        size += sum([len(each.value) for each in more])
        if len(entries) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield offsets, entries
            offsets, entries, size = [], [], 0
    if entries:
        yield offsets, entries


class _Columns:
    def __init__(
        self, offsets: list[int], entries: list[StoredEntry], constants: dict[str, Any]
    ) -> None:
        self._offsets = offsets
        self._entries = entries
        self._constants = constants
        self._said: _Said | None = None

    def array(self, field: Any) -> Any:
        """The column with that name and type."""
        import pyarrow as pa

        if field.name in self._constants:
            return pa.repeat(pa.scalar(self._constants[field.name], field.type), len(self._offsets))
        if field.name == "headers":
            return _header_array([_decode_headers(each.headers) for each in self._entries], field)
        plain: dict[str, Callable[[], Sequence[Any]]] = {
            "offset": lambda: self._offsets,
            "timestamp_ms": lambda: [each.timestamp_ms for each in self._entries],
            "key": lambda: [each.key for each in self._entries],
            "value": lambda: [each.value for each in self._entries],
            "message_id": lambda: self._what_headers_say()[0],
            "published_dc": lambda: self._what_headers_say()[1],
            "via": lambda: self._what_headers_say()[2],
        }
        values = plain[field.name]()
        if not pa.types.is_string(field.type):
            return pa.array(values, field.type)
        try:
            return pa.array(values, pa.binary()).cast(field.type)
        except pa.ArrowInvalid:
            return pa.array(list(map(_text, values)), field.type)

    def _what_headers_say(self) -> _Said:
        """Ids, publishers' datacentres and routes, if their writers used UTF-8."""
        if self._said is None:
            self._said = _said_by(self._offsets, self._entries, self._constants)
        return self._said


def _said_by(
    offsets: Sequence[int], entries: Sequence[StoredEntry], constants: dict[str, Any]
) -> _Said:
    ids: list[bytes | None] = []
    dcs: list[bytes | None] = []
    ways: list[bytes | None] = []
    # The broker's headers of nearly all messages differ only in the id.
    after_id: dict[bytes, tuple[bytes | None, bytes | None] | None] = {}
    starts = len(_PLAIN) + 1
    for offset, entry in zip(offsets, entries, strict=True):
        headers = bytes(entry.headers)
        if headers.startswith(_PLAIN):
            end = starts + headers[starts - 1]
            rest = headers[end:]
            if rest not in after_id:
                after_id[rest] = _dc_and_via(rest)
            known = after_id[rest]
            raw_id = headers[starts:end]
            if known is not None and raw_id and raw_id.isascii():
                ids.append(raw_id)
                dcs.append(known[0])
                ways.append(known[1])
                continue
        last = {each.name: each.value for each in _decode_headers(headers)}
        ids.append(_id_of(offset, entry, last, constants))
        dcs.append(last.get("dc") or None)
        ways.append(last.get("via") or None)
    return ids, dcs, ways


def _dc_and_via(rest: bytes) -> tuple[bytes | None, bytes | None] | None:
    """Decode the two headers after the id as (dc, via); None if they are different ones."""
    dc, via = _decode_headers(b"\x92" + rest)
    return (dc.value or None, via.value or None) if (dc.name, via.name) == ("dc", "via") else None


def _id_of(
    offset: int, entry: StoredEntry, last: dict[str, bytes], constants: dict[str, Any]
) -> bytes:
    """The message's id as the broker reads it."""
    record = StoredRecord(
        constants["partition"],
        offset,
        entry.timestamp_ms,
        entry.key,
        entry.value,
        tuple(last.items()),
        f"{constants['dc']}:{constants['topic']}",
    )
    try:
        return from_record(record).id.encode()
    except UndecodableRecord:
        return record.place.encode()


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _header_array(headers: Sequence[Sequence[_Header]], field: Any) -> Any:
    import pyarrow as pa

    flat = list(chain.from_iterable(headers))
    struct = field.type.value_type
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([each.name for each in flat], struct[0].type),
            pa.array([each.value for each in flat], struct[1].type),
        ],
        fields=list(struct),
    )
    ends = accumulate(map(len, headers), initial=0)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=field.type)
