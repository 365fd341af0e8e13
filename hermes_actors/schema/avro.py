"""An Avro schema, compiled: turns what publishers send into Avro, and Avro into what people read.

fastavro writes the binary form. Ours is what a body in JSON has to become before, by Hermes'
lenient conversion or Avro's own JSON encoding, and the reading of what anybody may have written.
Logical types stay the plain numbers that they are stored as.
"""

import io
from collections.abc import Mapping
from enum import Enum
from typing import Any, assert_never

import fastavro
import msgspec

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.avro_lenient import Lenient
from hermes_actors.schema.avro_reading import DatumReader, UndecodableAvro
from hermes_actors.schema.avro_strict import Strict
from hermes_actors.schema.avro_types import AvroTypes, NotAvro
from hermes_actors.schema.avro_writing import Allowance, Take, Unfit
from hermes_actors.schema.weight import exponent_units

__all__ = [
    "ASIDE_STEPS_MAX",
    "LOOP_BYTES_MAX",
    "AvroSchema",
    "BodyForm",
    "UndecodableAvro",
    "is_soon_compiled",
    "metadata_refusal",
]

METADATA = "__metadata"
LOOP_BYTES_MAX = 65_536
"""A larger body is converted beside the loop: its decoding cannot be interrupted."""

COMPILED_PARTS_MAX = 1_500
"""A schema of more parts, told by its commas and brackets, is compiled beside the loop only: each
takes up to some 4 µs.
"""
_COMPILED_CHARACTERS_MAX = 65_536

LOOP_STEPS_MAX = 10_000
"""Steps of a conversion on the loop: some 5 ms."""
_UNITS_A_STEP = 5

ASIDE_STEPS_MAX = 10_000_000

_READ_NS_MAX = 5_000_000
_BYTE_NS, _RECORD_NS, _IDLE_NS = 400, 500, 100
"""The most CPU time for a byte of a body, for a record, for a value that takes no byte."""

_GIVEN_BYTES_MAX = 2_000_000
"""The most JSON that is made on the loop: each byte may make one name, or one symbol."""
_GIVEN_AROUND_BYTES = 8

_LEVELS_MAX = 100
"""Levels of a body in JSON whose type holds itself. Whoever reads it takes three times as many."""

_UNWRITABLE = (ValueError, TypeError, OverflowError, KeyError, RecursionError)


class BodyForm(Enum):
    """The forms of a published body, by their Content-Type."""

    JSON = "application/json"
    AVRO_JSON = "avro/json"
    AVRO_BINARY = "avro/binary"


def is_soon_compiled(text: str) -> bool:
    """True if compiling the schema with this text takes some 10 ms at most."""
    if len(text) > _COMPILED_CHARACTERS_MAX:
        return False
    return text.count(",") + text.count("{") + text.count("[") <= COMPILED_PARTS_MAX


def metadata_refusal(text: str) -> str:
    """Why the schema has no `__metadata` as Hermes wants it; "" when it has. Raises Refused."""
    if AvroSchema(text).has_metadata:
        return ""
    return (
        f"the schema needs a field {METADATA}, which the broker fills in: "
        '{"name": "__metadata", "type": ["null", {"type": "map", "values": "string"}], '
        '"default": null}'
    )


class AvroSchema:
    """A schema of messages that has been compiled. Its outermost type is a record.

    `has_metadata`: there is a field `__metadata` for what the broker knows of a message.
    `loop_bytes_max` is the most of a stored body that may be read on the loop; what is written has
    its bound in steps, of which one record that is all defaults takes `record_steps_max`.
    """

    __slots__ = (
        "_is_recursive",
        "_lenient",
        "_plain",
        "_reader",
        "_strict",
        "has_metadata",
        "loop_bytes_max",
        "record_steps_max",
    )

    def __init__(self, text: str) -> None:
        """Compile the schema. Raises Refused with FORMAT_ERROR; the message says what is wrong."""
        try:
            types = AvroTypes(text)
            self._plain: Any = types.plain
            lenient = Lenient(types)
            self._lenient: Take = lenient.root()
            self._strict: Take = Strict(types).root()
        except NotAvro as error:
            raise _no_schema(str(error)) from error
        self.record_steps_max = lenient.record_steps_max
        self._reader = DatumReader(types)
        self._is_recursive = types.is_recursive
        self.has_metadata = _is_metadata(types.root)
        each_ns = _BYTE_NS + _RECORD_NS * types.chain_max + _IDLE_NS * types.idle_max
        given_max = _GIVEN_BYTES_MAX // (_GIVEN_AROUND_BYTES + types.text_max)
        self.loop_bytes_max = min(_READ_NS_MAX // each_ns, given_max)

    def convert(
        self,
        form: BodyForm,
        body: bytes,
        metadata: Mapping[str, str],
        steps_max: int = LOOP_STEPS_MAX,
    ) -> bytes:
        """Return the body as it is stored, with `metadata` as its `__metadata` where the schema has
        that. Raises Refused for a body that does not fit, and TooMuchWork after `steps_max` steps.
        """
        allowance = Allowance(steps_max)
        match form:
            case BodyForm.AVRO_BINARY:
                if not self.has_metadata:
                    # As in Hermes: then nobody looks at it.
                    return body
                return self._with_metadata(body, metadata)
            case BodyForm.JSON:
                decoded = self._decoded(body, allowance)
                if type(decoded) is not dict:
                    raise Refused(f"{_NOT_PARSED} It is not a JSON object")
                datum = self._taken(self._lenient, decoded, _LENIENT, allowance)
            case BodyForm.AVRO_JSON:
                decoded = self._decoded(body, allowance)
                datum = self._taken(self._strict, decoded, _STRICT, allowance)
            case _:
                assert_never(form)
        if self.has_metadata:
            datum[METADATA] = ("map", dict(metadata))
        stored = io.BytesIO()
        try:
            fastavro.schemaless_writer(stored, self._plain, datum)
        except _UNWRITABLE as error:
            raise Refused(f"Invalid message: {_STRICT}: {error}") from error
        return stored.getvalue()

    def document(self, body: bytes) -> dict[str, Any]:
        """Return what a stored body says, as JSON would: unions unwrapped, logical types as their
        numbers, bytes as ISO 8859-1 text. Raises UndecodableAvro.
        """
        document: dict[str, Any] = self._reader.read(body)
        return document

    def to_json(self, body: bytes, keeps_metadata: bool = False) -> bytes:
        """Return a stored body as JSON, with or without `__metadata`. Raises UndecodableAvro."""
        return self.json_of(self.document(body), keeps_metadata)

    @staticmethod
    def json_of(document: Mapping[str, Any], keeps_metadata: bool = False) -> bytes:
        """Return what `document` has given as JSON. Raises UndecodableAvro."""
        if not keeps_metadata and METADATA in document:
            document = {name: each for name, each in document.items() if name != METADATA}
        try:
            return msgspec.json.encode(document)
        except (ValueError, OverflowError, RecursionError) as error:
            raise UndecodableAvro(f"it is no JSON: {error}") from error

    def _with_metadata(self, body: bytes, metadata: Mapping[str, str]) -> bytes:
        """A body in Avro as it came, but for its `__metadata`."""
        try:
            begin, end = self._reader.place_of(METADATA, body)
        except UndecodableAvro as error:
            raise Refused(f"Invalid message: {_STRICT}: {error}") from error
        written = io.BytesIO()
        fastavro.schemaless_writer(written, _METADATA_TYPE, ("map", dict(metadata)))
        return b"".join((body[:begin], written.getvalue(), body[end:]))

    def _decoded(self, body: bytes, allowance: Allowance) -> Any:
        allowance.spend(exponent_units(body) // _UNITS_A_STEP)
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Refused(f"{_NOT_PARSED} It is not valid JSON: {error}") from error
        may_be_deep = self._is_recursive and body.count(b"{") + body.count(b"[") > _LEVELS_MAX
        if may_be_deep and _is_deep(value, _LEVELS_MAX):
            raise Refused(f"Invalid message: it is nested deeper than {_LEVELS_MAX} levels")
        return value

    def _taken(self, take: Take, value: Any, words: str, allowance: Allowance) -> dict[str, Any]:
        try:
            datum: dict[str, Any] = take(value, allowance)
        except Unfit as error:
            raise Refused(f"Invalid message: {words}{error}") from error
        except RecursionError as error:
            raise Refused(f"Invalid message: {words}: it is nested too deep") from error
        return datum


_METADATA_TYPE = fastavro.parse_schema(["null", {"type": "map", "values": "string"}])
_NOT_PARSED = "Invalid message: Failed to parse json to map format."
_LENIENT = "Failed to convert JSON to Avro"
_STRICT = "Failed to convert to AVRO"


def _is_deep(value: Any, levels_max: int) -> bool:
    """True when more levels of objects and arrays are within one another."""
    level = [value]
    for _ in range(levels_max):
        below: list[Any] = []
        for each in level:
            if type(each) is dict:
                below += each.values()
            elif type(each) is list:
                below += each
        if not below:
            return False
        level = below
    return any(type(each) is dict or type(each) is list for each in level)


def _is_metadata(root: Mapping[str, Any]) -> bool:
    for field in root["fields"]:
        if field["name"] == METADATA:
            kind = field["type"]
            return (
                isinstance(kind, list)
                and len(kind) == 2
                and kind[0] == "null"
                and isinstance(kind[1], dict)
                and kind[1]["type"] == "map"
                and kind[1]["values"] in ("string", {"type": "string"})
                and "default" in field
                and field["default"] is None
            )
    return False


def _no_schema(reason: str) -> Refused:
    shown = reason if len(reason) <= 500 else reason[:500] + "…"
    return Refused(f"The schema is no Avro schema: {shown}", ErrorCode.FORMAT_ERROR)
