"""What was read of a partition last, by which a log that has lost its end since is seen through."""

import trio

from hermes_actors.log.base import Log, LogUnavailable
from hermes_actors.model.record import StoredRecord

_MARKS_MAX = 32
_THINNED = slice(1, _MARKS_MAX // 2, 2)
_LOOK_MAX_S = 10.0

LOOK_BACK = 16
"""How many records a consumer that begins reads again, to know them if the log loses its end."""

SAFETY_MS = 5_000
"""By how much clocks of nodes may differ."""

_Mark = tuple[int, int, tuple[tuple[str, bytes], ...], int]


def _mark_of(record: StoredRecord) -> _Mark:
    return record.offset, record.timestamp_ms, record.headers, len(record.value)


class Trail:
    """Marks of the records of one partition that were read: of the last 16 each, of those before
    the fewer the longer ago, and the first; 32 at most.

    `is_wanted`: nothing was read yet, and what lies before the place to begin at should be, some
    LOOK_BACK records.
    """

    __slots__ = ("_marks", "is_wanted")

    def __init__(self) -> None:
        self._marks: list[_Mark] = []
        self.is_wanted = True

    def note(self, record: StoredRecord) -> None:
        """The record has been read; records of a partition come in order."""
        self.is_wanted = False
        marks = self._marks
        marks.append((record.offset, record.timestamp_ms, record.headers, len(record.value)))
        if len(marks) == _MARKS_MAX:
            del marks[_THINNED]

    def cut(self, offset: int) -> None:
        """Forget what was read from `offset` on."""
        self._marks = [mark for mark in self._marks if mark[0] < offset]

    async def find_end(
        self, log: Log, topic: str, partition: int, start: int, end: int, read_end: int
    ) -> int:
        """Up to where the log, which has the offsets from `start` to `end`, is still what was read
        up to `read_end`: never above that, and rather too low than too high.

        Raises what a reader does.
        """
        for number, mark in enumerate(reversed(self._marks)):
            offset = mark[0]
            if offset < start:
                # Retention has been here. Newer ones, if there were any, are others now.
                return start if number else min(read_end, end)
            if offset < end and _mark_of(await _read_one(log, topic, partition, offset)) == mark:
                return offset + 1 if number else min(read_end, end)
        if not self._marks:
            return max(start, min(read_end, end))
        # All of it is gone, and who knows what before; what came instead is not older than that.
        first, first_ms, *_ = self._marks[0]
        since = await log.position_at(topic, max(0, first_ms - SAFETY_MS))
        return max(start, min(first, end, since.get(partition, start)))


async def find_place(log: Log, topic: str, partition: int, trail: Trail, read_end: int) -> int:
    """Where to go on in a partition that was read up to `read_end`: there, or before that where the
    log has lost its end since.

    Raises LogUnavailable, UnknownTopic, OffsetOutOfRange.
    """
    with trio.move_on_after(_LOOK_MAX_S):
        start, end = await log.bounds(topic, partition)
        if read_end < start:
            return read_end
        return await trail.find_end(log, topic, partition, start, end, read_end)
    raise LogUnavailable("its end cannot be compared with what was read of it")


async def _read_one(log: Log, topic: str, partition: int, offset: int) -> StoredRecord:
    async with log.reader(topic, {partition: offset}) as reader:
        return (await reader.next_batch(1, 1))[0]
