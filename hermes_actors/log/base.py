"""The log interface: partitioned topics of records, appended in batches; one Log for each
datacentre.

Every implementation passes the same contract suite (tests/contract/). All methods are trio
coroutines. An error of the store itself (full disk, corrupt file, unreachable broker) raises
LogUnavailable; an append never raises it, but reports it for each record.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol, TypeGuard, overload

from msgspec import Struct

from hermes_actors.errors import ErrorCode, Unavailable
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack

COMMIT_METADATA_BYTES_MAX = 4_000
"""Maximum size of a commit's metadata: Kafka accepted 4,000 bytes and refused 5,000."""


class LogUnavailable(Unavailable):
    """The log cannot be reached or used now; nothing is known to have been done."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OTHER, 503)


class UnknownTopic(Exception):
    """The log has no topic of that name."""


class OffsetOutOfRange(Exception):
    """The position is below the start of a partition (retention removed it), or above its end."""

    def __init__(self, topic: str, partition: int, position: int, start: int, end: int) -> None:
        super().__init__(f"{topic}/{partition}: {position} is not in [{start}, {end}]")
        self.topic = topic
        self.partition = partition
        self.position = position
        self.start = start
        self.end = end


class Stored(Struct, frozen=True, gc=False):
    """The record is durable at the requested ack level, at this offset."""

    offset: int


class RefusedRecord(Struct, frozen=True, gc=False):
    """The record was not stored, and a retry would fail too: too large, or no such topic."""

    reason: str
    is_too_large: bool = False


class UnavailableRecord(Struct, frozen=True, gc=False):
    """The record was not stored; a retry may succeed."""

    reason: str


class UnknownRecord(Struct, frozen=True, gc=False):
    """Timed out, cancelled or interrupted: the record may have been stored, or may still be."""

    reason: str


Outcome = Stored | RefusedRecord | UnavailableRecord | UnknownRecord


class StoredRun(Sequence[Stored]):
    """The outcomes of records that were all stored, at consecutive offsets from `first`."""

    __slots__ = ("_offsets",)

    def __init__(self, first: int, length: int) -> None:
        self._offsets = range(first, first + length)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> Stored: ...

    @overload
    def __getitem__(self, at: slice) -> "Sequence[Stored]": ...

    def __getitem__(self, at: int | slice) -> "Stored | Sequence[Stored]":
        if isinstance(at, int):
            return Stored(self._offsets[at])
        found = self._offsets[at]
        if found.step == 1:
            return StoredRun(found.start, len(found))
        return [Stored(offset) for offset in found]


def is_all_stored(outcomes: Sequence[object]) -> TypeGuard[StoredRun]:
    """True if all records were stored as one run."""
    return type(outcomes) is StoredRun


def stored_count(outcomes: Sequence[object]) -> int:
    """How many of these records are stored."""
    if is_all_stored(outcomes):
        return len(outcomes)
    return sum([type(outcome) is Stored for outcome in outcomes])


class TopicSettings(Struct, frozen=True):
    """A topic's settings in a log; `retention_ms` None keeps records for ever.

    `record_bytes_max`: a larger record is refused. Kafka limits batches instead, so there records
    of up to 4 KiB more are stored.

    `log_append_time`: the log stamps records with its own wall clock. The stamps of the embedded
    log never go back, and advance more slowly while that clock is behind (`AppendTime`).

    `copies_min`: with ack ALL so many replicas hold a record when it is acknowledged. It never goes
    down; the log's own configuration may demand more. `first`: the number of the first partition,
    as readers see it.
    """

    partitions: int = 1
    retention_ms: int | None = None
    record_bytes_max: int = 1_048_576
    log_append_time: bool = False
    copies_min: int = 1
    first: int = 0


class Commit(Struct, frozen=True):
    """A group's progress in one partition: the next offset to read, and up to 4,000 bytes of
    metadata.
    """

    position: int
    metadata: str = ""


class Edge(Enum):
    """The two ends of a partition: its first record, and the offset after its last one."""

    EARLIEST = "earliest"
    LATEST = "latest"


EARLIEST, LATEST = Edge.EARLIEST, Edge.LATEST


class Reader(Protocol):
    """Reads some partitions of one topic from given positions, in order of offset."""

    @property
    def doubtful(self) -> Collection[int]:
        """Partitions that may have got a leader with fewer records since the reader was opened:
        records already read may be gone, and their offsets reused. A partition appears here before
        the new leader's first batch is returned, or once the reader is closed.
        """

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        """Return at least one record, and at most the given number and bytes (but always one
        record).

        Waits while there is none. Returns none if only `position` has advanced, over what is not
        for readers, such as the marks of transactions. Records of one partition are in order of
        offset; partitions may be mixed. Raises OffsetOutOfRange if retention has removed a position
        (continue with `seek`), UnknownTopic (also for a partition that does not exist), or
        LogUnavailable.
        """

    def position(self, partition: int) -> int:
        """The next offset to read: all records below it have been returned."""

    def seek(self, partition: int, position: int) -> None:
        """Continue this partition at `position`, from the next `next_batch` on."""


class LogTopics(Protocol):
    """The topics of one log. All methods raise LogUnavailable."""

    async def create(self, topic: str, settings: TopicSettings) -> bool:
        """Create the topic. False if it already exists; its settings are then not changed.

        Raises ValueError for invalid settings.
        """

    async def alter(self, topic: str, settings: TopicSettings) -> None:
        """Replace the topic's settings; the number of partitions can only grow.

        Raises UnknownTopic; ValueError for fewer partitions.
        """

    async def delete(self, topic: str) -> bool:
        """Delete the topic, its records and its commits. False if there is none."""

    async def describe(self, topic: str) -> TopicSettings | None:
        """Return the topic's settings; None if there is no such topic."""

    async def names(self) -> list[str]:
        """The names of all topics, sorted."""

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each of these topics has, a hundred at a time at most; those that the
        log has not are absent.
        """


class Log(Protocol):
    """One datacentre's log."""

    @property
    def dc(self) -> str:
        """The datacentre whose log this is."""

    @property
    def topics(self) -> LogTopics:
        """The log's topics."""

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """Append in order. Returns one outcome for each record, in the batch's order.

        Returns when the outcome is known or given up. A cancelled call may still store. After the
        first unavailable or unknown record no later record of the batch is stored, so that a retry
        keeps the order. Never raises for an operating error.
        """

    def reader(
        self, topic: str, positions: Mapping[int, int]
    ) -> AbstractAsyncContextManager[Reader]:
        """Open a reader of the partitions in `positions`, starting there."""

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        """Return for each partition its position at an edge of the log, or at a time in
        milliseconds: the first offset with that timestamp or a later one, else the end. Raises
        UnknownTopic, LogUnavailable.
        """

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the start and end of one partition, even if other partitions have no leader.
        Raises UnknownTopic (also for a partition that does not exist), LogUnavailable.
        """

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """Store a group's progress, for all of these partitions or none. Raises ValueError for
        metadata above 4,000 bytes of UTF-8, UnknownTopic (also for a partition that does not
        exist), LogUnavailable.
        """

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """Return a group's progress; partitions without a commit are absent. Raises
        LogUnavailable.
        """


def check_settings(settings: TopicSettings) -> None:
    """Raise ValueError for invalid settings."""
    if settings.partitions < 1:
        raise ValueError(f"partitions is at least 1, not {settings.partitions}")
    if settings.record_bytes_max < 1:
        raise ValueError(f"record_bytes_max is at least 1, not {settings.record_bytes_max}")
    if settings.retention_ms is not None and settings.retention_ms < 0:
        raise ValueError(f"retention_ms is 0 or above, not {settings.retention_ms}")


def check_alteration(topic: str, old: TopicSettings, new: TopicSettings) -> None:
    """Raise ValueError for settings to which the topic cannot change."""
    check_settings(new)
    if new.partitions < old.partitions:
        raise ValueError(
            f"{topic}: partitions cannot go down from {old.partitions} to {new.partitions}; "
            "delete the topic and create it again"
        )


def check_commits(commits: Mapping[int, Commit]) -> None:
    """Raise ValueError for a negative position or too much metadata."""
    for partition, commit in commits.items():
        if commit.position < 0:
            raise ValueError(f"partition {partition}: position is 0 or above")
        size_bytes = len(commit.metadata.encode())
        if size_bytes > COMMIT_METADATA_BYTES_MAX:
            raise ValueError(
                f"partition {partition}: metadata of a commit is {size_bytes} bytes; "
                f"at most {COMMIT_METADATA_BYTES_MAX} are kept"
            )


def too_large(record: Record, record_bytes_max: int) -> RefusedRecord:
    """Return the outcome of a record above its topic's limit."""
    return RefusedRecord(
        f"the record is {record.size_bytes} bytes; the topic takes at most {record_bytes_max}",
        is_too_large=True,
    )


def no_such_partition(topic: str, partition: int, partitions: int) -> str:
    """Return the error text for a partition that the topic does not have."""
    return f"{topic} has partitions 0 to {partitions - 1}, not {partition}"
