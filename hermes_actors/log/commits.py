"""What a commit says beside its position, in at most 4,000 bytes: in whose name it was made, and
what is settled above the position, so that a crash re-sends only the rest. Pure.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator

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
