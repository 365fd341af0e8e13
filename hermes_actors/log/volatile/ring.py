"""One topic's messages in the memory of one node: a ring, bounded in bytes."""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection

import trio

from hermes_actors.log.base import Commit
from hermes_actors.log.cursor import Room
from hermes_actors.model.record import Record, StoredRecord

OVERHEAD_BYTES = 512
"""What a record takes in memory besides its key, value and headers, about."""


def cost_of(record: Record | StoredRecord) -> int:
    """The memory that a record takes, in bytes."""
    return record.size_bytes + OVERHEAD_BYTES


class Ring:
    """Records from offset `start` to below `end`, and each consumer group's commit. `changed` wakes
    readers, and publishers that wait for room.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.size_bytes = 0
        self.commits: dict[str, Commit] = {}
        self.changed = trio.lowlevel.ParkingLot()
        self._records: deque[StoredRecord] = deque()
        self._high_ms = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.start + len(self._records)

    def floor(self, groups: Collection[str]) -> int:
        """The offset below which all of these groups have settled everything."""
        commits = self.commits
        positions = [commits[each].position if each in commits else 0 for each in groups]
        return max(self.start, min([self.end, *positions]))

    def make_room(self, size_bytes: int, bytes_max: int, floor: int) -> bool:
        """Drop the oldest records below `floor` until this size fits, or none is left. False if it
        does not fit.
        """
        while self._records and self.size_bytes + size_bytes > bytes_max:
            if self.start >= floor:
                return False
            self.size_bytes -= cost_of(self._records.popleft())
            self.start += 1
        return True

    def add(self, partition: int, record: Record, origin: str) -> None:
        """Add a record at the end. Its time never goes back."""
        self._high_ms = max(self._high_ms, record.timestamp_ms)
        place = (partition, self.end, self._high_ms)
        self._records.append(StoredRecord(*place, record.key, record.value, record.headers, origin))
        self.size_bytes += cost_of(record)

    def read(self, position: int, records_max: int, bytes_max: int) -> list[StoredRecord]:
        """Records from `position` within these bounds; none if it does not lie in the ring."""
        room, batch = Room(records_max, bytes_max), list[StoredRecord]()
        if position >= self.start:
            for offset in range(position, min(position + records_max, self.end)):
                record = self._records[offset - self.start]
                if not room.take(record.size_bytes):
                    break
                batch.append(record)
        return batch

    def position(self, time_ms: int) -> int:
        """The offset of the first record of that time or later."""
        return self.start + bisect_left(self._records, time_ms, key=lambda each: each.timestamp_ms)
