"""The settled offsets of a partition, so that a commit never passes an unsettled one. Also the
trail of the records last read, which shows where a log was truncated.

Unsettled offsets are bounded (window and waiting retries), settled ones are not. So the unsettled
ones are kept, in order of reading; the settled intervals are their complement.
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
"""How many records a starting consumer reads again, so that it recognizes them if the log is
truncated.
"""

_LOOK_BACK_MAX = 1_000

_Mark = tuple[int, int, RecordHeaders, int]


def _last_read_of(record: StoredRecord) -> LastRead:
    return LastRead.of(record.offset, record.timestamp_ms, record.headers, len(record.value))


class Trail:
    """Marks of records read from one partition: each of the last 16, fewer of older ones, and the
    first; at most 32.
    """

    def __init__(self, told: LastRead | None = None) -> None:
        """`told` is the record that an earlier owner read last, according to its commit."""
        self._marks: list[_Mark] = []
        self._told = told
        # Nothing was read yet. `_start`: records below it are gone.
        self._is_empty = True
        self._start = 0

    @property
    def is_told(self) -> bool:
        """True until the record that an earlier owner read last has been seen."""
        return self._told is not None

    def begin_at(self, position: int) -> int:
        """Where to start reading so that `position` comes next. Earlier than `position` while
        nothing was read, or the earlier owner's last record was not seen.
        """
        back = LOOK_BACK if self._is_empty else 0
        if self._told is not None and self._told.offset < position:
            back = min(max(LOOK_BACK, position - self._told.offset), _LOOK_BACK_MAX)
        return max(position - back, min(self._start, position))

    def start_at(self, start: int) -> None:
        """Note that the log begins at `start`: earlier records cannot be read again."""
        self._is_empty, self._start = False, start
        if self._told is not None and self._told.offset < start:
            self._told = None

    def recognizes(self, record: StoredRecord) -> bool:
        """False if an earlier owner read another record at this offset, so the log was truncated
        since. Then the marks read so far prove nothing.
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
        """The newest record that was read, by this owner or the previous one."""
        if self._told is not None:
            return self._told
        return LastRead.of(*self._marks[-1]) if self._marks else None

    def note(self, record: StoredRecord) -> None:
        """Note a record that was read. Records come in order, but some may repeat."""
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
        """The offset up to which the log still holds what was read below `read_end`. The log has
        the offsets from `start` to `end`; clocks differ by at most `skew_ms`. Never too high, but
        may be too low.

        Raises what a reader raises.
        """
        known = [LastRead.of(*mark) for mark in self._marks]
        if self._told is not None:
            known.append(self._told)
        for number, mark in enumerate(reversed(known)):
            offset = mark.offset
            if offset < start:
                # Retention has removed it. If there were newer marks, their records have been
                # replaced.
                return start if number else min(read_end, end)
            if offset < end:
                there = await read_first(log, topic, partition, offset, offset + 1)
                if there is not None and _last_read_of(there) == mark:
                    return offset + 1 if number else min(read_end, end)
        if not known:
            return max(start, min(read_end, end))
        # No mark matches, so the log was truncated below them. What replaced them is not older than
        # the first mark.
        first = known[0]
        since = await log.positions(topic, max(0, first.timestamp_ms - skew_ms))
        return max(start, min(first.offset, end, since.get(partition, start)))


async def read_first(
    log: Log, topic: str, partition: int, offset: int, end: int
) -> StoredRecord | None:
    """Return the first record from `offset` to below `end`; None if there is none, as where only
    marks of transactions are. Raises what a reader does.
    """
    async with log.reader(topic, {partition: offset}) as reader:
        while reader.position(partition) < end:
            for record in await reader.next_batch(1, 1):
                return record if record.offset < end else None
    return None


class PartitionOffsets:
    """One partition's progress. `position` is the lowest offset that is not settled. Unsettled
    records below `recovered_end` were read by an earlier owner, and waited or failed there.

    `seek` is the number of the retransmission that moved the partition here, 0 for none.
    `is_superseded`: a later one has moved it elsewhere; messages left here end without another
    attempt.

    Usage: `begin` for each record read, in order. Then, for each record that `begin` accepted,
    `settle` once or `filter_out` at once.
    """

    def __init__(
        self,
        position: int,
        recovered: Sequence[Interval] = (),
        last_read: LastRead | None = None,
    ) -> None:
        """`recovered` are the intervals of the last commit, disjoint and ascending. `last_read` is
        the record that its owner read last.
        """
        # By offset: when the record was stored.
        self._unsettled: dict[int, int] = {}
        # By offset: how many records that the log has lost are still being delivered.
        self._gone: dict[int, int] = {}
        self.trail = Trail(last_read)
        self._recovered = list(recovered)
        self.recovered_end = self._recovered[-1][1] if self._recovered else 0
        # How many offsets were filtered out, settled by an earlier owner, or empty; and for each
        # unsettled offset, how many of these come before it.
        self._passed_over = 0
        self._passed_over_before: dict[int, int] = {}
        self._position = position
        self.seek = 0
        self.is_superseded = False
        self.read_end = position

    def was_settled(self, offset: int) -> bool:
        """True if an earlier owner has settled it, so that `begin` will not accept it."""
        return bool(self._recovered) and self._is_recovered(offset)

    def begin(self, offset: int, stored_at_ms: int = 0) -> bool:
        """Begin the record at `offset`, which was read. False if it is settled already and must be
        skipped.

        Offsets between the last record read and this one are gaps in the log, and count as settled.
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
        """Settle the record at `offset`. Call once for each record."""
        if offset in self._gone:
            # The two records cannot be told apart: the new one is settled when both are.
            self._gone[offset] -= 1
            if not self._gone[offset]:
                del self._gone[offset]
            return
        del self._unsettled[offset]
        if self._passed_over:
            self._passed_over_before.pop(offset, None)

    def filter_out(self, offset: int) -> None:
        """Settle the record at `offset`, which was begun last, as filtered out. It costs no attempt
        to screen it again.
        """
        self.settle(offset)
        self._passed_over += 1

    def skip_to(self, offset: int) -> int:
        """Skip what the log no longer has below `offset`. Return how many unsettled records are
        lost.

        Counts unread records only; records read before are still in memory.
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
        """The log lost what was read from `offset` on and reuses these offsets, so they are read
        again. Unsettled records of that range are still delivered, and settle once more.
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
        """The lowest unsettled offset, where a new reader would have to start."""
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
        """When the lowest unsettled record was stored; None if everything read is settled."""
        return next(iter(self._unsettled.values()), None)

    @property
    def span(self) -> int:
        """The distance from the lowest unsettled offset to the end of reading, without offsets that
        were filtered out, settled by an earlier owner, or empty. At most so many messages would be
        sent again.
        """
        if not self._unsettled:
            return 0
        first = next(iter(self._unsettled))
        passed_over = self._passed_over - self._passed_over_before.get(first, 0)
        return self.read_end - first - passed_over

    @property
    def reached(self) -> int:
        """The position plus the number of settled offsets above it. A topic's end minus this is the
        number of unsettled offsets. One waiting message holds back the position, but not this.
        """
        ahead = sum(
            end - max(start, self.read_end) for start, end in self._recovered if end > self.read_end
        )
        return self.read_end - len(self._unsettled) + ahead

    def intervals(self) -> Iterator[Interval]:
        """The settled intervals above `position`, ascending and merged, made lazily."""
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
        """How many skipped offsets lie below `offset`, which has been read past. An upper bound;
        the error is at most what was read above `offset`.
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
        # The unsettled set's complement covers intervals that reading has passed.
        while self._recovered and self._recovered[0][1] < self.read_end:
            self._recovered.pop(0)

    def _end_of_recovered(self, offset: int) -> int:
        for start, end in self._recovered:
            if start <= offset < end:
                offset = end
        return offset
