"""The state as bytes: what a joiner begins with, instead of hours of heartbeats."""

import zlib

import msgspec
from msgspec import Struct

from hermes_actors.coordination.commands import Undecodable
from hermes_actors.coordination.values import Departed, Member, Move, Ownership

_FORMAT = b"hc1\n"
_UNPACKED_BYTES_MAX = 256 * 1_048_576


class Content(Struct, frozen=True, kw_only=True):
    """What a state consists of. Members are in the order in which they were last heard of."""

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
_decoder = msgspec.json.Decoder(Content)


def pack(content: Content) -> bytes:
    """The content, compressed."""
    return _FORMAT + zlib.compress(_encoder.encode(content), 1)


def unpack(packed: bytes) -> Content:
    """The content of `pack`. Raises Undecodable, also for another version's."""
    if not packed.startswith(_FORMAT):
        raise Undecodable("the snapshot is not of this version's format")
    try:
        decompress = zlib.decompressobj()
        unpacked = decompress.decompress(packed[len(_FORMAT) :], _UNPACKED_BYTES_MAX)
        if not decompress.eof:
            raise Undecodable("the snapshot is cut short, or too large")
        return _decoder.decode(unpacked)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(f"the snapshot is damaged: {error}") from None
