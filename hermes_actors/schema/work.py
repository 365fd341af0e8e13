"""The work on schemas that runs in workers: functions of values, for the worker pool.

Each raises Refused. Compiled schemas stay for the next job of the same worker.
"""

from functools import lru_cache

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.schema.avro import METADATA, BodyForm, UndecodableAvro, avro_schema
from hermes_actors.schema.avro_compatibility import require_avro, why_unreadable
from hermes_actors.schema.json_schema import JsonSchema, can_read

SCHEMA_CPU_S = 2.0
"""The CPU time that compiling a new schema, or comparing two, may take."""

MESSAGE_CPU_S = 0.5
"""The CPU time that one message may take, with compiling its schema; more by the message's size."""

JSON_BYTES_MAX = 16_777_216
"""The largest JSON that a body in Avro may become."""

_CPU_S_A_BYTE = 200e-9
_COMPILED_MAX = 64
_json_schema = lru_cache(_COMPILED_MAX)(JsonSchema)
_avro_schema = lru_cache(_COMPILED_MAX)(avro_schema)


def message_cpu_s(body: bytes) -> float:
    """The CPU time that work on a message with this body may take."""
    return MESSAGE_CPU_S + min(len(body) * _CPU_S_A_BYTE, 2.0)


def compiles(schema: Schema, of_topic: bool, needs_metadata: bool) -> None:
    """Check a new schema. `of_topic`: messages are written by it; `needs_metadata`: an Avro schema
    must have the field for what the broker knows of a message.
    """
    if schema.kind is SchemaKind.JSON:
        JsonSchema(schema.text)
        return
    require_avro(schema.text)
    if of_topic and not avro_schema(schema.text).has_metadata and needs_metadata:
        raise Refused(
            f"the schema needs a field {METADATA}, which the broker fills in: "
            '{"name": "__metadata", "type": ["null", {"type": "map", "values": "string"}], '
            '"default": null}',
            ErrorCode.FORMAT_ERROR,
        )


def fits(schema: str, body: bytes) -> None:
    """Check a message by a JSON Schema."""
    error = _json_schema(schema).check(body)
    if error is not None:
        raise error


def converts(schema: str, form: BodyForm, body: bytes, metadata: dict[str, str]) -> bytes:
    """Convert the body of a message, which came in this form, to Avro."""
    return _avro_schema(schema).convert(form, body, metadata)


def decodes(schema: str, body: bytes, keeps_metadata: bool) -> bytes:
    """Read a stored body in Avro: its JSON, with or without `__metadata`."""
    try:
        decoded = _avro_schema(schema).to_json(body, keeps_metadata)
    except UndecodableAvro as error:
        raise Refused(f"Invalid message: {error}") from error
    if len(decoded) > JSON_BYTES_MAX:
        raise Refused(f"{len(decoded)} bytes of JSON, more than {JSON_BYTES_MAX}")
    return decoded


def reads(reader: Schema, writer: Schema) -> str:
    """Why a reader by one schema cannot read all that the other allows; "" when he can."""
    if reader.kind is SchemaKind.AVRO:
        return why_unreadable(reader.text, writer.text)
    return "" if can_read(reader.text, writer.text) else "it allows less, or may allow less"
