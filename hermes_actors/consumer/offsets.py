"""What of a partition is settled: a commit never passes an unsettled offset, and a crash re-sends
only what the commit's metadata does not name.

Unsettled offsets are bounded (window and waiting retries) while settled ones are not, so the set
kept is that of the unsettled, in order of reading; the settled intervals are its complement. Pure.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from hermes_actors.log.base import COMMIT_METADATA_BYTES_MAX, Commit

Interval = tuple[int, int]
"""Offsets from the first (included) to the second (excluded)."""

_FORM = "h1"


class Ownership(Struct, frozen=True):
    """In whose name a commit was made. A commit of another incarnation says nothing to us.

    `incarnation` is the subscription's, `topic_incarnation` its topic's, `epoch` that of the grant
    of the partitions, `seek` the number of the last retransmission.
    """

    topic_incarnation: int
    incarnation: int
    epoch: int = 0
    seek: int = 0


class Progress(Struct, frozen=True):
    """What a commit says: all below `position` is settled, and the `intervals` above it."""

    position: int
    intervals: tuple[Interval, ...] = ()
    ownership: Ownership | None = None


class PartitionOffsets:
    """One partition's progress. `position` is the lowest offset that is not settled.

    Use: `begin` for each record read, in order; `settle` once for each that `begin` let through.
    """

    __slots__ = ("_position", "_recovered", "_unsettled", "read_end")

    def __init__(self, position: int, recovered: Sequence[Interval] = ()) -> None:
        """`recovered` are the intervals of the last commit: disjoint, ascending."""
        self._unsettled: dict[int, None] = {}
        self._recovered = list(recovered)
        self._position = position
        self.read_end = position

    def begin(self, offset: int) -> bool:
        """The record at `offset` has been read; False when it is settled already: skip it.

        Offsets between the last one read and this one hold no records (the log has gaps), so they
        count as settled.
        """
        assert offset >= self.read_end, "records of a partition come in order"
        self.read_end = offset + 1
        if self._recovered and self._is_recovered(offset):
            return False
        self._unsettled[offset] = None
        return True

    def settle(self, offset: int) -> None:
        """The record at `offset` needs nothing more. Once only for each record."""
        del self._unsettled[offset]

    def skip_to(self, offset: int) -> int:
        """The log no longer holds what is below `offset`: how many unsettled records that cost.

        Counts what was not read yet; what was read before is still in our hands.
        """
        if offset <= self.read_end:
            return 0
        lost = offset - self.read_end
        for start, end in self._recovered:
            lost -= max(0, min(end, offset) - max(start, self.read_end))
        self.read_end = offset
        return lost

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
    def span(self) -> int:
        """How far reading is ahead of the lowest unsettled offset."""
        if not self._unsettled:
            return 0
        return self.read_end - next(iter(self._unsettled))

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

    def progress(self, ownership: Ownership) -> Progress:
        """All that a commit could say, without regard to its size."""
        return Progress(self.position, tuple(self.intervals()), ownership)

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


def encode(
    position: int,
    intervals: Iterable[Interval],
    ownership: Ownership,
    bytes_max: int = COMMIT_METADATA_BYTES_MAX,
) -> str:
    """The commit's metadata, at most `bytes_max` bytes: ownership, then delta-coded intervals.

    When they do not all fit, the nearest to the position are kept. That is safe: what is left out
    is sent again after a crash, never lost. Only as many intervals are asked for as fit.
    """
    head = ":".join(
        (
            _FORM,
            str(ownership.topic_incarnation),
            str(ownership.incarnation),
            str(ownership.epoch),
            str(ownership.seek),
            "",
        )
    )
    # Base64 turns each 3 bytes into 4 characters.
    room = (bytes_max - len(head)) // 4 * 3
    raw = bytearray()
    at = position
    for start, end in intervals:
        assert start > at, "intervals lie above the position, ascending, with gaps between"
        piece = _varint(start - at) + _varint(end - start)
        if len(raw) + len(piece) > room:
            break
        raw += piece
        at = end
    return head + base64.urlsafe_b64encode(bytes(raw)).decode("ascii")


def decode(commit: Commit) -> Progress:
    """What a commit says. Never raises.

    A commit without our metadata (made by the log's own tools, or by Hermes) has no ownership; its
    position counts. Metadata that cannot be read gives the position alone, which is safe: a
    position never passes an unsettled offset.
    """
    parts = commit.metadata.split(":")
    if len(parts) != 6 or parts[0] != _FORM:
        return Progress(commit.position)
    try:
        ownership = Ownership(*(int(part) for part in parts[1:5]))
        raw = base64.b64decode(parts[5], altchars=b"-_", validate=True)
        numbers = list(_varints(raw))
    except (ValueError, binascii.Error):
        return Progress(commit.position)
    if len(numbers) % 2 or 0 in numbers:
        return Progress(commit.position, (), ownership)
    intervals: list[Interval] = []
    at = commit.position
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    return Progress(commit.position, tuple(intervals), ownership)


def _varint(number: int) -> bytes:
    """LEB128: seven bits a byte, least significant first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varints(raw: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("the last number is torn")
