"""The settled offsets of a partition: a commit never passes an unsettled one. And the trail of the
records last read of it, which shows where a log has lost its end since.

Unsettled offsets are bounded (window and waiting retries) while settled ones are not, so the set
kept is that of the unsettled, in order of reading; the settled intervals are its complement.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from hermes_actors.log.base import Log
from hermes_actors.log.commits import Interval, LastRead
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
    """

    def __init__(self, told: LastRead | None = None) -> None:
        """`told` is what an earlier owner had read last, by its commit."""
        self._marks: list[_Mark] = []
        self._told = told
        # Nothing was read yet; and what lies before is gone.
        self._is_empty = True
        self._start = 0

    @property
    def is_told(self) -> bool:
        """True while the record that an earlier owner had read last has not been seen yet."""
        return self._told is not None

    def begin_at(self, position: int) -> int:
        """Where to begin if `position` is to be read next: before it as long as nothing was read,
        and as the record that an earlier owner had read last there has not been seen.
        """
        back = LOOK_BACK if self._is_empty else 0
        if self._told is not None and self._told.offset < position:
            back = min(max(LOOK_BACK, position - self._told.offset), _LOOK_BACK_MAX)
        return max(position - back, min(self._start, position))

    def start_at(self, start: int) -> None:
        """Note that the log begins at `start`: what was read before that cannot be seen again."""
        self._is_empty, self._start = False, start
        if self._told is not None and self._told.offset < start:
            self._told = None

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
        self._is_empty = False
        return False

    @property
    def newest(self) -> LastRead | None:
        """The newest record that was read, by this owner or by the one before."""
        if self._told is not None:
            return self._told
        return LastRead.of(*self._marks[-1]) if self._marks else None

    def note(self, record: StoredRecord) -> None:
        """The record has been read; in order, but that some may be read again."""
        self._is_empty = False
        marks = self._marks
        if marks and record.offset <= marks[-1][0]:
            return
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
                if there is not None and _last_read_of(there) == mark:
                    return offset + 1 if number else min(read_end, end)
        if not known:
            return max(start, min(read_end, end))
        # All of it is gone, and who knows what before; what came instead is not older than that.
        first = known[0]
        since = await log.positions(topic, max(0, first.timestamp_ms - skew_ms))
        return max(start, min(first.offset, end, since.get(partition, start)))


async def _read_one(log: Log, topic: str, partition: int, offset: int) -> StoredRecord | None:
    async with log.reader(topic, {partition: offset}) as reader:
        return next(iter(await reader.next_batch(1, 1)), None)


class PartitionOffsets:
    """One partition's progress. `position` is the lowest offset that is not settled. What an
    earlier life had not settled below `recovered_end` it had passed over: it waited, or failed.

    `seek` is the number of the retransmission that has moved the partition here, 0 for none.
    `is_superseded`: a later one has taken it elsewhere; what is left here ends and is not tried
    again.

    Use: `begin` for each record read, in order; then once `settle`, or at once `filter_out`, for
    each that `begin` let through.
    """

    def __init__(
        self,
        position: int,
        recovered: Sequence[Interval] = (),
        last_read: LastRead | None = None,
    ) -> None:
        """`recovered` are the intervals of the last commit: disjoint, ascending. `last_read` is the
        record that its owner had read last.
        """
        # Offset → when its record was stored.
        self._unsettled: dict[int, int] = {}
        # Offset → how many records that the log has lost since are under way all the same.
        self._gone: dict[int, int] = {}
        self.trail = Trail(last_read)
        self._recovered = list(recovered)
        self.recovered_end = self._recovered[-1][1] if self._recovered else 0
        # How many were filtered out, settled in an earlier life, or never there to be read; and for
        # each that is unsettled, how many before it.
        self._passed_over = 0
        self._passed_over_before: dict[int, int] = {}
        self._position = position
        self.seek = 0
        self.is_superseded = False
        self.read_end = position

    def was_settled(self, offset: int) -> bool:
        """True if an earlier life has settled it, so that `begin` will not let it through."""
        return bool(self._recovered) and self._is_recovered(offset)

    def begin(self, offset: int, stored_at_ms: int = 0) -> bool:
        """Begin the record at `offset`, which has been read; False when it is settled already: skip
        it.

        Offsets between the last one read and this one hold no records (the log has gaps), so they
        count as settled.
        """
        assert offset >= self.read_end, "records of a partition come in order"
        if offset > self.read_end:
            self._passed_over += offset - self.read_end
        self.read_end = offset + 1
        if self._recovered and self._is_recovered(offset):
            self._passed_over += 1
            return False
        self._unsettled[offset] = stored_at_ms
        if self._passed_over:
            self._passed_over_before[offset] = self._passed_over
        return True

    def settle(self, offset: int) -> None:
        """Settle the record at `offset`, which needs nothing more. Once only for each record."""
        if offset in self._gone:
            # Which of the two it is nobody can tell: the new one has settled when both have.
            self._gone[offset] -= 1
            if not self._gone[offset]:
                del self._gone[offset]
            return
        del self._unsettled[offset]
        if self._passed_over:
            self._passed_over_before.pop(offset, None)

    def filter_out(self, offset: int) -> None:
        """Settle the record at `offset`, begun last, as not wanted: no attempt is lost if it has to
        be looked at again.
        """
        self.settle(offset)
        self._passed_over += 1

    def skip_to(self, offset: int) -> int:
        """The log no longer holds what is below `offset`: how many unsettled records that cost.

        Counts what was not read yet; what was read before is still in our hands.
        """
        if offset <= self.read_end:
            return 0
        lost = offset - self.read_end
        for start, end in self._recovered:
            lost -= max(0, min(end, offset) - max(start, self.read_end))
        self._passed_over += offset - self.read_end
        self.read_end = offset
        return lost

    def cut(self, offset: int) -> None:
        """The log has lost what was read from `offset` on, and gives these offsets again: they are
        read again. What was read of them and is not settled yet goes on, and is settled once more.
        """
        self._passed_over = self._passed_over_below(offset)
        for gone in [each for each in self._unsettled if each >= offset]:
            del self._unsettled[gone]
            self._passed_over_before.pop(gone, None)
            self._gone[gone] = self._gone.get(gone, 0) + 1
        self._recovered = [
            (start, min(end, offset)) for start, end in self._recovered if start < offset
        ]
        self._position = min(self._position, offset)
        self.read_end = min(self.read_end, offset)
        self.recovered_end = min(self.recovered_end, offset)
        self.trail.cut(offset)

    @property
    def position(self) -> int:
        """The lowest unsettled offset; where a new reader would have to start."""
        if self._unsettled:
            first = next(iter(self._unsettled))
        else:
            first = self._end_of_recovered(self.read_end)
        assert first >= self._position, "a position never goes back"
        self._position = first
        return first

    @property
    def unsettled(self) -> int:
        """How many records have been read and are not settled."""
        return len(self._unsettled)

    @property
    def oldest_ms(self) -> int | None:
        """When the lowest unsettled record was stored; None when all that was read is settled."""
        return next(iter(self._unsettled.values()), None)

    @property
    def span(self) -> int:
        """How far reading is ahead of the lowest unsettled offset, without what was filtered out,
        what is settled since an earlier life and what the log did not hold: the most that could
        have to be sent again.
        """
        if not self._unsettled:
            return 0
        first = next(iter(self._unsettled))
        passed_over = self._passed_over - self._passed_over_before.get(first, 0)
        return self.read_end - first - passed_over

    @property
    def reached(self) -> int:
        """The position, and as many more offsets as are settled above it: a topic's end minus this
        is how much is not settled yet. One message that waits holds back the position, not this.
        """
        ahead = sum(
            end - max(start, self.read_end) for start, end in self._recovered if end > self.read_end
        )
        return self.read_end - len(self._unsettled) + ahead

    def intervals(self) -> Iterator[Interval]:
        """The settled intervals above `position`, ascending, merged, made one by one."""
        start: int | None = None
        end = -1
        for low, high in self._raw_intervals():
            if start is None:
                start, end = low, high
            elif low <= end:
                end = max(end, high)
            else:
                yield start, end
                start, end = low, high
        if start is not None:
            yield start, end

    def _passed_over_below(self, offset: int) -> int:
        """How many of those passed over are below an offset that reading has passed: at most so
        many, and more than there are by no more than what is read above it.
        """
        found, last = self._passed_over, offset - 1
        for unsettled in reversed(self._unsettled):
            before = self._passed_over_before.get(unsettled, 0)
            if unsettled < offset:
                return min(found, before + last - unsettled)
            found = min(found, before)
        return found

    def _raw_intervals(self) -> Iterator[Interval]:
        last = -1
        for offset in self._unsettled:
            if last >= 0 and last + 1 < offset:
                yield last + 1, offset
            last = offset
        position = self.position
        if last >= 0 and last + 1 < self.read_end:
            yield last + 1, self.read_end
        for start, end in self._recovered:
            low = max(start, self.read_end, position)
            if low < end:
                yield low, end

    def _is_recovered(self, offset: int) -> bool:
        self._forget_recovered()
        at = bisect_right(self._recovered, offset, key=lambda interval: interval[0]) - 1
        return at >= 0 and offset < self._recovered[at][1]

    def _forget_recovered(self) -> None:
        # Intervals that reading has passed are in the unsettled set's complement now.
        while self._recovered and self._recovered[0][1] < self.read_end:
            self._recovered.pop(0)

    def _end_of_recovered(self, offset: int) -> int:
        for start, end in self._recovered:
            if start <= offset < end:
                offset = end
        return offset
