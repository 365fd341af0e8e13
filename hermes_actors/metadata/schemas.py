"""The registers of schemas: `schema/<id>` holds a text, `subject/<name>/<version>` refers to one.

A schema outlives the versions that refer to it, because stored messages must stay readable. A
version is written after its schema, so the schema has usually arrived before it; until then the
version does not count.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes_actors.metadata.bodies import decode_body
from hermes_actors.metadata.keys import Key, key
from hermes_actors.model.schema import Compatibility, Schema

SCHEMA = "schema"
SUBJECT = "subject"
COMPATIBILITY = "compatibility"


class _Version(Struct, frozen=True, rename="camel"):
    schema_id: Annotated[int, Meta(ge=1)]


class _Level(Struct, frozen=True, rename="camel"):
    level: Compatibility


def schema_key(schema_id: int) -> str:
    """The key of a schema."""
    return key(SCHEMA, str(schema_id))


def version_key(subject: str, version: int) -> str:
    """The key of a version of a subject; versions start at 1."""
    return key(SUBJECT, subject, str(version))


def compatibility_key(subject: str) -> str:
    """The key of a subject's compatibility level, which its new versions must satisfy."""
    return key(COMPATIBILITY, subject)


def schema_of(parsed: Key) -> int | None:
    """The schema id in the key of a schema; None for other keys."""
    if parsed.kind != SCHEMA or len(parsed.names) != 1:
        return None
    return _number(parsed.names[0])


def version_of(parsed: Key) -> tuple[str, int] | None:
    """The subject and version in the key of a version; None for other keys."""
    if parsed.kind != SUBJECT or len(parsed.names) != 2:
        return None
    number = _number(parsed.names[1])
    return None if number is None else (parsed.names[0], number)


def levelled_by(parsed: Key) -> str | None:
    """The subject in the key of a compatibility level; None for other keys."""
    if parsed.kind != COMPATIBILITY or len(parsed.names) != 1:
        return None
    return parsed.names[0]


def schema_body(schema: Schema) -> bytes:
    """Encode a schema."""
    return msgspec.json.encode(schema)


def version_body(schema_id: int) -> bytes:
    """Encode a version that refers to this schema."""
    return msgspec.json.encode(_Version(schema_id))


def compatibility_body(level: Compatibility) -> bytes:
    """Encode a compatibility level."""
    return msgspec.json.encode(_Level(level))


def decode_schema(body: bytes) -> Schema:
    """Decode a schema. Raises UndecodableBody."""
    return decode_body(body, Schema)


def decode_version(body: bytes) -> int:
    """Decode the schema id of a version. Raises UndecodableBody."""
    return decode_body(body, _Version).schema_id


def decode_compatibility(body: bytes) -> Compatibility:
    """Decode a subject's compatibility level. Raises UndecodableBody."""
    return decode_body(body, _Level).level


def _number(text: str) -> int | None:
    is_plain = text.isascii() and text.isdigit() and not text.startswith("0")
    return int(text) if is_plain and len(text) <= 10 else None
