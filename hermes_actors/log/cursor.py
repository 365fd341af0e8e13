"""A reader's position in each partition, and which partition goes first. Pure; used by all logs."""

from collections.abc import Iterable, Iterator, Mapping

from hermes_actors.log.base import OffsetOutOfRange
from hermes_actors.model.record import StoredRecord


class Cursor:
    """Positions in some partitions of a topic.

    Partitions take turns in going first, so that a busy one cannot starve the others when a batch
    has no room for all.
    """

    __slots__ = ("_partitions", "_positions", "_topic", "_turn")

    def __init__(self, topic: str, positions: Mapping[int, int]) -> None:
        for partition, position in positions.items():
            _check_position(partition, position)
        self._topic = topic
        self._partitions = sorted(positions)
        self._positions = dict(positions)
        self._turn = 0

    def seek(self, partition: int, position: int) -> None:
        """Continue at `position`. Raises ValueError for a partition that this reader does not
        have.
        """
        if partition not in self._positions:
            raise ValueError(f"partition {partition} is not one of this reader's")
        _check_position(partition, position)
        self._positions[partition] = position

    def position(self, partition: int) -> int:
        """The next offset to read there."""
        return self._positions[partition]

    def in_turn(self) -> Iterator[tuple[int, int]]:
        """Yield (partition, position) of all partitions, beginning with the one whose turn it
        is.
        """
        turn, partitions = self._turn, self._partitions
        for partition in partitions[turn:] + partitions[:turn]:
            yield partition, self._positions[partition]

    def check(self, partition: int, start: int, end: int) -> None:
        """Raise OffsetOutOfRange unless the position is in [start, end]."""
        position = self._positions[partition]
        if not start <= position <= end:
            raise OffsetOutOfRange(self._topic, partition, position, start, end)

    def advance(self, batch: Iterable[StoredRecord]) -> None:
        """Move past the records that were read, and let the next partition go first."""
        positions = self._positions
        for record in batch:
            positions[record.partition] = record.offset + 1
        if len(self._partitions) > 1:
            self._turn = (self._turn + 1) % len(self._partitions)


class Room:
    """The room left in a batch; there is always room for the first record."""

    __slots__ = ("_bytes_left", "_is_empty", "records_left")

    def __init__(self, records_max: int, bytes_max: int) -> None:
        assert records_max > 0, "a batch may hold at least one record"
        self.records_left = records_max
        self._bytes_left = bytes_max
        self._is_empty = True

    def take(self, size_bytes: int) -> bool:
        """Use room for one record of that size. False, using none, if it does not fit."""
        if self.records_left == 0 or (size_bytes > self._bytes_left and not self._is_empty):
            self.records_left = 0
            return False
        self._is_empty = False
        self.records_left -= 1
        self._bytes_left -= size_bytes
        return True


def _check_position(partition: int, position: int) -> None:
    if position < 0:
        raise ValueError(f"partition {partition}: a position is 0 or above, not {position}")
