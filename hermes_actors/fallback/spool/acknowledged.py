"""Which segments a spool must have, and how far each was acknowledged: 32 bytes for each.

A place is synced before its segment is made and before it is deleted, so that what it claims is
there. How far a segment was acknowledged is written after each fsync of it, and not synced for
that: a process that is killed leaves it exact, a machine that loses its power leaves it some
seconds behind, never ahead.
"""

import struct
import zlib

from msgspec import Struct

from hermes_actors.fallback.spool.format import SegmentName

TABLE_NAME = "acknowledged"
PLACE_BYTES = 32

_PLACE = struct.Struct("<Q8sQI")  # segment's number, salt, bytes, entries; a checksum follows
FREE = bytes(PLACE_BYTES)


class Claim(Struct, frozen=True):
    """A segment that must be there: so many bytes with so many entries were acknowledged."""

    name: SegmentName
    size_bytes: int
    entries: int


def encode_claim(claim: Claim) -> bytes:
    """What is written at the claim's place."""
    salt = bytes.fromhex(claim.name.salt)
    start = _PLACE.pack(claim.name.number, salt, claim.size_bytes, claim.entries)
    return start + zlib.crc32(start).to_bytes(4, "little")


def decode_claims(data: bytes) -> tuple[dict[int, Claim], list[int]]:
    """(claim by place, places that cannot be read any more)."""
    claims: dict[int, Claim] = {}
    damaged: list[int] = []
    for place in range((len(data) + PLACE_BYTES - 1) // PLACE_BYTES):
        found = data[place * PLACE_BYTES : (place + 1) * PLACE_BYTES]
        if not any(found):
            continue
        start, checksum = found[:-4], found[-4:]
        if len(found) < PLACE_BYTES or zlib.crc32(start).to_bytes(4, "little") != checksum:
            damaged.append(place)
            continue
        number, salt, size_bytes, entries = _PLACE.unpack(start)
        claims[place] = Claim(SegmentName(number, salt.hex()), size_bytes, entries)
    return claims, damaged
