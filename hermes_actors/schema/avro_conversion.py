"""Converts a JSON body to Avro's binary form, by the rules of Hermes' publishers.

There are two encodings: plain JSON, as Hermes' json2avro accepts it (lenient), and Avro's own JSON
encoding (strict). Each type of a schema becomes a function from a value to its bytes, so a message
is checked and written in one pass.
"""

import struct
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from math import inf
from operator import call
from types import NoneType
from typing import Annotated, Any

from msgspec import Meta, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple

from hermes_actors.schema.avro_logical import LOGICAL_READS
from hermes_actors.schema.avro_types import LOGICAL, PRIMITIVES, AvroTypes, no_schema
from hermes_actors.schema.loop_limits import AvroType

Take = Callable[[Any], bytes]
"""Converts a JSON value to Avro. Raises Unfit."""

TakeFields = Callable[[Any], list[bytes]]
"""Converts a JSON object to the bytes of each field of a record. Raises Unfit."""

_BITS = {"int": 32, "long": 64}
_SHOWN_MAX = 20
_ABSENT: Any = object()
_JAVA = {
    "boolean": "java.lang.Boolean",
    "string": "java.lang.String",
    "bytes": "java.lang.String",
    "array": "java.util.Collection",
    "map": "java.util.Map",
    "record": "java.util.Map",
    "null": "null",
}
"""Type names in Hermes' lenient error messages; any other type is a number."""

_NUMBER = "java.lang.Number"

_TOKENS = {
    NoneType: "VALUE_NULL",
    int: "VALUE_NUMBER_INT",
    float: "VALUE_NUMBER_FLOAT",
    str: "VALUE_STRING",
    list: "START_ARRAY",
    dict: "START_OBJECT",
}
"""Token names in Hermes' strict error messages."""


class Unfit(Exception):
    """The value does not fit the schema. Its text is the reason, with the field."""

    def __init__(self, reason: str) -> None:
        """`{field}` in the reason is replaced by the field's path."""
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        """The reason with the field's dotted path."""
        path = ""
        for part in reversed(self.path):
            path += part if part.startswith("[") or not path else f".{part}"
        return self.reason.replace("{field}", path or "(the message)", 1)


class Encoding(Enum):
    """How to read the JSON. DEFAULT is for defaults in the schema: strict, except that a union has
    the type of its first branch, and fields may be missing.
    """

    LENIENT = auto()
    STRICT = auto()
    DEFAULT = auto()


class Conversion:
    """Makes the conversion functions of one encoding for the types of a schema. Raises Refused if a
    default does not fit.
    """

    def __init__(self, types: AvroTypes, encoding: Encoding) -> None:
        self._types = types
        self._encoding = encoding
        self._is_strict = encoding is not Encoding.LENIENT
        self._records: dict[str, Take] = {}
        self._defaults = (
            Conversion(types, Encoding.DEFAULT) if encoding is Encoding.LENIENT else self
        )

    def of(self, kind: AvroType) -> Take:
        """Return the function for a type."""
        kind = self._types.resolved(kind)
        if isinstance(kind, list):
            return self._union(
                [(_branch_of(each), varint(at), self.of(each)) for at, each in enumerate(kind)]
            )
        described = kind if isinstance(kind, dict) else {}
        what = described.get("type", kind)
        if what in PRIMITIVES:
            return self._primitive(what, described)
        match what:
            case "array":
                return self._array(self.of(described["items"]))
            case "map":
                return self._map(self.of(described["values"]))
            case "enum":
                return self._enum(described["symbols"])
            case "fixed":
                return self._fixed(described)
        return self._record(described)

    def _wrong(self, what: str, value: Any, begin: str = "") -> Unfit:
        if self._is_strict:
            token = f"VALUE_{value}".upper() if type(value) is bool else _TOKENS.get(type(value))
            return Unfit(f": Expected {begin or what}. Got {token}.")
        return Unfit(f": Field {{field}} is expected to be type: {_JAVA.get(what, _NUMBER)}")

    def _primitive(self, what: str, described: dict[str, Any]) -> Take:
        match what:
            case "null" | "boolean" | "string":
                return self._exactly(what, *_PLAIN[what])
            case "int" | "long":
                plain = self._integer(what)
            case "float":
                plain = self._number(what, struct.Struct("<f").pack)
            case "double":
                plain = self._number(what, _PLAIN[what][1])
            case _ if self._is_strict:
                plain = lambda value: _sized(self._latin(value))  # noqa: E731
            case _:
                plain = self._exactly(what, str, _text)
        describe = LOGICAL_READS.get((what, str(described.get(LOGICAL))))
        return (
            plain if self._is_strict or describe is None else _logical(describe(described), plain)
        )

    def _exactly(self, what: str, kind: type, write: Take) -> Take:
        def take(value: Any) -> bytes:
            if type(value) is kind:
                return write(value)
            raise self._wrong(what, value)

        return take

    def _number(self, what: str, write: Take) -> Take:
        def number(value: Any) -> bytes:
            if type(value) is not float and type(value) is not int:
                raise self._wrong(what, value)
            try:
                return write(value)
            except (OverflowError, struct.error):
                return write(inf if value > 0 else -inf)

        return number

    def _integer(self, what: str) -> Take:
        limit = 1 << (_BITS[what] - 1)
        convert = partial(self._within, what) if self._is_strict else narrowed

        def integer(value: Any) -> bytes:
            if type(value) is int and -limit <= value < limit:
                return varint(value)
            if type(value) is not int and type(value) is not float:
                raise self._wrong(what, value)
            return varint(convert(value, limit))

        return integer

    def _within(self, what: str, value: float, limit: int) -> int:
        if type(value) is float and not (value.is_integer() and -limit <= value < limit):
            raise self._wrong(what, value)
        if not -limit <= value < limit:
            shown = str(value)[:_SHOWN_MAX]
            raise Unfit(f": Numeric value ({shown}) out of range of {what}")
        return int(value)

    def _latin(self, value: Any, what: str = "bytes") -> bytes:
        if type(value) is not str:
            raise self._wrong(what, value)
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError as error:
            raise Unfit(
                f": Expected {what} as text of ISO 8859-1. Got other characters."
            ) from error

    def _union(self, branches: list[tuple[str, bytes, Take]]) -> Take:
        """`branches`: the name of each, its place as Avro writes it, and its conversion."""
        takes = {name: (place, take) for name, place, take in branches if name != "null"}
        null = next((place for name, place, _ in branches if name == "null"), None)

        def tagged(value: Any) -> bytes:
            if value is None and null is not None:
                return null
            if type(value) is not dict or len(value) != 1:
                raise self._wrong("", value, "start-union")
            ((name, held),) = value.items()
            if name not in takes:
                raise Unfit(f": Unknown union branch {name}")
            place, take = takes[name]
            return place + take(held)

        def first_fitting(value: Any) -> bytes:
            if value is None and null is not None:
                return null
            for place, take in takes.values():
                try:
                    return place + take(value)
                except Unfit:
                    if len(takes) == 1 and null is not None:
                        # For an optional value, the reason of its only branch is more helpful.
                        raise
            names = ", ".join(name for name, _, _ in branches)
            raise Unfit(f": Field {{field}} is expected to be one of these: {names}")

        if self._encoding is Encoding.DEFAULT:
            _, first, take = branches[0]
            return lambda value: first + take(value)
        return tagged if self._is_strict else first_fitting

    def _array(self, item: Take) -> Take:
        def array(value: Any) -> bytes:
            if type(value) is not list:
                raise self._wrong("array", value, "array-start")
            taken: list[bytes] = []
            try:
                taken.extend(map(item, value))
            except Unfit as error:
                error.path.append(f"[{len(taken)}]")
                raise
            return _block(len(value), taken)

        return array

    def _map(self, item: Take) -> Take:
        def take(value: Any) -> bytes:
            if type(value) is not dict:
                raise self._wrong("map", value, "map-start")
            name = ""
            taken: list[bytes] = []
            try:
                for name, each in value.items():
                    taken += (_text(name), item(each))
            except Unfit as error:
                error.path.append(name)
                raise
            return _block(len(value), taken)

        return take

    def _enum(self, symbols: list[str]) -> Take:
        known = {symbol: varint(at) for at, symbol in enumerate(symbols)}
        shown = ", ".join(symbols[:_SHOWN_MAX])
        lenient = f": Field {{field}} is expected to be of enum type and be one of {shown}"

        def enum(value: Any) -> bytes:
            if type(value) is str and value in known:
                return known[value]
            if not self._is_strict:
                raise Unfit(lenient)
            if type(value) is not str:
                raise self._wrong("enum", value)
            raise Unfit(f": Unknown symbol in enum {value[:_SHOWN_MAX]}")

        return enum

    def _fixed(self, kind: dict[str, Any]) -> Take:
        name, size = kind["name"], kind["size"]

        def fixed(value: Any) -> bytes:
            if not self._is_strict:
                raise Unfit(
                    f": Field {{field}}: fixed {name} cannot be sent as plain JSON; send avro/json"
                )
            taken = self._latin(value, "fixed")
            if len(taken) != size:
                raise Unfit(f": Expected fixed length {size}, but got {len(taken)}")
            return taken

        return fixed

    def _record(self, kind: dict[str, Any]) -> Take:
        name, records = kind["name"], self._records
        if name not in records:
            # A recursive record looks its function up when it is called.
            records[name] = lambda value: records[name](value)  # noqa: PLW0108
            fields = self.fields(kind)
            records[name] = lambda value: b"".join(fields(value))
        return records[name]

    def bodies(self, kind: dict[str, Any]) -> Callable[[bytes], list[bytes]]:
        """Return the function for JSON bodies of a record. msgspec checks plain fields while it
        decodes them. If it raises anything, `fields` decides.
        """
        names, members, writes = {}, [], []
        for at, field in enumerate(kind["fields"]):
            what = field["type"] if isinstance(field["type"], dict) else {"type": field["type"]}
            is_plain = "default" not in field and LOGICAL not in what
            plain = _PLAIN.get(str(what["type"])) if is_plain else None
            names[f"f{at}"] = field["name"]
            writes.append(plain[1] if plain else self._field(field))
            members.append((f"f{at}", plain[0]) if plain else (f"f{at}", Any, _ABSENT))
        decode = Decoder(defstruct("Body", members, rename=names, kw_only=True)).decode
        # From bytes, msgspec would not check the UTF-8 of what is left out.
        return lambda body: [*map(call, writes, astuple(decode(body.decode())))]

    def fields(self, kind: dict[str, Any]) -> TakeFields:
        """Return the function for the fields of a record."""
        names = [field["name"] for field in kind["fields"]]
        takes = [self._field(field) for field in kind["fields"]]
        absent = [_ABSENT] * len(names)

        def record(value: Any) -> list[bytes]:
            if type(value) is not dict:
                raise self._wrong("record", value, "record-start")
            taken: list[bytes] = []
            try:
                taken.extend(map(call, takes, map(value.get, names, absent)))
            except Unfit as unfit:
                name, error = names[len(taken)], unfit
                if name not in value:
                    strict = f": Expected field name not found: {name}"
                    lenient = ": Field {field} is missing, and has no default"
                    error = Unfit(strict if self._is_strict else lenient)
                error.path.append(name)
                raise error from None
            return taken

        return record

    def _field(self, field: dict[str, Any]) -> Take:
        """Return the function for a field, which writes its default for _ABSENT."""
        take = self.of(field["type"])
        if self._encoding is Encoding.STRICT or "default" not in field:
            return take
        try:
            default = self._defaults.of(field["type"])(field["default"])
        except RecursionError:
            raise no_schema(f"the default of field {field['name']} has no end") from None
        except Unfit as error:
            reason = str(error).removeprefix(": ")
            raise no_schema(
                f"the default of field {field['name']} does not fit: {reason}"
            ) from None
        return lambda value: default if value is _ABSENT else take(value)


def _logical(read: Callable[[Any], Any], plain: Take) -> Take:
    def take(value: Any) -> bytes:
        try:
            found = read(value)
        except (ValueError, ArithmeticError) as error:
            raise Unfit(f": Field {{field}}: {error}") from error
        if found is None:
            return plain(value)
        return varint(found) if type(found) is int else _sized(found)

    return take


def _branch_of(kind: AvroType) -> str:
    """The name of a union's branch in Avro's JSON encoding."""
    if isinstance(kind, str):
        return kind
    assert isinstance(kind, dict), "a union holds no union"
    return str(kind.get("name", kind["type"]))


def narrowed(value: float, limit: int) -> int:
    """Convert a number to an integer from -limit to limit - 1, like Java's narrowing: fractions are
    cut off, integers wrap, and floats that are too large become the largest integer.
    """
    if type(value) is float:
        return 0 if value != value else int(max(-limit, min(limit - 1, value)))
    return (int(value) + limit) % (2 * limit) - limit


def varint(number: int) -> bytes:
    """Write an integer of at most 64 bits as Avro does: small ones in few bytes."""
    return _SHORT[number] if 0 <= number < _SHORT_MAX else _written(number)


def _written(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    written = b""
    while left > 127:
        written += _BYTES[left & 127 | 128]
        left >>= 7
    return written + _BYTES[left]


_BYTES = [bytes([each]) for each in range(256)]
_SHORT_MAX = 1_000
_SHORT = [_written(each) for each in range(_SHORT_MAX)]


def _sized(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


def _text(text: str) -> bytes:
    raw = text.encode()
    return varint(len(raw)) + raw


def _block(length: int, items: list[bytes]) -> bytes:
    """An array or a map, whose items are written in one block."""
    return b"".join((varint(length), *items, b"\0")) if length else b"\0"


_PLAIN: dict[str, tuple[Any, Take]] = {
    "null": (NoneType, lambda _value: b""),
    "boolean": (bool, (b"\0", b"\1").__getitem__),
    "double": (float, struct.Struct("<d").pack),
    "int": (Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)], varint),
    "long": (Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], varint),
    "string": (str, _text),
}
"""The types that msgspec checks as the lenient encoding does, and how to write their values."""
