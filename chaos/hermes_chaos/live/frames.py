"""The framing of Kafka's protocol: frames, and which answer belongs to which request.

A frame is a length (4 bytes, big-endian) and that many bytes. A request's frame begins with its API
key (2 bytes), the API version (2) and a correlation id (4); an answer's begins with the correlation
id. A broker answers one connection's requests in order. (Kafka protocol guide, "Protocol Primitive
Types" and "Request and Response Headers".)
"""

import struct
from enum import IntEnum

FRAME_BYTES_MAX = 104_857_600
"""Kafka's own limit, socket.request.max.bytes."""

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhi")
_ANSWER = struct.Struct(">ii")


class Api(IntEnum):
    """The request types that tests target."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22


class NotKafka(Exception):
    """The bytes are not frames of Kafka's protocol."""


class Frames:
    """Splits a byte stream into frames, however the bytes arrive."""

    def __init__(self) -> None:
        self._buffered = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, each including its length. Raises NotKafka."""
        self._buffered += data
        frames: list[bytes] = []
        while len(self._buffered) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffered)
            if not 0 <= length <= FRAME_BYTES_MAX:
                raise NotKafka(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffered) < end:
                break
            frames.append(bytes(self._buffered[:end]))
            del self._buffered[:end]
        return frames


def request_header(frame: bytes) -> tuple[int, int]:
    """(API key, correlation id) of a request's frame. Raises NotKafka."""
    if len(frame) < _REQUEST.size:
        raise NotKafka("a request shorter than its header")
    _, api, _, correlation = _REQUEST.unpack_from(frame)
    return api, correlation


def answer_header(frame: bytes) -> int:
    """The correlation id of an answer's frame. Raises NotKafka."""
    if len(frame) < _ANSWER.size:
        raise NotKafka("an answer shorter than its header")
    correlation: int = _ANSWER.unpack_from(frame)[1]
    return correlation


def request(api: int, correlation: int, rest: bytes = b"", version: int = 0) -> bytes:
    """A request's frame."""
    return _REQUEST.pack(_REQUEST.size - _LENGTH.size + len(rest), api, version, correlation) + rest


def answer(correlation: int, rest: bytes = b"") -> bytes:
    """An answer's frame."""
    return _ANSWER.pack(_ANSWER.size - _LENGTH.size + len(rest), correlation) + rest
