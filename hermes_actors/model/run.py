"""A run of records that differ in key, value and id only: what a batch publish hands to a log.

A log that takes it for a sequence of records is right; one that takes it by its columns does
without an object for each message.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from hermes_actors.model.record import Record

ID_HEADER = "id"
ID_BYTES = 36
"""A UUID in its usual text."""

RecordHeaders = tuple[tuple[str, bytes], ...]


class RecordRun(Sequence[Record]):
    """Records in columns: `values` and `ids` (UUIDs in ASCII) are as long as each other.

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
        assert not ids or len(ids[0]) == ID_BYTES, "an id is a UUID"
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

    def keys_of_each(self) -> Sequence[bytes | None]:
        """The key of each record."""
        keys = self.keys
        return [keys] * len(self) if keys is None or isinstance(keys, bytes) else keys

    @property
    def size_bytes(self) -> int:
        """The bytes that count against bounds: the records' `size_bytes` together."""
        keys = self.keys
        size = len(self) * self._common_bytes() + sum(map(len, self.values))
        if keys is None or isinstance(keys, bytes):
            return size
        return size + sum([len(key) for key in keys if key is not None])

    @property
    def largest_bytes(self) -> int:
        """`size_bytes` of its largest record."""
        keys = self.keys
        common = self._common_bytes()
        if keys is None or isinstance(keys, bytes):
            return common + max(map(len, self.values), default=0)
        sizes = [len(value) + len(key or b"") for value, key in zip(self.values, keys, strict=True)]
        return common + max(sizes, default=0)

    def _common_bytes(self) -> int:
        """Give the bytes of one record's key, id and headers, as far as all have the same."""
        common = len(ID_HEADER) + ID_BYTES
        for name, value in self.headers:
            common += len(name) + len(value)
        keys = self.keys
        return common + len(keys) if isinstance(keys, bytes) else common


def size_of(batch: Sequence[Record]) -> int:
    """Give the bytes of a batch that count against bounds: its records' `size_bytes` together."""
    if isinstance(batch, RecordRun):
        return batch.size_bytes
    return sum([record.size_bytes for record in batch])
