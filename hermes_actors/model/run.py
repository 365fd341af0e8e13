"""A run of records that differ in key, value and id only: what a batch publish hands to a log.

A log that takes it for a sequence of records is right; one that takes it by its columns does
without an object for each message.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from hermes_actors.model.record import Record

ID_HEADER = "id"
RecordHeaders = tuple[tuple[str, bytes], ...]


class RecordRun(Sequence[Record]):
    """Records in columns: `values` and `ids` are as long as each other.

    `keys` is one key (or None) for all, or one for each. Each record's headers are its id, then
    `headers`. `timestamp_ms` is that of all.
    """

    __slots__ = ("headers", "ids", "keys", "timestamp_ms", "values")

    def __init__(
        self,
        values: Sequence[bytes],
        ids: Sequence[bytes],
        headers: RecordHeaders,
        timestamp_ms: int,
        keys: Sequence[bytes | None] | bytes | None = None,
    ) -> None:
        assert len(values) == len(ids), "a value and an id for each record"
        assert keys is None or isinstance(keys, bytes) or len(keys) == len(ids), "a key for each"
        self.values = values
        self.ids = ids
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.keys = keys

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> "RecordRun": ...

    def __getitem__(self, at: int | slice) -> "Record | RecordRun":
        if isinstance(at, slice):
            keys = self.keys
            return RecordRun(
                self.values[at],
                self.ids[at],
                self.headers,
                self.timestamp_ms,
                keys if keys is None or isinstance(keys, bytes) else keys[at],
            )
        return Record(
            key=self.key(at),
            value=self.values[at],
            headers=((ID_HEADER, self.ids[at]), *self.headers),
            timestamp_ms=self.timestamp_ms,
        )

    def __iter__(self) -> Iterator[Record]:
        return map(self.__getitem__, range(len(self)))

    def key(self, at: int) -> bytes | None:
        """The key of one record."""
        keys = self.keys
        return keys if keys is None or isinstance(keys, bytes) else keys[at]

    @property
    def headers_bytes(self) -> int:
        """What the common headers of one record come to, without its id's."""
        return sum(len(name) + len(value) for name, value in self.headers)

    def sizes_bytes(self) -> list[int]:
        """`size_bytes` of each record."""
        base = self.headers_bytes + len(ID_HEADER)
        keys = self.keys
        if keys is None or isinstance(keys, bytes):
            base += len(keys or b"")
            return [
                base + len(value) + len(each)
                for value, each in zip(self.values, self.ids, strict=True)
            ]
        return [
            base + len(value) + len(each) + len(key or b"")
            for value, each, key in zip(self.values, self.ids, keys, strict=True)
        ]


def sizes_bytes(batch: Sequence[Record]) -> list[int]:
    """`size_bytes` of each record of a batch, in order."""
    if isinstance(batch, RecordRun):
        return batch.sizes_bytes()
    return [record.size_bytes for record in batch]
