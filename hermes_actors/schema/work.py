"""Work with schemas: small ones on the loop, others as jobs of the worker pool.

The jobs are functions of plain values, and raise Refused. A worker caches compiled schemas.
"""

from functools import lru_cache
from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.schema import Schema, SchemaKind, seeming_kind
from hermes_actors.schema.avro import METADATA, AvroSchema, UndecodableAvro, avro_schema
from hermes_actors.schema.avro_types import AvroTypes
from hermes_actors.schema.compatibility import require_avro
from hermes_actors.schema.json_schema import JsonSchema
from hermes_actors.schema.loop_limits import TEXT_MAX, UNITS_MAX, is_small

SCHEMA_CPU_S = 2.0
"""Maximum CPU time to compile a new schema."""

COMPARING_CPU_S = 10.0
"""Maximum CPU time to compare a schema with earlier versions."""

MESSAGE_CPU_S = 0.5
"""Maximum CPU time for one message, including compiling its schema; more for a large message."""

JSON_BYTES_MAX = 16_777_216
"""Maximum size of the JSON of an Avro body."""

TO_AVRO = (
    "create the topic with contentType AVRO, or turn it to AVRO: hermes topic update {topic} "
    'contentType=AVRO migratedFromJsonType=true schema="$(cat FILE)"'
)
"""The way out for whoever has an Avro schema for a JSON topic."""

_NO_AVRO = (
    "This is a JSON Schema, and not an Avro schema. An AVRO topic takes Avro schemas only; for a "
    'JSON topic the registry must be given "schemaType": "JSON" with it'
)
_CPU_S_A_BYTE = 200e-9
Compiled = JsonSchema | AvroSchema


@lru_cache(maxsize=1_000)
def loop_schema(kind: SchemaKind, text: str) -> Compiled | Refused | None:
    """The schema for use on the loop; an error if this node cannot use it; None if it is for a
    worker.
    """
    if len(text) > TEXT_MAX:
        return None
    try:
        if kind is SchemaKind.JSON:
            schema = JsonSchema(text)
            return None if schema.parts is None else schema
        types = AvroTypes(text)
        return None if types.parts is None else AvroSchema(types)
    except (Refused, ValueError, RecursionError) as error:
        # A node of another version has stored it; other topics must continue whatever it is.
        message = f"This node cannot use the topic's schema: {error}"
        return Refused(message, ErrorCode.SCHEMA_COULD_NOT_BE_LOADED)


def units(schema: Compiled | Refused | None, body: bytes) -> int:
    """The work for a body on the loop; more than UNITS_MAX is for a worker."""
    if isinstance(schema, Refused):
        return 0
    if schema is None or schema.parts is None or not is_small(body):
        return UNITS_MAX + 1
    return len(body) * schema.parts


@lru_cache(maxsize=64)
def _compiled(kind: SchemaKind, text: str) -> Compiled:
    return JsonSchema(text) if kind is SchemaKind.JSON else avro_schema(text)


def message_cpu_s(body: bytes) -> float:
    """Maximum CPU time for work on a message with this body."""
    return MESSAGE_CPU_S + min(len(body) * _CPU_S_A_BYTE, 2.0)


def compiles(schema: Schema, topic: str, needs_metadata: bool) -> None:
    """Check a new schema of a topic; "" for a subject of no topic. `needs_metadata`: an Avro schema
    must have the field that the broker fills in.
    """
    try:
        _require_compiled(schema, topic, needs_metadata)
    except Refused as error:
        kind = seeming_kind(schema.text)
        if kind is SchemaKind.JSON and schema.kind is SchemaKind.AVRO:
            raise Refused(_NO_AVRO, ErrorCode.FORMAT_ERROR) from error
        if kind is SchemaKind.AVRO and schema.kind is SchemaKind.JSON and topic:
            lacks = f"This is an Avro schema, and topic {topic} is JSON: it takes JSON Schema; "
            raise Refused(lacks + TO_AVRO.format(topic=topic), ErrorCode.FORMAT_ERROR) from error
        raise


def _require_compiled(schema: Schema, topic: str, needs_metadata: bool) -> None:
    if schema.kind is SchemaKind.JSON:
        JsonSchema(schema.text)
        return
    require_avro(schema.text)
    if topic and not avro_schema(schema.text).has_metadata and needs_metadata:
        raise Refused(
            f"the schema needs a field {METADATA}, which the broker fills in: "
            '{"name": "__metadata", "type": ["null", {"type": "map", "values": "string"}], '
            '"default": null}',
            ErrorCode.FORMAT_ERROR,
        )


def takes(schema: Schema, *args: Any) -> bytes:
    """Return the body to store for a message, by this schema."""
    return _compiled(schema.kind, schema.text).take(*args)


def decodes(schema: str, body: bytes, keeps_metadata: bool) -> bytes:
    """Convert a stored Avro body to JSON, with or without `__metadata`."""
    compiled = _compiled(SchemaKind.AVRO, schema)
    assert isinstance(compiled, AvroSchema), "it is of Avro"
    try:
        decoded = compiled.to_json(body, keeps_metadata)
    except UndecodableAvro as error:
        raise Refused(f"Invalid message: {error}") from error
    if len(decoded) > JSON_BYTES_MAX:
        raise Refused(f"{len(decoded)} bytes of JSON, more than {JSON_BYTES_MAX}")
    return decoded
