"""A schema of messages, its id, and how a subject's versions must agree."""

import hashlib
from enum import StrEnum

import msgspec
from msgspec import Struct

SCHEMA_BYTES_MAX = 262_144
"""The largest schema that is taken, in bytes of UTF-8."""

_ID_MAX = 2**31 - 1


class SchemaKind(StrEnum):
    """The languages that schemas are written in, by the names of Confluent's registry."""

    JSON = "JSON"
    AVRO = "AVRO"


class Compatibility(StrEnum):
    """The duty of a new version of a subject to the older ones, as in Confluent's registry.

    BACKWARD: read what the last version wrote. FORWARD: be read by the last version. FULL: both.
    The transitive levels compare with all versions, not with the last one alone.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class Schema(Struct, frozen=True):
    """A schema: its language, and its text as it was given."""

    kind: SchemaKind
    text: str

    def is_same_as(self, other: "Schema") -> bool:
        """True when both say the same, whatever the white space between their tokens."""
        if self.kind is not other.kind:
            return False
        return self.text == other.text or _plain(self.text) == _plain(other.text)


class WriterSchema(Struct, frozen=True):
    """The schema that a stored message is written with: its version of the topic's subject, and its
    id; 0 for one that a foreign record does not say. `is_framed`: the body begins with the five
    bytes of Confluent's framing, a zero and the id.
    """

    version: int
    id: int
    is_framed: bool = False


FRAME_BYTES = 5


def framed(schema_id: int, body: bytes) -> bytes:
    """A body in Avro with Confluent's framing before it: a zero, and the id of its schema."""
    return b"\0" + schema_id.to_bytes(FRAME_BYTES - 1, "big") + body


def framed_id(body: bytes) -> int | None:
    """The id in Confluent's framing; None where the body does not begin with one."""
    if len(body) < FRAME_BYTES or body[0] != 0:
        return None
    return int.from_bytes(body[1:FRAME_BYTES], "big")


def schema_id(schema: Schema, attempt: int = 0) -> int:
    """Give the id of a schema: from 1 to 2³¹ - 1, the same in every datacentre.

    Drawn from what the schema says, so that datacentres need not agree before they give one out.
    Two schemas may draw the same id, some one pair of 65,000 schemas: then the later one takes that
    of its next `attempt`.
    """
    digest = hashlib.sha256(f"{schema.kind} {attempt} ".encode() + _plain(schema.text))
    return int.from_bytes(digest.digest()[:8], "big") % _ID_MAX + 1


def _plain(text: str) -> bytes:
    """The text without white space between its tokens; as it is, where it is not JSON."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return text.encode()
