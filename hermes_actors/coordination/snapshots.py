"""Encodes the state, so that a node that joins need not fold hours of heartbeats."""

import zlib
from collections.abc import Generator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.coordination.commands import Undecodable
from hermes_actors.coordination.values import Departed, Member, Move, Ownership

_FORMAT = b"hc1\n"
_UNPACKED_BYTES_MAX = 256 * 1_048_576
_IN_A_STEP = 250
"""Ownerships between two yields: 2 to 4 ms."""


class SnapshotContent(Struct, frozen=True, kw_only=True):
    """The parts of a state in a snapshot. Members are sorted by their last heartbeat."""

    position: int
    clock_ms: int
    timestamp_ms: int | None
    term: int
    leader: str
    plan_offset: int
    expired: int
    moved: int = 0
    moves: tuple[Move, ...]
    departed: tuple[Departed, ...]
    members: tuple[Member, ...]
    ownerships: dict[str, Ownership]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SnapshotContent)
_some_decoder = msgspec.json.Decoder(dict[str, Ownership])


def pack_in_steps(content: SnapshotContent) -> Generator[None, None, bytes]:
    """Compress the content: a line of JSON without the ownerships, then lines with some ownerships
    each.
    """
    compressor = zlib.compressobj(1)
    ownerships = list(content.ownerships.items())
    head = _encoder.encode(replace(content, ownerships={}))
    pieces = [_FORMAT, compressor.compress(head)]
    for at in range(0, len(ownerships), _IN_A_STEP):
        yield
        some = _encoder.encode(dict(ownerships[at : at + _IN_A_STEP]))
        pieces.append(compressor.compress(b"\n" + some))
    pieces.append(compressor.flush())
    return b"".join(pieces)


def unpack(packed: bytes) -> SnapshotContent:
    """Decode a snapshot. Raises Undecodable, also for another version's format."""
    if not packed.startswith(_FORMAT):
        raise Undecodable("the snapshot is not of this version's format")
    try:
        decompressor = zlib.decompressobj()
        unpacked = decompressor.decompress(packed[len(_FORMAT) :], _UNPACKED_BYTES_MAX)
        if not decompressor.eof:
            raise Undecodable("the snapshot is cut short, or too large")
        head, *rest = unpacked.split(b"\n")
        ownerships: dict[str, Ownership] = {}
        for some in rest:
            ownerships.update(_some_decoder.decode(some))
        return replace(_decoder.decode(head), ownerships=ownerships)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(f"the snapshot is damaged: {error}") from None
