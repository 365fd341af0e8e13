"""Encodes Produce requests and decodes their answers. Pure.

Versions 3 to 7 of the protocol: the request is the same in all of them, and an answer has one more
field from version 5 on. Uses `struct` for speed: a request with one message is mostly framing.
"""

import struct
from collections.abc import Iterable, Sequence

API_KEY = 0
VERSION_MIN, VERSION_MAX = 3, 7

_BEGINNING = struct.Struct(">hhii")
_COUNT = struct.Struct(">i")
_PARTITION = struct.Struct(">ii")
_ANSWER = struct.Struct(">ihqq")
_ANSWER_WITH_START = struct.Struct(">ihqqq")
_NO_TRANSACTION = -1

Batches = Sequence[tuple[int, bytes | bytearray]]
"""Pairs of partition and record batch."""


def encode(acks: int, timeout_ms: int, topics: Iterable[tuple[str, Batches]]) -> bytes:
    """Encode the body of a request. Each topic may occur once."""
    parts: list[bytes | bytearray] = []
    count = 0
    for topic, batches in topics:
        name = topic.encode()
        parts += (len(name).to_bytes(2, "big"), name, _COUNT.pack(len(batches)))
        for partition, data in batches:
            parts += (_PARTITION.pack(partition, len(data)), data)
        count += 1
    return b"".join((_BEGINNING.pack(_NO_TRANSACTION, acks, timeout_ms, count), *parts))


def decode(answer: bytes, version: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Decode an answer: (topic, partition) → (error code, base offset). Raises struct.error or
    ValueError if it is invalid.
    """
    layout = _ANSWER if version < 5 else _ANSWER_WITH_START
    found: dict[tuple[str, int], tuple[int, int]] = {}
    (topics,) = _COUNT.unpack_from(answer)
    at = 4
    for _ in range(topics):
        end = at + 2 + int.from_bytes(answer[at : at + 2], "big")
        topic = str(answer[at + 2 : end], "utf-8")
        (partitions,) = _COUNT.unpack_from(answer, end)
        at = end + 4
        for _ in range(partitions):
            partition, code, offset, *_ = layout.unpack_from(answer, at)
            found[topic, partition] = code, offset
            at += layout.size
    return found
