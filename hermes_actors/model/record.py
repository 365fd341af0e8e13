"""The records of a log: before they are appended, and as stored."""

from typing import NewType

from msgspec import Struct

Partition = NewType("Partition", int)
Offset = NewType("Offset", int)
Headers = tuple[tuple[str, bytes], ...]


class Record(Struct, frozen=True, gc=False):
    """A record to append. `timestamp_ms` is when the message was received (Unix epoch)."""

    key: bytes | None
    value: bytes
    headers: Headers
    timestamp_ms: int

    @property
    def size_bytes(self) -> int:
        """The size that counts against batch and memory bounds: value, key and headers."""
        size = len(self.value) + (len(self.key) if self.key else 0)
        for name, value in self.headers:
            size += len(name) + len(value)
        return size


class StoredRecord(Struct, frozen=True, gc=False):
    """A record and its place. `timestamp_ms` is the log's; it never goes back if the topic stamps
    by log-append time.

    `origin` is `<datacentre>:<topic of the log>`. A tombstone is a Kafka record whose value is
    null; its `value` is empty here.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers
    origin: str = ""
    is_tombstone: bool = False

    @property
    def place(self) -> str:
        """The record's place in the logs of all datacentres, which no other record has."""
        return f"{self.origin}:{self.partition}:{self.offset}"

    @property
    def size_bytes(self) -> int:
        """The size that counts against batch and memory bounds: value, key and headers."""
        size = len(self.value) + (len(self.key) if self.key else 0)
        for name, value in self.headers:
            size += len(name) + len(value)
        return size
