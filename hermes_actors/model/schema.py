"""A schema of messages, its id, and how a subject's versions must be compatible."""

import hashlib
from enum import StrEnum
from functools import lru_cache
from typing import Any

import fastavro
import msgspec
from msgspec import Struct

SCHEMA_BYTES_MAX = 262_144
"""Maximum size of a schema in bytes of UTF-8."""

_ID_MAX = 2**31 - 1
_PARTS = frozenset({"type", "items", "values", "fields"})
_HINTS = frozenset({"__fastavro_parsed", "__named_schemas"})


class SchemaKind(StrEnum):
    """The schema languages, with the names in Confluent's registry."""

    JSON = "JSON"
    AVRO = "AVRO"

    # Enum's is a Python function, and each message looks its compiled schema up by the kind.
    __hash__ = str.__hash__


class Compatibility(StrEnum):
    """How a new version of a subject must be compatible with older ones, as in Confluent's
    registry.

    BACKWARD: it can read what the last version wrote. FORWARD: the last version can read what it
    writes. FULL: both. The transitive levels compare with all versions, not just the last.
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
        """True if both schemas have the same meaning; see `canonical`."""
        return self.kind is other.kind and canonical(self) == canonical(other)


class WriterSchema(Struct, frozen=True):
    """The schema of a stored message: its version of the topic's subject, and its id; 0 if a
    foreign record does not name it. `is_framed`: the body begins with the five bytes of Confluent's
    framing, a zero and the id.
    """

    version: int
    id: int
    is_framed: bool = False


FRAME_BYTES = 5


def framed(schema_id: int, body: bytes) -> bytes:
    """Put Confluent's framing before an Avro body: a zero, and the schema's id."""
    return b"\0" + schema_id.to_bytes(FRAME_BYTES - 1, "big") + body


def framed_id(body: bytes) -> int | None:
    """The id in Confluent's framing; None if the body does not begin with one."""
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
    """Return the id of a schema: from 1 to 2³¹ - 1, the same in every datacentre.

    It is a hash of the schema's meaning, so datacentres need not agree before they assign one. Two
    schemas may get the same id (likely for one pair among 65,000 schemas); the later one then uses
    the next `attempt`.
    """
    digest = hashlib.sha256(f"{schema.kind} {attempt} ".encode() + canonical(schema))
    return int.from_bytes(digest.digest()[:8], "big") % _ID_MAX + 1


@lru_cache(maxsize=256)
def canonical(schema: Schema) -> bytes:
    """The meaning of a schema as bytes: without white space, with sorted attributes, and for Avro
    with full names and short primitive types, as in Avro's parsing canonical form. Defaults,
    aliases, documentation and logical types are kept: a change of them makes another version.
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
