"""The state of a memory log: partitions with high watermarks, and appends that wait for a
broker.
"""

from collections import deque
from collections.abc import Sequence

import trio

from hermes_actors.log.append_time import AppendTime
from hermes_actors.log.base import (
    EARLIEST,
    Commit,
    Edge,
    Outcome,
    Stored,
    TopicSettings,
    UnknownRecord,
)
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack


class StuckAppend:
    """An append on its way to a broker that may be slow."""

    __slots__ = ("ack", "batch", "is_abandoned", "is_answered", "outcomes", "partition", "topic")

    def __init__(self, topic: str, partition: int, batch: Sequence[Record], ack: Ack) -> None:
        self.topic = topic
        self.partition = partition
        self.batch = batch
        self.ack = ack
        self.is_answered = trio.Event()
        self.is_abandoned = False
        self.outcomes: list[Outcome] = []


class MemoryPartition:
    """Records from `start` on. Readers see those below `replicated`, the high watermark."""

    __slots__ = (
        "append_time",
        "cuts",
        "high_ms",
        "records",
        "replicated",
        "requests",
        "start",
        "unreplicated",
    )

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.start = 0
        self.cuts = 0
        self.replicated = 0
        self.high_ms = 0
        self.append_time = AppendTime()
        self.requests: deque[StuckAppend] = deque()
        self.unreplicated: list[StuckAppend] = []

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.start + len(self.records)

    def position(self, at: Edge | int) -> int:
        """Return the start, the high watermark, or the first offset with that timestamp or a later
        one.
        """
        if isinstance(at, Edge):
            return self.start if at is EARLIEST else self.replicated
        for record in self.records[: self.replicated - self.start]:
            if record.timestamp_ms >= at:
                return record.offset
        return self.replicated

    def replicate(self) -> None:
        """Let the followers catch up, and acknowledge the appends that waited for that."""
        self.replicated = self.end
        for request in self.unreplicated:
            request.is_answered.set()
        self.unreplicated.clear()

    def cut(self, end: int) -> None:
        """Lose the records from `end` on, although they have been read: the new leader had not
        copied them.
        """
        del self.records[end - self.start :]
        self.replicated = end
        self.cuts += 1

    def truncate(self) -> bool:
        """Lose the records that the new leader had not copied. False if there were none."""
        if self.end == self.replicated:
            return False
        del self.records[self.replicated - self.start :]
        for request in self.unreplicated:
            request.outcomes = [
                UnknownRecord("the leader changed before the followers had it")
                if isinstance(outcome, Stored)
                else outcome
                for outcome in request.outcomes
            ]
            request.is_answered.set()
        self.unreplicated.clear()
        return True


class MemoryTopic:
    """A topic's settings, its partitions, and the readers that wait for any of them.

    `commits` holds the latest and the previous commit of each group and partition.
    """

    __slots__ = ("commits", "partitions", "readers", "settings")

    def __init__(self, settings: TopicSettings) -> None:
        self.settings = settings
        self.partitions = [MemoryPartition() for _ in range(settings.partitions)]
        self.readers = trio.lowlevel.ParkingLot()
        self.commits: dict[str, dict[int, tuple[Commit, Commit | None]]] = {}
