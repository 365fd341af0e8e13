"""Entries of an embedded log as Arrow batches of the common columns, made column by column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any

from hermes_actors.log.embedded_schema import Entry
from hermes_actors.model.message import UndecodableRecord, from_record
from hermes_actors.model.record import Record

BATCH_RECORDS = 10_000
BATCH_BYTES = 16 << 20
"""A batch ends with either: records may have megabytes each."""

Headers = tuple[tuple[str, bytes], ...]


def batches(
    entries: Iterable[tuple[int, Entry]], schema: Any, constants: dict[str, Any]
) -> Iterator[Any]:
    """Arrow record batches of that schema, whose columns are common ones, in any selection.

    `constants` gives the columns that are the same for all: dc, topic and partition.
    """
    import pyarrow as pa

    entries = iter(entries)
    while rows := _some(entries):
        offsets, stored = zip(*rows, strict=True)
        columns = _Columns(offsets, stored, constants)
        arrays = [columns.array(field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _some(entries: Iterator[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
    rows: list[tuple[int, Entry]] = []
    size = 0
    while len(rows) < BATCH_RECORDS and size < BATCH_BYTES:
        more = list(islice(entries, 1_000 if size < BATCH_BYTES // 16 else 16))
        if not more:
            break
        rows += more
        size += sum([len(entry[2]) for _, entry in more])
    return rows


class _Columns:
    def __init__(
        self, offsets: Sequence[int], entries: Sequence[Entry], constants: dict[str, Any]
    ) -> None:
        self._offsets = offsets
        self._timestamps, self._keys, self._values, self._headers = zip(*entries, strict=True)
        self._entries = entries
        self._constants = constants
        self._said: tuple[list[Any], list[Any], list[Any]] | None = None

    def array(self, field: Any) -> Any:
        """The column of that name and type."""
        import pyarrow as pa

        if field.name in self._constants:
            return pa.repeat(pa.scalar(self._constants[field.name], field.type), len(self._offsets))
        if field.name == "headers":
            return _header_array(self._headers, field.type)
        plain: dict[str, Callable[[], Sequence[Any]]] = {
            "offset": lambda: self._offsets,
            "timestamp_ms": lambda: self._timestamps,
            "key": lambda: self._keys,
            "value": lambda: self._values,
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

    def _what_headers_say(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Ids, the publishers' datacentres and ways: UTF-8, if their writers kept to it."""
        if self._said is not None:
            return self._said
        ids: list[bytes | None] = []
        dcs: list[bytes | None] = []
        ways: list[bytes | None] = []
        for at, headers in enumerate(self._headers):
            if len(headers) == 3:
                (first, message_id), (second, dc), (third, via) = headers
                # What the broker writes of nearly all messages.
                if first == "id" and second == "dc" and third == "via":
                    ids.append(message_id or None)
                    dcs.append(dc or None)
                    ways.append(via or None)
                    continue
            last = dict(headers)
            published_dc = last.get("dc") or None
            ids.append(last.get("id") or (None if published_dc else self._enveloped_id(at)))
            dcs.append(published_dc)
            ways.append(last.get("via") or None)
        self._said = ids, dcs, ways
        return self._said

    def _enveloped_id(self, at: int) -> bytes | None:
        timestamp_ms, key, value, _ = self._entries[at]
        if b'"_w":true' not in value:
            return None
        try:
            message = from_record(Record(key, value, (), timestamp_ms), lambda: "")
        except UndecodableRecord:
            return None
        return message.id.encode() or None


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _header_array(headers: Sequence[Headers], type_: Any) -> Any:
    import pyarrow as pa

    flat = list(chain.from_iterable(headers))
    names, values = zip(*flat, strict=True) if flat else ((), ())
    struct = type_.value_type
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, struct[0].type), pa.array(values, struct[1].type)],
        fields=list(struct),
    )
    ends = accumulate(map(len, headers), initial=0)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=type_)
