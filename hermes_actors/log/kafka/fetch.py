"""Encodes Fetch requests and decodes their answers. Pure.

Versions 4 to 10 of the protocol. From version 11 on, followers answer too: they lag, and a follower
that is cut off from its leader returns nothing new, for ever and without an error.

With read_committed an answer ends before the first open transaction. It still contains the records
of aborted transactions, and lists these transactions (KIP-98).
"""

import struct
from collections.abc import Sequence

from msgspec import Struct

API_KEY = 1
VERSION_MIN, VERSION_MAX = 4, 10

_WITH_STARTS, _WITH_SESSIONS, _WITH_EPOCHS = 5, 7, 9
_CONSUMER, _BYTES_MIN = -1, 1
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_EPOCH, _NO_START = -1, -1
_BEGINNING = struct.Struct(">iiiib")
_COUNT = struct.Struct(">i")
_NUMBER = struct.Struct(">i")
_EPOCH_AND_OFFSET = struct.Struct(">iq")
_OFFSET = struct.Struct(">q")
_PARTITION = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
"""The protocol's numbers for `kafka.isolation`, in Fetch and ListOffsets."""


class Fetch(Struct, frozen=True, gc=False):
    """One partition of a request: the first offset, and the maximum number of bytes."""

    partition: int
    offset: int
    bytes_max: int


class FetchedPartition(Struct, frozen=True, gc=False):
    """One partition of an answer: an error code (0 for none) and whole record batches.

    `aborted` has the producer id and the first offset of each aborted transaction.
    """

    partition: int
    code: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] = ()


def encode(
    version: int,
    topic: str,
    fetches: Sequence[Fetch],
    *,
    wait_ms: int,
    bytes_max: int,
    isolation: int,
) -> bytes:
    """Encode the body of a request for partitions of one topic. The broker waits up to `wait_ms`
    for a first byte.
    """
    name = topic.encode()
    parts = [_BEGINNING.pack(_CONSUMER, wait_ms, _BYTES_MIN, bytes_max, isolation)]
    if version >= _WITH_SESSIONS:
        parts.append(_NO_SESSION)
    parts += (_COUNT.pack(1), len(name).to_bytes(2, "big"), name, _COUNT.pack(len(fetches)))
    for fetch in fetches:
        parts.append(_NUMBER.pack(fetch.partition))
        if version >= _WITH_EPOCHS:
            parts.append(_EPOCH_AND_OFFSET.pack(_NO_EPOCH, fetch.offset))
        else:
            parts.append(_OFFSET.pack(fetch.offset))
        if version >= _WITH_STARTS:
            parts.append(_OFFSET.pack(_NO_START))
        parts.append(_NUMBER.pack(fetch.bytes_max))
    if version >= _WITH_SESSIONS:
        # The list of partitions to remove from a session; there is no session.
        parts.append(_COUNT.pack(0))
    return b"".join(parts)


def decode(answer: bytes, version: int) -> list[FetchedPartition]:
    """Decode the body of an answer. Raises struct.error if it is invalid."""
    at = 10 if version >= _WITH_SESSIONS else 4
    found: list[FetchedPartition] = []
    (topics,) = _COUNT.unpack_from(answer, at)
    at += 4
    for _ in range(topics):
        at += 2 + int.from_bytes(answer[at : at + 2], "big")
        (partitions,) = _COUNT.unpack_from(answer, at)
        at += 4
        for _ in range(partitions):
            partition, code, *_ = _PARTITION.unpack_from(answer, at)
            at += _PARTITION.size + (8 if version >= _WITH_STARTS else 0)
            (count,) = _COUNT.unpack_from(answer, at)
            listed_at, at = at + 4, at + 4 + _ABORTED.size * max(count, 0)
            aborted = tuple(_ABORTED.iter_unpack(answer[listed_at:at]))
            (size,) = _COUNT.unpack_from(answer, at)
            at += 4
            ends = at + max(size, 0)
            found.append(FetchedPartition(partition, code, answer[at:ends], aborted))
            at = ends
    return found
