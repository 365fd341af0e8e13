"""What a commit says beside its position, in at most 4,000 bytes: in whose name it was made, what
is settled above the position, so that a crash re-sends only the rest, and which few messages a
careful owner was about to look at. Pure.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from itertools import accumulate

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
    """What a commit says: all below `position` is settled, and the `intervals` above it. `marked`
    are the offsets that a careful owner was about to look at.
    """

    position: int
    intervals: tuple[Interval, ...] = ()
    ownership: Ownership | None = None
    marked: tuple[int, ...] = ()


def encode(
    position: int,
    intervals: Iterable[Interval],
    ownership: Ownership,
    bytes_max: int = COMMIT_METADATA_BYTES_MAX,
    marked: Iterable[int] = (),
) -> str:
    """The commit's metadata, at most `bytes_max` bytes: ownership, then delta-coded intervals, then
    the `marked` offsets, which are few, ascending, and not below the position.

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
    marks = _marks(position, marked)
    # Base64 turns each 3 bytes into 4 characters.
    room = (bytes_max - len(head)) // 4 * 3 - len(marks)
    raw = bytearray()
    at = position
    for start, end in intervals:
        assert start > at, "intervals lie above the position, ascending, with gaps between"
        piece = _varint(start - at) + _varint(end - start)
        if len(raw) + len(piece) > room:
            break
        raw += piece
        at = end
    return head + base64.urlsafe_b64encode(bytes(raw + marks)).decode("ascii")


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
    marks: list[int] = []
    if 0 in numbers:
        # A build that knows no marks takes the position alone, and sends again what is above it.
        at = numbers.index(0)
        numbers, marks = numbers[:at], numbers[at + 1 :]
    if len(numbers) % 2 or 0 in marks:
        return Progress(commit.position, (), ownership)
    intervals: list[Interval] = []
    at = commit.position
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    marked = tuple(commit.position - 1 + each for each in accumulate(marks))
    return Progress(commit.position, tuple(intervals), ownership, marked)


def _marks(position: int, marked: Iterable[int]) -> bytes:
    """A 0, which no interval has, then the distances from one to the next; nothing for none."""
    raw = bytearray()
    at = position - 1
    for offset in marked:
        assert offset > at, "marked offsets ascend from the position"
        raw += _varint(offset - at)
        at = offset
    return b"\0" + bytes(raw) if raw else b""


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
