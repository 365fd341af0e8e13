"""The embedded log's state on the trio side: topics, positions, and the newest records.

It is updated after each commit, so it never shows uncommitted records. A limited cache of the
latest records serves readers at the tail without reading the file.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import islice
from operator import attrgetter

import trio
from msgspec import Struct

from hermes_actors.log.cursor import Room
from hermes_actors.log.embedded.schema import PartitionRow, TopicRow
from hermes_actors.log.embedded.store import Moved
from hermes_actors.model.record import Record, StoredRecord

_first = attrgetter("first")


class Run(Struct, frozen=True):
    """The records of one append. `stamp_ms` is the log's timestamp, if the topic uses it."""

    first: int
    records: Sequence[Record]
    stamp_ms: int | None
    size_bytes: int


class PartitionView:
    """A partition's row, kept up to date, and its newest runs without gaps."""

    __slots__ = ("row", "tail")

    def __init__(self, row: PartitionRow) -> None:
        self.row = row
        self.tail: deque[Run] = deque()

    def read_tail(self, position: int, room: Room, origin: str = "") -> list[StoredRecord] | None:
        """Return records from `position` on as far as there is room; None if they are not
        cached.
        """
        tail = self.tail
        if not tail or position < tail[0].first:
            return None
        number = self.row.number
        batch: list[StoredRecord] = []
        for run in islice(tail, bisect_right(tail, position, key=_first) - 1, None):
            offset = max(position, run.first)
            for record in run.records[offset - run.first :]:
                if not room.take(record.size_bytes):
                    return batch
                stamp_ms = record.timestamp_ms if run.stamp_ms is None else run.stamp_ms
                batch.append(
                    StoredRecord(
                        number,
                        offset,
                        stamp_ms,
                        record.key,
                        record.value,
                        record.headers,
                        origin,
                    )
                )
                offset += 1
        return batch


class TopicView:
    """A topic's settings and partitions, and the readers that wait for any of them."""

    __slots__ = ("id", "partitions", "readers", "settings")

    def __init__(self, row: TopicRow) -> None:
        self.id = row.id
        self.readers = trio.lowlevel.ParkingLot()
        self.settings = row.settings
        # Copies, because the writer's rows are ahead of the committed state.
        self.partitions = [PartitionView(copy(each)) for each in row.partitions]


class View:
    """All topics. The cache holds `tail_bytes_max` over all partitions and drops the oldest
    runs.
    """

    def __init__(self, rows: Iterable[TopicRow], tail_bytes_max: int) -> None:
        self.topics = {row.name: TopicView(row) for row in rows}
        self._runs: deque[PartitionView] = deque()
        self._tail_bytes = 0
        self._tail_bytes_max = tail_bytes_max

    def appended(self, name: str, number: int, run: Run) -> None:
        """Apply an append, and wake the topic's readers."""
        topic = self.topics.get(name)
        if topic is None:
            return
        partition = topic.partitions[number]
        if partition.row.end != run.first:
            # A transaction with an unknown outcome was stored after all, and its run is not cached.
            self._drop_tail(partition)
        partition.row.end = run.first + len(run.records)
        partition.tail.append(run)
        self._runs.append(partition)
        self._tail_bytes += run.size_bytes
        while self._tail_bytes > self._tail_bytes_max:
            oldest = self._runs.popleft()
            if oldest.tail:
                self._tail_bytes -= oldest.tail.popleft().size_bytes
        topic.readers.unpark_all()

    def altered(self, name: str, now: TopicView) -> None:
        """Apply new settings and added partitions."""
        topic = self.topics[name]
        topic.settings = now.settings
        topic.partitions += now.partitions[len(topic.partitions) :]
        topic.readers.unpark_all()

    def moved(self, moved: Moved) -> None:
        """Apply the starts that retention advanced."""
        for name, number, start in moved:
            topic = self.topics.get(name)
            if topic is not None and number < len(topic.partitions):
                topic.partitions[number].row.start = start
                topic.readers.unpark_all()

    def remove(self, name: str) -> None:
        """Remove a deleted topic, and wake its readers."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            for partition in topic.partitions:
                self._drop_tail(partition)
            topic.readers.unpark_all()

    def wake_all(self) -> None:
        """Wake every reader, because the log is closed."""
        for topic in self.topics.values():
            topic.readers.unpark_all()

    def _drop_tail(self, partition: PartitionView) -> None:
        self._tail_bytes -= sum(run.size_bytes for run in partition.tail)
        partition.tail.clear()
        self._runs = deque(other for other in self._runs if other is not partition)
