"""A compiled Avro schema: converts published bodies to Avro, and Avro to JSON.

fastavro reads and writes the binary form. Logical types stay the plain numbers that are stored.
fastavro's reader overflows the C stack on deeply nested bodies of recursive schemas, so only a
schema with `parts` may be used on the event loop.
"""

import io
from collections.abc import Mapping
from enum import Enum
from typing import Any, assert_never

import fastavro
import msgspec

from hermes_actors.errors import Refused
from hermes_actors.schema.avro_conversion import Encoding, Take, Unfit, conversion
from hermes_actors.schema.avro_types import RECORDS, AvroTypes, no_schema
from hermes_actors.schema.loop_limits import AvroType

METADATA = "__metadata"

_METADATA_TYPE = fastavro.parse_schema(["null", {"type": "map", "values": "string"}])
_PART = "HermesPart"
_NOT_PARSED = "Invalid message: Failed to parse json to map format."
_LENIENT = "Failed to convert JSON to Avro"
_STRICT = "Failed to convert to AVRO"
_UNWRITABLE = (ValueError, TypeError, OverflowError, KeyError, RecursionError)


class UndecodableAvro(Exception):
    """The bytes do not match the schema; the message says why."""


class BodyForm(Enum):
    """The forms of a published body, by Content-Type."""

    JSON = "application/json"
    AVRO_JSON = "avro/json"
    AVRO_BINARY = "avro/binary"


class AvroSchema:
    """A compiled schema of messages, whose outermost type is a record.

    `has_metadata`: it has a field `__metadata`, which the broker fills in. `parts` is its size for
    the loop's limit; None if it may only be used in a worker.
    """

    __slots__ = ("_lenient", "_metadata", "_schema", "_strict", "has_metadata", "parts")

    def __init__(self, types: AvroTypes) -> None:
        """Compile the schema. Raises Refused with FORMAT_ERROR; the message gives the reason."""
        self.parts = types.parts
        self._schema = types.root
        try:
            self._lenient: Take = conversion(types, Encoding.LENIENT)
            self._strict: Take = conversion(types, Encoding.STRICT)
            self._metadata = _Metadata.of(types)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            # fastavro parses some texts that are not schemas.
            raise no_schema(str(error) or type(error).__name__) from error
        self.has_metadata = self._metadata is not None

    def take(self, body: bytes, form: BodyForm, metadata: Mapping[str, str]) -> bytes:
        """Return the body as it is stored, with `metadata` in its `__metadata` if the schema has
        that field. Raises Refused for a body that does not fit.
        """
        match form:
            case BodyForm.AVRO_BINARY:
                if self._metadata is None:
                    # As in Hermes: the body is not checked then.
                    return body
                return self._metadata.replaced(body, metadata)
            case BodyForm.JSON:
                decoded = _decoded(body)
                if type(decoded) is not dict:
                    raise Refused(f"{_NOT_PARSED} It is not a JSON object")
                datum = _taken(self._lenient, decoded, _LENIENT)
            case BodyForm.AVRO_JSON:
                datum = _taken(self._strict, _decoded(body), _STRICT)
            case _:
                assert_never(form)
        if self.has_metadata:
            datum[METADATA] = ("map", dict(metadata))
        stored = io.BytesIO()
        try:
            fastavro.schemaless_writer(stored, self._schema, datum)
        except _UNWRITABLE as error:
            raise Refused(f"Invalid message: {_STRICT}: {error}") from error
        return stored.getvalue()

    def document(self, body: bytes) -> dict[str, Any]:
        """Decode a stored body to what its JSON would contain: unions unwrapped, logical types as
        numbers, bytes as ISO 8859-1 text. Raises UndecodableAvro.
        """
        source = io.BytesIO(body)
        document: dict[str, Any] = _read(source, self._schema)
        _require_end(source, body)
        return document

    def to_json(self, body: bytes, keeps_metadata: bool = False) -> bytes:
        """Convert a stored body to JSON, with or without `__metadata`. Raises UndecodableAvro."""
        return self.json_of(self.document(body), keeps_metadata)

    @staticmethod
    def json_of(document: dict[str, Any], keeps_metadata: bool = False) -> bytes:
        """Encode the result of `document` as JSON; `__metadata` is dropped unless kept. Raises
        UndecodableAvro.
        """
        if not keeps_metadata:
            document.pop(METADATA, None)
        try:
            return msgspec.json.encode(document)
        except (ValueError, OverflowError, RecursionError) as error:
            raise UndecodableAvro(f"it is not JSON: {error}") from error


def avro_schema(text: str) -> AvroSchema:
    """Compile a schema. Raises Refused with FORMAT_ERROR."""
    return AvroSchema(AvroTypes(text))


class _Metadata:
    """Replaces `__metadata` in bodies that are already Avro, by schemas for the fields before and
    after it.
    """

    def __init__(self, types: AvroTypes, place: int) -> None:
        fields = types.root["fields"]
        self._parts = [
            _part(types, fields[:place]),
            _METADATA_TYPE,
            _part(types, fields[place + 1 :]),
        ]

    @classmethod
    def of(cls, types: AvroTypes) -> "_Metadata | None":
        for place, field in enumerate(types.root["fields"]):
            if field["name"] == METADATA and _is_metadata(field):
                return cls(types, place)
        return None

    def replaced(self, body: bytes, metadata: Mapping[str, str]) -> bytes:
        """Return the body unchanged except for its `__metadata`. Raises Refused."""
        source = io.BytesIO(body)
        ends = []
        try:
            for part in self._parts:
                _read(source, part)
                ends.append(source.tell())
            _require_end(source, body)
        except UndecodableAvro as error:
            raise Refused(f"Invalid message: {_STRICT}: {error}") from error
        written = io.BytesIO()
        fastavro.schemaless_writer(written, _METADATA_TYPE, ("map", dict(metadata)))
        return b"".join((body[: ends[0]], written.getvalue(), body[ends[1] :]))


def _part(types: AvroTypes, fields: list[dict[str, Any]]) -> Any:
    """Make a schema from some fields of the message. Named types are referred to, not defined
    again.
    """
    named = [{"name": each["name"], "type": _by_name(each["type"])} for each in fields]
    record = {"type": "record", "name": _PART, "fields": named}
    return fastavro.parse_schema(record, dict(types.named))


def _by_name(kind: AvroType) -> AvroType:
    if isinstance(kind, list):
        return [_by_name(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] in RECORDS or kind["type"] in ("enum", "fixed"):
        return str(kind["name"])
    below: dict[str, Any] = {
        name: _by_name(kind[name]) for name in ("items", "values") if name in kind
    }
    return {**kind, **below}


def _is_metadata(field: Mapping[str, Any]) -> bool:
    match field["type"]:
        case ["null", {"type": "map", "values": "string" | {"type": "string"}}]:
            return "default" in field and field["default"] is None
    return False


def _read(source: io.BytesIO, schema: Any) -> Any:
    try:
        return fastavro.schemaless_reader(source, schema, None)
    except EOFError as error:
        raise UndecodableAvro("it ends too early") from error
    except Exception as error:
        raise UndecodableAvro(str(error) or type(error).__name__) from error


def _require_end(source: io.BytesIO, body: bytes) -> None:
    if left := len(body) - source.tell():
        raise UndecodableAvro(f"{left} bytes are left after the message")


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refused(f"{_NOT_PARSED} It is not valid JSON: {error}") from error


def _taken(take: Take, value: Any, words: str) -> dict[str, Any]:
    try:
        datum: dict[str, Any] = take(value)
    except Unfit as error:
        raise Refused(f"Invalid message: {words}{error}") from error
    except RecursionError as error:
        raise Refused(f"Invalid message: {words}: it is nested too deeplyly") from error
    return datum
