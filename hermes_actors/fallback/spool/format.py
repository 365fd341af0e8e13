"""The bytes of a segment: one entry after another.

An entry is a head and a message. The head has two checksums: one for the head itself, so that its
length can be trusted, and one for the message. A damaged message loses only itself; a damaged head
loses the rest of its segment. The first byte of the head is overwritten when the entry is done.
"""

import struct
import zlib

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack

_HEAD = struct.Struct("<cIII")  # state, length, checksum of the message, checksum of both
_COVERED = struct.Struct("<II")
_WAITS = b"W"
DONE = b"D"


class SpoolEntry(Struct, frozen=True, array_like=True):
    """Everything that a replay needs of a message. `log_topic` and `incarnation` identify the
    topic's incarnation.
    """

    topic: str
    log_topic: str
    incarnation: int
    ack: Ack
    spooled_at_ms: int
    message: Message


class Scanned(Struct):
    """The result of reading a segment.

    `waiting` has (offset, length, entry without its body) of entries that are not done. `damaged`
    counts unreadable places, `unknown` undamaged entries that only a newer version can decode. The
    bytes from `end` on are no entries: a torn write, or a damaged rest.
    """

    waiting: list[tuple[int, int, SpoolEntry]] = field(default_factory=list)
    damaged: int = 0
    unknown: int = 0
    end: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SpoolEntry)


def encode_entry(entry: SpoolEntry) -> bytes:
    """Encode the entry for a segment."""
    message = _encoder.encode(entry)
    covered = _COVERED.pack(len(message), zlib.crc32(message))
    return b"".join((_WAITS, covered, zlib.crc32(covered).to_bytes(4, "little"), message))


def decode_entry(data: bytes) -> SpoolEntry | None:
    """Decode an entry; None if it is damaged, or of a newer version."""
    if not _is_whole(data):
        return None
    try:
        return _decoder.decode(memoryview(data)[_HEAD.size :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def scan(data: bytes) -> Scanned:
    """Read a whole segment."""
    found = Scanned()
    at = 0
    while (length := _length_at(data, at)) and at + length <= len(data):
        if data[at : at + 1] != DONE:
            entry = decode_entry(data[at : at + length])
            if entry is None and _is_whole(data[at : at + length]):
                found.unknown += 1
            elif entry is None:
                found.damaged += 1
            else:
                message = replace(entry.message, body=b"")
                found.waiting.append((at, length, replace(entry, message=message)))
        at += length
    found.end = at
    if not _is_torn(data, at):
        found.damaged += 1
    return found


def set_aside_line(reason: str, at_ms: int, entry: SpoolEntry) -> bytes:
    """Return the entry as a line of JSON; key and body are Base64."""
    line = {
        "reason": reason,
        "setAsideAt": at_ms,
        "topic": entry.topic,
        "logTopic": entry.log_topic,
        "spooledAt": entry.spooled_at_ms,
        "message": entry.message,
    }
    return msgspec.json.encode(line) + b"\n"


def _is_whole(data: bytes) -> bool:
    """True if this is one entry, as it was written."""
    if _length_at(data, 0) != len(data):
        return False
    return zlib.crc32(memoryview(data)[_HEAD.size :]) == _HEAD.unpack_from(data)[2]


def _length_at(data: bytes, at: int) -> int:
    """Return the length of the entry at this offset; 0 if there is no valid head."""
    if len(data) - at < _HEAD.size:
        return 0
    _state, length, _checksum, of_head = _HEAD.unpack_from(data, at)
    is_valid = zlib.crc32(data[at + 1 : at + 1 + _COVERED.size]) == of_head
    return _HEAD.size + length if is_valid else 0


def _is_torn(data: bytes, at: int) -> bool:
    """True if the segment ends here, with an incomplete entry, or with zeros."""
    rest = len(data) - at
    return rest < _HEAD.size or _length_at(data, at) > rest or data.count(0, at) == rest
