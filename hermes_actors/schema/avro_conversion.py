"""Converts a JSON body to the values that fastavro writes, by the rules of Hermes' publishers.

There are two encodings: plain JSON, as Hermes' json2avro accepts it (lenient), and Avro's own JSON
encoding (strict). Each type of a schema becomes a function. A union's value becomes a pair of the
branch's name and the value.
"""

from collections.abc import Callable
from enum import Enum, auto
from types import NoneType
from typing import Any

from hermes_actors.schema.avro_logical import LOGICAL_READS
from hermes_actors.schema.avro_types import LOGICAL, PRIMITIVES, AvroTypes, no_schema
from hermes_actors.schema.loop_limits import AvroType

Take = Callable[[Any], Any]
"""Converts a JSON value to what fastavro writes. Raises Unfit."""

_BITS = {"int": 32, "long": 64}
_FLOAT_MAX = 3.4028235677973366e38
"""The first number that does not fit into four bytes."""

_SHOWN_MAX = 20
_ABSENT: Any = object()
_NULL = ("null", None)
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


def conversion(types: AvroTypes, encoding: Encoding) -> Take:
    """Return the function that converts whole messages. Raises Refused if a default does not
    fit.
    """
    return _Conversion(types, encoding).of(types.root)


class _Conversion:
    """Makes the conversion functions of one encoding for the types of a schema."""

    def __init__(self, types: AvroTypes, encoding: Encoding) -> None:
        self._types = types
        self._encoding = encoding
        self._is_strict = encoding is not Encoding.LENIENT
        self._records: dict[str, Take] = {}
        self._defaults = (
            _Conversion(types, Encoding.DEFAULT) if encoding is Encoding.LENIENT else self
        )

    def of(self, kind: AvroType) -> Take:
        """Return the function for a type."""
        kind = self._types.resolved(kind)
        if isinstance(kind, list):
            return self._union([(_branch_of(each), self.of(each)) for each in kind])
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
            token = f"VALUE_{value}".upper() if type(value) is bool else _TOKENS[type(value)]
            return Unfit(f": Expected {begin or what}. Got {token}.")
        return Unfit(f": Field {{field}} is expected to be type: {_JAVA.get(what, _NUMBER)}")

    def _primitive(self, what: str, described: dict[str, Any]) -> Take:
        match what:
            case "null":
                return self._exactly(what, NoneType)
            case "boolean":
                return self._exactly(what, bool)
            case "string":
                return self._exactly(what, str)
            case "int" | "long" if self._is_strict:
                plain = self._number(what, lambda value: self._within(what, value))
            case "int" | "long":
                bits = _BITS[what]
                plain = self._number(what, lambda value: narrowed(value, bits))
            case "float" | "double":
                plain = self._number(what, _shortened if what == "float" else _real)
            case _ if self._is_strict:
                plain = self._latin
            case _:
                text = self._exactly(what, str)
                plain = lambda value: text(value).encode()  # noqa: E731
        describe = LOGICAL_READS.get((what, str(described.get(LOGICAL))))
        return (
            plain if self._is_strict or describe is None else _logical(describe(described), plain)
        )

    def _exactly(self, what: str, kind: type) -> Take:
        def take(value: Any) -> Any:
            if type(value) is kind:
                return value
            raise self._wrong(what, value)

        return take

    def _number(self, what: str, make: Take) -> Take:
        def number(value: Any) -> Any:
            if type(value) is int or type(value) is float:
                return make(value)
            raise self._wrong(what, value)

        return number

    def _within(self, what: str, value: float) -> int:
        limit = 1 << (_BITS[what] - 1)
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

    def _union(self, branches: list[tuple[str, Take]]) -> Take:
        takes = {name: take for name, take in branches if name != "null"}
        has_null = len(takes) < len(branches)

        def tagged(value: Any) -> Any:
            if value is None and has_null:
                return _NULL
            if type(value) is not dict or len(value) != 1:
                raise self._wrong("", value, "start-union")
            ((name, held),) = value.items()
            if name not in takes:
                raise Unfit(f": Unknown union branch {name}")
            return name, takes[name](held)

        def first_fitting(value: Any) -> Any:
            if value is None and has_null:
                return _NULL
            for name, take in takes.items():
                try:
                    return name, take(value)
                except Unfit:
                    if len(takes) == 1 and has_null:
                        # For an optional value, the reason of its only branch is more helpful.
                        raise
            names = ", ".join(name for name, _ in branches)
            raise Unfit(f": Field {{field}} is expected to be one of these: {names}")

        if self._encoding is Encoding.DEFAULT:
            first, take = branches[0]
            return lambda value: (first, take(value))
        return tagged if self._is_strict else first_fitting

    def _array(self, item: Take) -> Take:
        def array(value: Any) -> Any:
            if type(value) is not list:
                raise self._wrong("array", value, "array-start")
            taken: list[Any] = []
            try:
                taken.extend(map(item, value))
            except Unfit as error:
                error.path.append(f"[{len(taken)}]")
                raise
            return taken

        return array

    def _map(self, item: Take) -> Take:
        def take(value: Any) -> Any:
            if type(value) is not dict:
                raise self._wrong("map", value, "map-start")
            name = ""
            taken = {}
            try:
                for name, each in value.items():
                    taken[name] = item(each)
            except Unfit as error:
                error.path.append(name)
                raise
            return taken

        return take

    def _enum(self, symbols: list[str]) -> Take:
        known = frozenset(symbols)
        shown = ", ".join(symbols[:_SHOWN_MAX])
        lenient = f": Field {{field}} is expected to be of enum type and be one of {shown}"

        def enum(value: Any) -> Any:
            if type(value) is str and value in known:
                return value
            if not self._is_strict:
                raise Unfit(lenient)
            if type(value) is not str:
                raise self._wrong("enum", value)
            raise Unfit(f": Unknown symbol in enum {value[:_SHOWN_MAX]}")

        return enum

    def _fixed(self, kind: dict[str, Any]) -> Take:
        name, size = kind["name"], kind["size"]

        def fixed(value: Any) -> Any:
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
            records[name] = self._fields(kind)
        return records[name]

    def _fields(self, kind: dict[str, Any]) -> Take:
        fields = [
            (field["name"], self.of(field["type"]), self._default(field))
            for field in kind["fields"]
        ]

        def record(value: Any) -> Any:
            if type(value) is not dict:
                raise self._wrong("record", value, "record-start")
            name = ""
            taken = {}
            get = value.get
            try:
                for name, take, default in fields:
                    given = get(name, _ABSENT)
                    if given is not _ABSENT:
                        taken[name] = take(given)
                    elif default is not _ABSENT:
                        taken[name] = default
                    elif self._is_strict:
                        raise Unfit(f": Expected field name not found: {name}")
                    else:
                        raise Unfit(": Field {field} is missing, and has no default")
            except Unfit as error:
                error.path.append(name)
                raise
            return taken

        return record

    def _default(self, field: dict[str, Any]) -> Any:
        """The default of a field, in the form that fastavro writes."""
        if self._encoding is Encoding.STRICT or "default" not in field:
            return _ABSENT
        try:
            return self._defaults.of(field["type"])(field["default"])
        except RecursionError:
            raise no_schema(f"the default of field {field['name']} has no end") from None
        except Unfit as error:
            reason = str(error).removeprefix(": ")
            raise no_schema(
                f"the default of field {field['name']} does not fit: {reason}"
            ) from None


def _logical(read: Callable[[Any], Any], plain: Take) -> Take:
    def take(value: Any) -> Any:
        try:
            found = read(value)
        except (ValueError, ArithmeticError) as error:
            raise Unfit(f": Field {{field}}: {error}") from error
        return plain(value) if found is None else found

    return take


def _branch_of(kind: AvroType) -> str:
    """The name of a union's branch, in fastavro and in Avro's JSON encoding."""
    if isinstance(kind, str):
        return kind
    assert isinstance(kind, dict), "a union holds no union"
    return str(kind.get("name", kind["type"]))


def narrowed(value: float, bits: int) -> int:
    """Convert a number to an integer of so many bits, like Java's narrowing: fractions are cut off,
    integers wrap, and floats that are too large become the largest integer.
    """
    largest = (1 << (bits - 1)) - 1
    if type(value) is int and -largest <= value <= largest:
        return value
    if type(value) is float:
        if value != value:
            return 0
        return int(max(-largest - 1, min(largest, value)))
    return int((int(value) + largest + 1) & ((1 << bits) - 1)) - largest - 1


def _real(value: float) -> float:
    """Convert a number to a double; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _shortened(value: float) -> float:
    """Limit a number to the range of a four-byte float; infinite if it is too large."""
    number = _real(value)
    if abs(number) >= _FLOAT_MAX:
        return float("inf") if number > 0 else float("-inf")
    return number
