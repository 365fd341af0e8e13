"""An Avro schema, compiled: turns what publishers send into Avro, and Avro into what people read.

fastavro reads and writes the binary form. Ours is what a body in JSON has to become before: Hermes'
lenient conversion, and Avro's own JSON encoding. Logical types stay the plain numbers that they are
stored as.
"""

import io
from collections.abc import Mapping
from enum import Enum
from typing import Any, assert_never

import fastavro
import msgspec

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.avro_lenient import Lenient
from hermes_actors.schema.avro_reading import Give, giver_of
from hermes_actors.schema.avro_strict import Strict
from hermes_actors.schema.avro_types import AvroTypes, NotAvro
from hermes_actors.schema.avro_writing import Allowance, Take, Unfit

METADATA = "__metadata"
LOOP_BYTES_MAX = 65_536
"""A larger body is converted beside the loop: its decoding cannot be interrupted."""

COMPILED_BYTES_MAX = 65_536
"""A larger schema is compiled beside the loop only: it may take more than some 20 ms."""

LOOP_STEPS_MAX = 10_000
"""Steps of a conversion on the loop: some 5 ms."""

ASIDE_STEPS_MAX = 10_000_000

_READ_BYTES_MAX = 32_768
_GIVEN_BYTES_MAX = 2_000_000
"""The most JSON that is made on the loop: each byte may make one name, or one symbol."""
_GIVEN_AROUND_BYTES = 8

_RECURSIVE_BYTES_MAX = 1_000
"""fastavro overflows the stack of the machine some 3,000 levels deep, and each takes a byte."""

_UNREADABLE = (EOFError, IndexError, ValueError, KeyError, TypeError, OverflowError, MemoryError)
_UNWRITABLE = (ValueError, TypeError, OverflowError, KeyError, RecursionError)


class BodyForm(Enum):
    """The forms of a published body, by their Content-Type."""

    JSON = "application/json"
    AVRO_JSON = "avro/json"
    AVRO_BINARY = "avro/binary"


class UndecodableAvro(Exception):
    """The bytes are not what the schema says; the message says why."""


def is_soon_compiled(text: str) -> bool:
    """True if compiling the schema with this text takes some 20 ms at most."""
    return len(text) <= COMPILED_BYTES_MAX


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
    its bound in steps.
    """

    __slots__ = ("_give", "_lenient", "_plain", "_strict", "has_metadata", "loop_bytes_max")

    def __init__(self, text: str) -> None:
        """Compile the schema. Raises Refused with FORMAT_ERROR; the message says what is wrong."""
        try:
            types = AvroTypes(text)
            self._plain: Any = types.plain
            self._lenient: Take = Lenient(types).root()
            self._strict: Take = Strict(types).root()
        except NotAvro as error:
            raise _no_schema(str(error)) from error
        self._give: Give = giver_of(types)
        self.has_metadata = _is_metadata(types.root)
        bytes_max = _READ_BYTES_MAX
        if types.is_recursive:
            bytes_max = _RECURSIVE_BYTES_MAX // (1 + types.chain_max)
        bytes_max = min(bytes_max, _GIVEN_BYTES_MAX // (_GIVEN_AROUND_BYTES + types.text_max))
        self.loop_bytes_max = bytes_max // (1 + types.idle_max)

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
        match form:
            case BodyForm.AVRO_BINARY:
                if not self.has_metadata:
                    # As in Hermes: then nobody looks at it.
                    return body
                try:
                    datum = self._read(body)
                except UndecodableAvro as error:
                    raise Refused(f"Invalid message: {_STRICT}: {error}") from error
            case BodyForm.JSON:
                datum = self._taken(self._lenient, _decoded(body), _LENIENT, steps_max)
            case BodyForm.AVRO_JSON:
                datum = self._taken(self._strict, _decoded(body), _STRICT, steps_max)
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
        datum = self._read(body)
        try:
            given: dict[str, Any] = self._give(datum)
        except RecursionError as error:
            raise UndecodableAvro("it is nested too deep") from error
        return given

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

    def _read(self, body: bytes) -> dict[str, Any]:
        # In machine code, and without a look-ahead: what it meets decides on what it raises.
        try:
            datum = fastavro.schemaless_reader(
                io.BytesIO(body), self._plain, None, return_record_name=True
            )
        except _UNREADABLE as error:
            raise UndecodableAvro(str(error) or "it ends too early") from error
        assert isinstance(datum, dict), "the outermost type is a record"
        return datum

    def _taken(self, take: Take, value: Any, words: str, steps_max: int) -> dict[str, Any]:
        try:
            datum: dict[str, Any] = take(value, Allowance(steps_max))
        except Unfit as error:
            raise Refused(f"Invalid message: {words}{error}") from error
        except RecursionError as error:
            raise Refused(f"Invalid message: {words}: it is nested too deep") from error
        return datum


_LENIENT = "Failed to convert JSON to Avro"
_STRICT = "Failed to convert to AVRO"


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refused(
            f"Invalid message: Failed to parse json to map format. It is not valid JSON: {error}"
        ) from error


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
