"""The trail of records last read of a partition: it shows where a log has lost its end since."""

from hermes_actors.log.base import Log
from hermes_actors.log.commits import LastRead
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.run import RecordHeaders

_MARKS_MAX = 32
_THINNED = slice(1, _MARKS_MAX // 2, 2)

LOOK_BACK = 16
"""How many records a consumer that begins reads again, to know them if the log loses its end."""

_LOOK_BACK_MAX = 1_000

_Mark = tuple[int, int, RecordHeaders, int]


def _last_read_of(record: StoredRecord) -> LastRead:
    return LastRead.of(record.offset, record.timestamp_ms, record.headers, len(record.value))


class Trail:
    """Marks of the records of one partition that were read: of the last 16 each, of those before
    the fewer the longer ago, and the first; 32 at most.

    `is_wanted`: nothing was read yet, and what lies before the place to begin at should be.
    """

    __slots__ = ("_marks", "_told", "is_wanted")

    def __init__(self, told: LastRead | None = None) -> None:
        """`told` is what an earlier owner had read last, by its commit."""
        self._marks: list[_Mark] = []
        self._told = told
        self.is_wanted = True

    @property
    def is_told(self) -> bool:
        """True while the record that an earlier owner had read last has not been seen yet."""
        return self._told is not None

    def look_back(self, position: int) -> int:
        """How many records before `position`, where reading begins, are to be read again."""
        if not self.is_wanted:
            return 0
        if self._told is None:
            return LOOK_BACK
        return min(max(LOOK_BACK, position - self._told.offset), _LOOK_BACK_MAX)

    def recognizes(self, record: StoredRecord) -> bool:
        """False if an earlier owner had read another record at this offset: the log has lost its
        end since. What was read of it so far says nothing then.
        """
        told = self._told
        if told is None or record.offset < told.offset:
            return True
        if record.offset > told.offset or _last_read_of(record) == told:
            self._told = None
            return True
        self._marks.clear()
        self.is_wanted = False
        return False

    @property
    def newest(self) -> LastRead | None:
        """The newest record that was read, by this owner or by the one before."""
        if self._told is not None:
            return self._told
        return LastRead.of(*self._marks[-1]) if self._marks else None

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
        if self._told is not None and self._told.offset >= offset:
            self._told = None

    async def find_end(
        self,
        log: Log,
        topic: str,
        partition: int,
        start: int,
        end: int,
        read_end: int,
        skew_ms: int,
    ) -> int:
        """Up to where the log, which has the offsets from `start` to `end`, is still what was read
        up to `read_end`: never above that, and rather too low than too high. Clocks differ by
        `skew_ms` at most.

        Raises what a reader does.
        """
        known = [LastRead.of(*mark) for mark in self._marks]
        if self._told is not None:
            known.append(self._told)
        for number, mark in enumerate(reversed(known)):
            offset = mark.offset
            if offset < start:
                # Retention has been here. Newer ones, if there were any, are others now.
                return start if number else min(read_end, end)
            if offset < end:
                there = await _read_one(log, topic, partition, offset)
                if _last_read_of(there) == mark:
                    return offset + 1 if number else min(read_end, end)
        if not known:
            return max(start, min(read_end, end))
        # All of it is gone, and who knows what before; what came instead is not older than that.
        first = known[0]
        since = await log.position_at(topic, max(0, first.timestamp_ms - skew_ms))
        return max(start, min(first.offset, end, since.get(partition, start)))


async def _read_one(log: Log, topic: str, partition: int, offset: int) -> StoredRecord:
    async with log.reader(topic, {partition: offset}) as reader:
        return (await reader.next_batch(1, 1))[0]
