"""A schema of messages, its id, and how a subject's versions must agree."""

import hashlib
from enum import StrEnum
from functools import lru_cache
from typing import Any

import fastavro
import msgspec
from msgspec import Struct

SCHEMA_BYTES_MAX = 262_144
"""The largest schema that is taken, in bytes of UTF-8."""

_ID_MAX = 2**31 - 1
_PARTS = frozenset({"type", "items", "values", "fields"})
_HINTS = frozenset({"__fastavro_parsed", "__named_schemas"})


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
        """True when both say the same; see `canonical`."""
        return self.kind is other.kind and canonical(self) == canonical(other)


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


def seeming_kind(text: str) -> SchemaKind | None:
    """The language that a schema seems to be written in, by its outermost words."""
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    if raw.get("type") in ("record", "enum", "fixed"):
        return SchemaKind.AVRO
    return SchemaKind.JSON if raw.get("type") == "object" or "$schema" in raw else None


def schema_id(schema: Schema, attempt: int = 0) -> int:
    """Give the id of a schema: from 1 to 2³¹ - 1, the same in every datacentre.

    Drawn from what the schema says, so that datacentres need not agree before they give one out.
    Two schemas may draw the same id, some one pair of 65,000 schemas: then the later one takes that
    of its next `attempt`.
    """
    digest = hashlib.sha256(f"{schema.kind} {attempt} ".encode() + canonical(schema))
    return int.from_bytes(digest.digest()[:8], "big") % _ID_MAX + 1


@lru_cache(maxsize=256)
def canonical(schema: Schema) -> bytes:
    """What a schema says: without white space, its attributes sorted, and of Avro with full names
    and short primitive types, as in Avro's parsing canonical form. Defaults, aliases, documentation
    and logical types stay: a schema that changes them is another version.
    """
    try:
        raw = msgspec.json.decode(schema.text)
        if schema.kind is SchemaKind.AVRO:
            raw = _with_full_names(fastavro.parse_schema(raw, {}))
        return msgspec.json.encode(raw, order="sorted")
    except Exception:  # noqa: BLE001 -- it is no schema, which is found out elsewhere
        return schema.text.encode()


def _with_full_names(parsed: Any) -> Any:
    if isinstance(parsed, list):
        return [_with_full_names(each) for each in parsed]
    if not isinstance(parsed, dict):
        return parsed
    plain = {
        name: _with_full_names(value) if name in _PARTS else value
        for name, value in parsed.items()
        if name not in _HINTS
    }
    return plain["type"] if plain.keys() == {"type"} else plain
