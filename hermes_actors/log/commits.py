"""The metadata of a commit, at most 4,000 bytes: its owner, the settled intervals above the
position (so that a crash repeats only the rest), and the record that was read last. Pure.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hermes_actors.log.base import COMMIT_METADATA_BYTES_MAX, Commit
from hermes_actors.model.run import RecordHeaders

Interval = tuple[int, int]
"""Offsets from the first (included) to the second (excluded)."""

_FORM = "h1"


class CommitOwner(Struct, frozen=True):
    """The owner of a commit. A commit of another incarnation is ignored.

    `incarnation` is the subscription's, `topic_incarnation` its topic's, `epoch` that of the grant
    of the partitions, `seek` the number of the last retransmission.
    """

    topic_incarnation: int
    incarnation: int
    epoch: int = 0
    seek: int = 0


class LastRead(Struct, frozen=True, rename="camel"):
    """The newest record that the owner had read. If the log has another record at this offset, it
    has lost its end since and reused the offsets, so the commit does not apply.
    """

    offset: int
    timestamp_ms: int
    digest: int

    @classmethod
    def of(
        cls, offset: int, timestamp_ms: int, headers: RecordHeaders, size_bytes: int
    ) -> "LastRead":
        """Describe a record with these headers and a value of this size."""
        digest = zlib.crc32(repr((headers, size_bytes)).encode())
        return cls(offset, timestamp_ms, digest)


class Progress(Struct, frozen=True):
    """A decoded commit: everything below `position` is settled, and the `intervals` above it."""

    position: int
    intervals: tuple[Interval, ...] = ()
    ownership: CommitOwner | None = None
    last_read: LastRead | None = None


def encode(
    position: int,
    intervals: Iterable[Interval],
    ownership: CommitOwner,
    bytes_max: int = COMMIT_METADATA_BYTES_MAX,
    last_read: LastRead | None = None,
) -> str:
    """Encode the commit's metadata in at most `bytes_max` bytes: owner, delta-coded intervals, and
    `last_read`.

    If the intervals do not all fit, those nearest to the position are kept. That is safe: the
    others are delivered again after a crash, never lost. The iterator is read only as far as
    intervals fit.
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
    tail = ""
    if last_read is not None:
        tail = f":{last_read.offset:x}.{last_read.timestamp_ms:x}.{last_read.digest:x}"
    # Base64 turns 3 bytes into 4 characters.
    room = (bytes_max - len(head) - len(tail)) // 4 * 3
    raw = bytearray()
    at = position
    for start, end in intervals:
        assert start > at, "intervals lie above the position, ascending, with gaps between"
        piece = _varint(start - at) + _varint(end - start)
        if len(raw) + len(piece) > room:
            break
        raw += piece
        at = end
    return head + base64.urlsafe_b64encode(bytes(raw)).decode("ascii") + tail


def decode(commit: Commit) -> Progress:
    """Return the progress in a commit. Never raises.

    A commit without our metadata (made by the log's own tools, or by Hermes) has no owner, but its
    position counts. Unreadable metadata gives only the position, which is safe: a position never
    passes an unsettled offset.
    """
    parts = commit.metadata.split(":")
    if len(parts) not in (6, 7) or parts[0] != _FORM:
        return Progress(commit.position)
    try:
        last_read = None if len(parts) == 6 else _read_last(parts[6])
        ownership = CommitOwner(*(int(part) for part in parts[1:5]))
        raw = base64.b64decode(parts[5], altchars=b"-_", validate=True)
        numbers = list(_varints(raw))
    except (ValueError, binascii.Error):
        return Progress(commit.position)
    if len(numbers) % 2 or 0 in numbers:
        return Progress(commit.position, (), ownership, last_read)
    intervals: list[Interval] = []
    at = commit.position
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    return Progress(commit.position, tuple(intervals), ownership, last_read)


def _read_last(text: str) -> LastRead:
    """Decode `last_read`. Raises ValueError."""
    offset, timestamp_ms, digest = (int(each, 16) for each in text.split("."))
    return LastRead(offset, timestamp_ms, digest)


def _varint(number: int) -> bytes:
    """LEB128: seven bits per byte, least significant first."""
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
