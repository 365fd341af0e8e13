"""Turns a body in JSON into the values that fastavro writes, by the rules of Hermes' publishers.

Two encodings: plain JSON, as Hermes' json2avro takes it (lenient), and Avro's own JSON encoding
(strict). Each type of a schema becomes a function. A union's value becomes a pair of its branch's
name and the value.
"""

from collections.abc import Callable
from typing import Any

from hermes_actors.schema.avro_logical import LOGICAL_READS
from hermes_actors.schema.avro_types import LOGICAL, PRIMITIVES, RECORDS, AvroTypes, no_schema
from hermes_actors.schema.loop_limits import AvroType

Take = Callable[[Any], Any]
"""Turns a value of JSON into what fastavro writes. Raises Unfit."""

INT_BITS, LONG_BITS = 32, 64
_FLOAT_MAX = 3.4028235677973366e38
"""The first number that four bytes cannot hold."""

_SYMBOLS_SHOWN = 20
_ABSENT: Any = object()
_NULL = ("null", None)


class Unfit(Exception):
    """The value does not fit the schema. As text: the reason, which names the field."""

    def __init__(self, reason: str) -> None:
        """`{field}` in the reason stands for the path of the field."""
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        """The reason, with the field's dotted path in it."""
        path = ""
        for part in reversed(self.path):
            path += part if part.startswith("[") or not path else f".{part}"
        return self.reason.replace("{field}", path or "(the message)", 1)


def conversion(types: AvroTypes, *, is_strict: bool) -> Take:
    """The function that converts whole messages. Raises Refused for a default that does not fit."""
    return _Conversion(types, is_strict=is_strict).of(types.root)


class _Conversion:
    """Makes the functions of one encoding for the types of a schema."""

    def __init__(self, types: AvroTypes, *, is_strict: bool) -> None:
        self._types = types
        self._is_strict = is_strict
        self._strict = self if is_strict else _Conversion(types, is_strict=True)
        self._records: dict[str, Take] = {}

    def of(self, kind: AvroType) -> Take:
        """The function of a type."""
        kind = self._types.resolved(kind)
        if isinstance(kind, list):
            return self._union([(_branch_of(each), self.of(each)) for each in kind])
        what = kind if isinstance(kind, str) else kind["type"]
        if what in PRIMITIVES:
            return self._primitive(what, kind)
        assert isinstance(kind, dict), "it is described"
        if what == "array":
            return self._array(self.of(kind["items"]))
        if what == "map":
            return self._map(self.of(kind["values"]))
        if what == "enum":
            return self._enum(kind["symbols"])
        if what == "fixed":
            return self._fixed(kind)
        return self._record(kind)

    def _wrong(self, java: str, avro: str, value: Any) -> Unfit:
        if self._is_strict:
            return Unfit(f": Expected {avro}. Got {_token(value)}.")
        return Unfit(f": Field {{field}} is expected to be type: {java}")

    def _primitive(self, what: str, kind: AvroType) -> Take:
        if self._is_strict:
            return _STRICT[what]
        plain = _LENIENT[what]
        logical = kind.get(LOGICAL) if isinstance(kind, dict) else None
        describe = LOGICAL_READS.get((what, str(logical)))
        if describe is None or not isinstance(kind, dict):
            return plain
        read = describe(kind)

        def take(value: Any) -> Any:
            try:
                found = read(value)
            except (ValueError, ArithmeticError) as error:
                raise Unfit(f": Field {{field}}: {error}") from error
            return plain(value) if found is None else found

        return take

    def _union(self, branches: list[tuple[str, Take]]) -> Take:
        takes = {name: take for name, take in branches if name != "null"}
        has_null = len(takes) < len(branches)

        def tagged(value: Any) -> Any:
            if value is None and has_null:
                return _NULL
            if type(value) is not dict or len(value) != 1:
                raise self._wrong("", "start-union", value)
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
                        # An optional value: its own reason says more.
                        raise
            names = ", ".join(name for name, _ in branches)
            raise Unfit(f": Field {{field}} is expected to be one of these: {names}")

        return tagged if self._is_strict else first_fitting

    def _array(self, item: Take) -> Take:
        def array(value: Any) -> Any:
            if type(value) is not list:
                raise self._wrong("java.util.Collection", "array-start", value)
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
                raise self._wrong("java.util.Map", "map-start", value)
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
        shown = ", ".join(symbols[:_SYMBOLS_SHOWN])
        lenient = f": Field {{field}} is expected to be of enum type and be one of {shown}"

        def enum(value: Any) -> Any:
            if type(value) is str and value in known:
                return value
            if not self._is_strict:
                raise Unfit(lenient)
            if type(value) is not str:
                raise self._wrong("", "enum", value)
            raise Unfit(f": Unknown symbol in enum {value[:_SYMBOLS_SHOWN]}")

        return enum

    def _fixed(self, kind: dict[str, Any]) -> Take:
        name, size = kind["name"], kind["size"]

        def fixed(value: Any) -> Any:
            if not self._is_strict:
                raise Unfit(
                    f": Field {{field}}: fixed {name} cannot be sent as plain JSON; send avro/json"
                )
            taken = _latin(value, "fixed")
            if len(taken) != size:
                raise Unfit(f": Expected fixed length {size}, but got {len(taken)}")
            return taken

        return fixed

    def _record(self, kind: dict[str, Any]) -> Take:
        name, records = kind["name"], self._records
        if name not in records:
            # A record that holds itself finds its function when it is called.
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
                raise self._wrong("java.util.Map", "record-start", value)
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
        """The default of a field as fastavro writes it, for plain JSON."""
        if self._is_strict or "default" not in field:
            return _ABSENT
        try:
            return self._filled(field["type"], field["default"])
        except RecursionError:
            raise no_schema(f"the default of field {field['name']} has no end") from None
        except Unfit as error:
            reason = str(error).removeprefix(": ")
            raise no_schema(
                f"the default of field {field['name']} does not fit: {reason}"
            ) from None

    def _filled(self, kind: AvroType, value: Any) -> Any:
        """A default: of a union it is one of the first branch, a record's own defaults fill it."""
        kind = self._types.resolved(kind)
        if isinstance(kind, list):
            return _branch_of(kind[0]), self._filled(kind[0], value)
        if isinstance(kind, dict):
            what = kind["type"]
            if what in RECORDS and type(value) is dict:
                return {
                    field["name"]: self._filled(field["type"], _given(value, field["name"], field))
                    for field in kind["fields"]
                }
            if what == "array" and type(value) is list:
                return [self._filled(kind["items"], each) for each in value]
            if what == "map" and type(value) is dict:
                return {name: self._filled(kind["values"], each) for name, each in value.items()}
        return self._strict.of(kind)(value)


def _given(value: dict[str, Any], name: str, field: dict[str, Any]) -> Any:
    if name not in value and "default" not in field:
        raise Unfit(f": Expected field name not found: {name}")
    return value.get(name, field.get("default"))


def _branch_of(kind: AvroType) -> str:
    """The name of a branch of a union, for fastavro and in Avro's JSON encoding."""
    if isinstance(kind, str):
        return kind
    assert isinstance(kind, dict), "a union holds no union"
    return str(kind.get("name", kind["type"]))


def _token(value: Any) -> str:
    """The word of Hermes' JSON reader for a value."""
    match value:
        case None:
            return "VALUE_NULL"
        case bool():
            return "VALUE_TRUE" if value else "VALUE_FALSE"
        case int():
            return "VALUE_NUMBER_INT"
        case float():
            return "VALUE_NUMBER_FLOAT"
        case str():
            return "VALUE_STRING"
        case list():
            return "START_ARRAY"
        case _:
            return "START_OBJECT"


def narrowed(value: float, bits: int) -> int:
    """A number in an integer of so many bits, as Java's narrowing makes it: a fraction is cut off,
    an integer wraps, a float that is too large becomes the largest.
    """
    largest = (1 << (bits - 1)) - 1
    if type(value) is float:
        if value != value:
            return 0
        return int(max(-largest - 1, min(largest, value)))
    return int((int(value) + largest + 1) & ((1 << bits) - 1)) - largest - 1


def _real(value: float) -> float:
    """A number as a double; infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _shortened(value: float) -> float:
    """A number that four bytes can hold; infinite where it is too large for them."""
    number = _real(value)
    if abs(number) >= _FLOAT_MAX:
        return float("inf") if number > 0 else float("-inf")
    return number


def _typed(types: tuple[type, ...], wrong: Callable[[Any], str], make: Take) -> Take:
    """A function that takes values of these types, which `make` converts."""

    def take(value: Any) -> Any:
        if type(value) not in types:
            raise Unfit(wrong(value))
        return make(value)

    return take


def _lenient(java: str, types: tuple[type, ...], make: Take) -> Take:
    return _typed(types, lambda _: f": Field {{field}} is expected to be type: {java}", make)


def _strict(avro: str, types: tuple[type, ...], make: Take) -> Take:
    return _typed(types, lambda value: f": Expected {avro}. Got {_token(value)}.", make)


def _same(value: Any) -> Any:
    return value


_NUMBER = (int, float)
_LENIENT: dict[str, Take] = {
    "null": _lenient("null", (type(None),), _same),
    "boolean": _lenient("java.lang.Boolean", (bool,), _same),
    "int": _lenient("java.lang.Number", _NUMBER, lambda value: narrowed(value, INT_BITS)),
    "long": _lenient("java.lang.Number", _NUMBER, lambda value: narrowed(value, LONG_BITS)),
    "float": _lenient("java.lang.Number", _NUMBER, _shortened),
    "double": _lenient("java.lang.Number", _NUMBER, _real),
    "string": _lenient("java.lang.String", (str,), _same),
    "bytes": _lenient("java.lang.String", (str,), str.encode),
}


def _within(avro: str, bits: int) -> Take:
    limit = 1 << (bits - 1)

    def make(value: float) -> int:
        if type(value) is float and not (value.is_integer() and -limit <= value < limit):
            raise Unfit(f": Expected {avro}. Got {_token(value)}.")
        if not -limit <= value < limit:
            shown = str(value)[:_SYMBOLS_SHOWN]
            raise Unfit(f": Numeric value ({shown}) out of range of {avro}")
        return int(value)

    return _strict(avro, _NUMBER, make)


def _latin(value: Any, avro: str) -> bytes:
    if type(value) is not str:
        raise Unfit(f": Expected {avro}. Got {_token(value)}.")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise Unfit(f": Expected {avro} as text of ISO 8859-1. Got other characters.") from error


_STRICT: dict[str, Take] = {
    "null": _strict("null", (type(None),), _same),
    "boolean": _strict("boolean", (bool,), _same),
    "int": _within("int", INT_BITS),
    "long": _within("long", LONG_BITS),
    "float": _strict("float", _NUMBER, _shortened),
    "double": _strict("double", _NUMBER, _real),
    "string": _strict("string", (str,), _same),
    "bytes": lambda value: _latin(value, "bytes"),
}
