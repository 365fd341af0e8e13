"""The Avro topic: the versions of its schema, and its messages as published, whatever version they
are stored in.

Stored messages are read by fastavro, not by the product's reader.
"""

import io
import json

import fastavro

from hermes_actors.model.schema import Schema, SchemaKind, schema_id

VERSIONS = 4
"""The number of schema versions by the end of a run."""

_METADATA = "__metadata"
# New fields come first, so that reading with the wrong version gives wrong values.
_ADDED = {f"added{version}": version for version in range(VERSIONS, 1, -1)}


def schema_of(version: int) -> str:
    """The text of a version, from 1. Each later version adds a field with a default."""
    metadata = {
        "name": _METADATA,
        "type": ["null", {"type": "map", "values": "string"}],
        "default": None,
    }
    added = [
        {"name": name, "type": "int", "default": since}
        for name, since in _ADDED.items()
        if since <= version
    ]
    published = [{"name": "serial", "type": "long"}, {"name": "filling", "type": "string"}]
    return json.dumps({"type": "record", "name": "Visit", "fields": [metadata, *added, *published]})


_WRITTEN = {
    schema_id(Schema(SchemaKind.AVRO, text)): fastavro.parse_schema(json.loads(text))
    for text in map(schema_of, range(1, VERSIONS + 1))
}


def read_avro(body: bytes, written_with: int) -> bytes:
    """The JSON of an Avro body written with this schema id. If it cannot be read, the body itself,
    which is not JSON.
    """
    stored = io.BytesIO(body)
    try:
        document = fastavro.schemaless_reader(stored, _WRITTEN[written_with])
    except (KeyError, IndexError, EOFError, ValueError):
        return body
    if stored.read() or not isinstance(document, dict) or not document.pop(_METADATA, None):
        return body
    return json.dumps(document, ensure_ascii=False).encode()


def as_published(body: bytes) -> tuple[bytes, int]:
    """A message's JSON without the defaults that the broker filled in, and the version that has all
    its fields. If there is none, the unchanged body and 0.
    """
    try:
        document = json.loads(body)
    except ValueError:
        return body, 0
    if not isinstance(document, dict):
        return body, 0
    version = 1 + sum(document.get(name) == since for name, since in _ADDED.items())
    rest = {name: value for name, value in document.items() if name not in _ADDED}
    wanted = [*[name for name, since in _ADDED.items() if since <= version], *rest]
    if list(document) != wanted:
        return body, 0
    return json.dumps(rest, ensure_ascii=False).encode(), version
