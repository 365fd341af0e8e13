"""The spool's files as bytes: what was written whole is read back, whatever became of the rest.

A segment is a header and frames. A frame is a mark, a kind, a length, a checksum and a payload; the
checksum also covers the segment's salt and the frame's place, so that neither a message whose body
holds the bytes of a frame nor a frame at another place is ever taken for one. After damage, reading
goes on at the next mark with a valid frame. Beside each segment lies a file of done marks, in the
same frames: which entries of that segment need not be sent any more. A table says which segments
there must be, and how far each was acknowledged.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum

import msgspec
from msgspec import Struct

from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack

VERSION = 1
MARK = b"\xf9SP\xff"
"""Not possible in UTF-8, so that the search for it seldom stops inside a message."""

_MAGIC = b"\x89HSPOOL\n"
_HEADER = struct.Struct("<8sHBx8sI")  # magic, version, is it listed, salt, checksum
_HEAD = struct.Struct("<4sBII")  # mark, kind, length, checksum
_PLACE = struct.Struct("<QBI")  # what the checksum covers beside the payload
_SEQUENCE = struct.Struct("<Q")
_CLAIM = struct.Struct("<Q8sQI")  # segment's number, salt, bytes, entries; a checksum follows
_NAME = re.compile(r"(\d{10})-([0-9a-f]{16})\.(spool|done)")

HEADER_BYTES = _HEADER.size
FRAME_OVERHEAD_BYTES = _HEAD.size
TABLE_NAME = "acknowledged"
CLAIM_BYTES = 32
NO_CLAIM = bytes(CLAIM_BYTES)


class Kind(IntEnum):
    """The kinds of frames: an entry, or marks of entries that are done."""

    ENTRY = 1
    DONE = 2


class SpoolEntry(Struct, frozen=True, array_like=True):
    """All that a replay needs of a message. `log_topic` and `incarnation` name the topic's life."""

    topic: str
    log_topic: str
    incarnation: int
    ack: Ack
    spooled_at_ms: int
    message: Message


class SegmentName(Struct, frozen=True, order=True):
    """Segments are numbered as they were begun; the salt is random."""

    number: int
    salt: str

    @property
    def entries(self) -> str:
        """The name of the file of entries."""
        return f"{self.number:010}-{self.salt}.spool"

    @property
    def done(self) -> str:
        """The name of the file of done marks."""
        return f"{self.number:010}-{self.salt}.done"


class Claim(Struct, frozen=True):
    """A segment that must be there: so many bytes with so many entries were acknowledged.

    It is synced before the segment is made and before it is deleted, so that what it claims is
    there. How far a segment was acknowledged is written after each fsync of it, and not synced for
    that: a process that is killed leaves it exact, a machine that loses its power leaves it some
    seconds behind, never ahead.
    """

    name: SegmentName
    size_bytes: int
    entries: int


class Frame(Struct, frozen=True, gc=False):
    """A valid frame, and where in its file it starts."""

    kind: int
    at: int
    payload: bytes


class Damage(Struct, frozen=True, gc=False):
    """A range of a file that holds no valid frame.

    `is_torn`: it looks like the end of a write that a crash cut off. Whether it was acknowledged is
    said elsewhere.
    """

    at: int
    end: int
    is_torn: bool


class UnknownVersion(Exception):
    """The file was written by a newer version of this program."""


class UndecodableEntry(Exception):
    """The frame is whole, but what it holds is not an entry; the message says why."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SpoolEntry)


def encode_entry(sequence: int, entry: SpoolEntry) -> bytes:
    """The payload of an entry's frame. The sequence orders entries across segments."""
    return _SEQUENCE.pack(sequence) + _encoder.encode(entry)


def decode_entry(payload: bytes) -> tuple[int, SpoolEntry]:
    """Return an entry's sequence and the entry. Raises UndecodableEntry."""
    try:
        (sequence,) = _SEQUENCE.unpack_from(payload)
        return sequence, _decoder.decode(memoryview(payload)[_SEQUENCE.size :])
    except (struct.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UndecodableEntry(str(error)) from error


def set_aside_line(reason: str, at_ms: int, entry: SpoolEntry) -> bytes:
    """An entry as a line of JSON; key and body in Base64."""
    line = {
        "reason": reason,
        "setAsideAt": at_ms,
        "topic": entry.topic,
        "logTopic": entry.log_topic,
        "spooledAt": entry.spooled_at_ms,
        "message": entry.message,
    }
    return msgspec.json.encode(line) + b"\n"


def encode_done(places: Sequence[int]) -> bytes:
    """The payload of a done mark: the entries of this segment that start at these places."""
    return struct.pack(f"<{len(places)}Q", *places)


def decode_done(payload: bytes) -> list[int]:
    """The places that a done mark names."""
    return [place for (place,) in struct.iter_unpack("<Q", payload[: len(payload) // 8 * 8])]


def encode_claim(claim: Claim) -> bytes:
    """The bytes of the claim's place in the table."""
    salt = bytes.fromhex(claim.name.salt)
    start = _CLAIM.pack(claim.name.number, salt, claim.size_bytes, claim.entries)
    return start + zlib.crc32(start).to_bytes(4, "little")


def decode_claims(data: bytes) -> tuple[dict[int, Claim], list[int]]:
    """(claim by place, places that cannot be read any more)."""
    claims: dict[int, Claim] = {}
    damaged: list[int] = []
    for place in range((len(data) + CLAIM_BYTES - 1) // CLAIM_BYTES):
        found = data[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES]
        if not any(found):
            continue
        start, checksum = found[:-4], found[-4:]
        if len(found) < CLAIM_BYTES or zlib.crc32(start).to_bytes(4, "little") != checksum:
            damaged.append(place)
            continue
        number, salt, size_bytes, entries = _CLAIM.unpack(start)
        claims[place] = Claim(SegmentName(number, salt.hex()), size_bytes, entries)
    return claims, damaged


def parse_name(name: str) -> tuple[SegmentName, str] | None:
    """(segment, "spool" or "done") of a file's name; None for any other file."""
    found = _NAME.fullmatch(name)
    return None if found is None else (SegmentName(int(found[1]), found[2]), found[3])


def header(salt: str, *, is_listed: bool = False) -> bytes:
    """Return a file's header. `is_listed`: there is a file that says which segments there are."""
    start = _HEADER.pack(_MAGIC, VERSION, is_listed, bytes.fromhex(salt), 0)[:-4]
    return start + zlib.crc32(start).to_bytes(4, "little")


def read_header(data: bytes) -> bool | None:
    """Whether there is a file that lists the segments there are; None when the header is damaged:
    the salt is in the file's name too, so frames can be read all the same. Raises
    UnknownVersion.
    """
    if len(data) < HEADER_BYTES:
        return None
    magic, version, is_listed, _salt, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(data[: HEADER_BYTES - 4]) != checksum:
        return None
    if version > VERSION:
        raise UnknownVersion(f"format {version}; this program reads up to {VERSION}")
    return bool(is_listed)


def frames(kind: Kind, payloads: Iterable[bytes], at: int, salt: str) -> tuple[bytes, list[int]]:
    """Frames one behind the other from `at` on, and where each starts."""
    parts: list[bytes] = []
    places: list[int] = []
    seed = _seed(salt)
    for payload in payloads:
        places.append(at)
        parts.append(_HEAD.pack(MARK, kind, len(payload), _checksum(seed, at, kind, payload)))
        parts.append(payload)
        at += _HEAD.size + len(payload)
    return b"".join(parts), places


def read_frame(data: bytes, at: int, salt: str) -> bytes | None:
    """Return the payload of the frame that `data` is, read from `at` of a file with this salt; None
    when it is none.
    """
    found = _frame_at(data, 0, at, _seed(salt))
    return None if found is None else data[_HEAD.size : found[1]]


def scan(data: bytes, salt: str) -> tuple[list[Frame], list[Damage]]:
    """All valid frames of a file in order, and the ranges between and behind them that hold none.

    The header is left out. A damaged range never hides a valid frame behind it.
    """
    found: list[Frame] = []
    damages: list[Damage] = []
    seed = _seed(salt)
    at = min(HEADER_BYTES, len(data))
    while at < len(data):
        valid = _frame_at(data, at, at, seed)
        if valid is not None:
            kind, end = valid
            found.append(Frame(kind, at, data[at + _HEAD.size : end]))
            at = end
            continue
        begin, at = at, _next_valid(data, at + 1, seed)
        is_torn = at == len(data) and _looks_torn(data, begin)
        damages.append(Damage(begin, at, is_torn))
    return found, damages


def _next_valid(data: bytes, at: int, seed: int) -> int:
    """Where the next valid frame starts; the end of the data when there is none."""
    while (at := data.find(MARK, at)) >= 0:
        if _frame_at(data, at, at, seed) is not None:
            return at
        at += 1
    return len(data)


def _looks_torn(data: bytes, at: int) -> bool:
    """True for the beginning of a frame whose end is missing, and for a tail of zeros."""
    rest = len(data) - at
    if rest < _HEAD.size:
        return True
    mark, _kind, length, _checksum = _HEAD.unpack_from(data, at)
    if mark == MARK and length > rest - _HEAD.size:
        return True
    return data.count(0, at) == rest


def _frame_at(data: bytes, start: int, at: int, seed: int) -> tuple[int, int] | None:
    """(kind, end in the data) of the frame at `start`, which lies at `at` in its file."""
    if len(data) - start < _HEAD.size:
        return None
    mark, kind, length, checksum = _HEAD.unpack_from(data, start)
    end = start + _HEAD.size + length
    if mark != MARK or end > len(data):
        return None
    payload = memoryview(data)[start + _HEAD.size : end]
    if _checksum(seed, at, kind, payload) != checksum:
        return None
    return kind, end


def _seed(salt: str) -> int:
    return zlib.crc32(bytes.fromhex(salt))


def _checksum(seed: int, at: int, kind: int, payload: bytes | memoryview) -> int:
    # In two steps, so that a body is not copied for it.
    return zlib.crc32(payload, zlib.crc32(_PLACE.pack(at, kind, len(payload)), seed))
