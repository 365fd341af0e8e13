"""A run of records that differ only in key, value and id: what a batch publish hands to a log.

A log may treat it as a sequence of records. Using its columns avoids an object for each message.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from hermes_actors.model.record import Record

ID_HEADER = "id"
ID_BYTES = 36
"""The length of a UUID as text."""

RecordHeaders = tuple[tuple[str, bytes], ...]


class RecordRun(Sequence[Record]):
    """Records in columns: `values` and `ids` (UUIDs in ASCII) have the same length.

    `keys` is one key (or None) for all, or a key for each. A record's headers are its id and
    `headers`. All share `timestamp_ms`.
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
        """The total `size_bytes` of the records."""
        keys = self.keys
        size = len(self) * self._common_bytes() + sum(map(len, self.values))
        if keys is None or isinstance(keys, bytes):
            return size
        return size + sum([len(key) for key in keys if key is not None])

    @property
    def largest_bytes(self) -> int:
        """The `size_bytes` of its largest record."""
        keys = self.keys
        common = self._common_bytes()
        if keys is None or isinstance(keys, bytes):
            return common + max(map(len, self.values), default=0)
        sizes = [len(value) + len(key or b"") for value, key in zip(self.values, keys, strict=True)]
        return common + max(sizes, default=0)

    def _common_bytes(self) -> int:
        """Return the size of the parts of a record that are the same for all."""
        common = len(ID_HEADER) + ID_BYTES
        for name, value in self.headers:
            common += len(name) + len(value)
        keys = self.keys
        return common + len(keys) if isinstance(keys, bytes) else common


def size_of(batch: Sequence[Record]) -> int:
    """Return the total `size_bytes` of a batch."""
    if isinstance(batch, RecordRun):
        return batch.size_bytes
    return sum([record.size_bytes for record in batch])
