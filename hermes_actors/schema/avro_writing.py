"""What a body in JSON has to become before fastavro writes it, by the rules of Hermes' publishers.

Each type of a schema has two functions: the lenient one takes plain JSON as Hermes' json2avro does,
the strict one Avro's own JSON encoding. A member of a union becomes a pair of its branch and value.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from hermes_actors.schema.avro_logical import LOGICAL
from hermes_actors.schema.avro_types import PRIMITIVES, RECORDS, AvroType, AvroTypes, NotAvro

_INT_BITS, _LONG_BITS = 32, 64
_FLOAT_MAX = 3.4028235677973366e38
_ABSENT: Any = object()
_SYMBOLS_SHOWN = 20
_DEFAULT_BYTES_A_STEP = 64


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


class TooMuchWork(Exception):
    """The conversion takes more steps than it may."""


class Allowance:
    """The steps that a conversion may still take."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take so many steps. Raises TooMuchWork."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork


Take = Callable[[Any, Allowance], Any]
"""Turns a value of JSON into what fastavro writes. Raises Unfit, and TooMuchWork."""


def narrowed(value: Any, bits: int) -> int:
    """A number in an integer of so many bits, as Java's narrowing makes it: a fraction is cut off,
    an integer wraps, a float that is too large becomes the largest.
    """
    largest = (1 << (bits - 1)) - 1
    if type(value) is float:
        if value != value:
            return 0
        return int(max(-largest - 1, min(largest, value)))
    return int((value + largest + 1) & ((1 << bits) - 1)) - largest - 1


class _Takers(ABC):
    """Makes the functions of one encoding for all types of a schema."""

    def __init__(self, types: AvroTypes) -> None:
        self.types = types
        # A record that holds itself finds its function here when it is called.
        self._records: dict[str, Take] = {}

    def root(self) -> Take:
        """The function of the schema's outermost record."""
        return self.of(self.types.root)

    def of(self, kind: AvroType) -> Take:
        """The function of a type."""
        kind = self.types.resolved(kind)
        if isinstance(kind, list):
            return self._union([(_branch(each), self.of(each), each) for each in kind])
        what = kind if isinstance(kind, str) else kind["type"]
        if what in PRIMITIVES:
            return self._primitive(what, kind if isinstance(kind, dict) else {})
        assert isinstance(kind, dict), "it is described"
        if what == "array":
            return self._array(self.of(kind["items"]))
        if what == "map":
            return self._map(self.of(kind["values"]))
        if what == "enum":
            return self._enum(kind["symbols"])
        if what == "fixed":
            return self._fixed(kind)
        name = kind["name"]
        if name in self._records:
            return self._later(name)
        self._records[name] = _not_yet
        self._records[name] = self._record(kind)
        return self._records[name]

    def _later(self, name: str) -> Take:
        """The function of a record that is being compiled, found when it is called."""
        records = self._records

        def later(value: Any, allowance: Allowance) -> Any:
            return records[name](value, allowance)

        return later

    @abstractmethod
    def _primitive(self, what: str, kind: dict[str, Any]) -> Take: ...

    @abstractmethod
    def _union(self, branches: list[tuple[str, Take, AvroType]]) -> Take: ...

    @abstractmethod
    def _array(self, item: Take) -> Take: ...

    @abstractmethod
    def _map(self, item: Take) -> Take: ...

    @abstractmethod
    def _enum(self, symbols: list[str]) -> Take: ...

    @abstractmethod
    def _fixed(self, kind: dict[str, Any]) -> Take: ...

    @abstractmethod
    def _record(self, kind: dict[str, Any]) -> Take: ...


def _not_yet(_value: Any, _allowance: Allowance) -> Any:
    raise AssertionError("the record is being compiled")


def _branch(kind: AvroType) -> str:
    """How fastavro, and Avro's JSON encoding, call a branch of a union."""
    if isinstance(kind, str):
        return kind
    assert isinstance(kind, dict), "a union holds no union"
    return str(kind.get("name", kind["type"]))


# Plain JSON.


def _wrong(java: str) -> Unfit:
    return Unfit(f": Field {{field}} is expected to be type: {java}")


class Lenient(_Takers):
    """Plain JSON: what the schema does not know is left out, what is missing has its default,
    numbers are narrowed, and of a union the first branch that fits is taken.
    """

    def _primitive(self, what: str, kind: dict[str, Any]) -> Take:
        logical = LOGICAL.get((what, kind.get("logicalType")))
        plain = _LENIENT[what]
        if logical is None:
            return plain
        read = logical(kind)

        def take(value: Any, allowance: Allowance) -> Any:
            try:
                found = read(value)
            except (ValueError, ArithmeticError) as error:
                raise Unfit(f": Field {{field}}: {error}") from error
            return plain(value, allowance) if found is None else found

        return take

    def _union(self, branches: list[tuple[str, Take, AvroType]]) -> Take:
        names = ", ".join([name for name, _, _ in branches])
        takes = [(name, take) for name, take, _ in branches if name != "null"]
        has_null = len(takes) < len(branches)
        null = ("null", None)
        expected = f": Field {{field}} is expected to be one of these: {names}"
        if len(takes) == 1 and has_null:
            # By far the most unions are an optional value.
            ((only, take_only),) = takes

            def optional(value: Any, allowance: Allowance) -> Any:
                return null if value is None else (only, take_only(value, allowance))

            return optional

        def union(value: Any, allowance: Allowance) -> Any:
            if value is None and has_null:
                return null
            for name, take in takes:
                allowance.spend(1)
                try:
                    return name, take(value, allowance)
                except Unfit:
                    continue
            raise Unfit(expected)

        return union

    def _array(self, item: Take) -> Take:
        def array(value: Any, allowance: Allowance) -> Any:
            if type(value) is not list:
                raise _wrong("java.util.Collection")
            allowance.spend(len(value))
            taken: list[Any] = []
            try:
                taken.extend(item(each, allowance) for each in value)
            except Unfit as error:
                error.path.append(f"[{len(taken)}]")
                raise
            return taken

        return array

    def _map(self, item: Take) -> Take:
        return _map(item, _wrong("java.util.Map"))

    def _enum(self, symbols: list[str]) -> Take:
        known = frozenset(symbols)
        shown = ", ".join(symbols[:_SYMBOLS_SHOWN])
        reason = f": Field {{field}} is expected to be of enum type and be one of {shown}"

        def enum(value: Any, _allowance: Allowance) -> Any:
            if type(value) is not str or value not in known:
                raise Unfit(reason)
            return value

        return enum

    def _fixed(self, kind: dict[str, Any]) -> Take:
        name = kind["name"]

        def fixed(_value: Any, _allowance: Allowance) -> Any:
            raise Unfit(
                f": Field {{field}}: fixed {name} cannot be sent as plain JSON; send avro/json"
            )

        return fixed

    def _record(self, kind: dict[str, Any]) -> Take:
        fields = []
        steps = 1
        strict = Strict(self.types)
        for field in kind["fields"]:
            default = _ABSENT
            if "default" in field:
                default = _default_of(strict, field)
                steps += 1 + _weight(default)
            fields.append((field["name"], self.of(field["type"]), default))

        def record(value: Any, allowance: Allowance) -> Any:
            if type(value) is not dict:
                raise _wrong("java.util.Map")
            allowance.left -= steps
            if allowance.left < 0:
                raise TooMuchWork
            name = ""
            taken = {}
            get = value.get
            try:
                for name, take, default in fields:
                    given = get(name, _ABSENT)
                    if given is not _ABSENT:
                        taken[name] = take(given, allowance)
                    elif default is not _ABSENT:
                        taken[name] = default
                    else:
                        raise Unfit(": Field {field} is missing, and has no default")
            except Unfit as error:
                error.path.append(name)
                raise
            return taken

        return record


def _map(item: Take, wrong: Unfit) -> Take:
    def take(value: Any, allowance: Allowance) -> Any:
        if type(value) is not dict:
            raise Unfit(wrong.reason)
        allowance.spend(len(value))
        name = ""
        taken = {}
        try:
            for name, each in value.items():
                taken[name] = item(each, allowance)
        except Unfit as error:
            error.path.append(name)
            raise
        return taken

    return take


def _weight(default: Any) -> int:
    """How many steps it takes to write a default."""
    waiting, steps = [default], 0
    while waiting:
        one = waiting.pop()
        steps += 1
        if isinstance(one, str | bytes):
            steps += len(one) // _DEFAULT_BYTES_A_STEP
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
    return steps


def _null(value: Any, _allowance: Allowance) -> None:
    if value is not None:
        raise _wrong("null")


def _boolean(value: Any, _allowance: Allowance) -> bool:
    if type(value) is bool:
        return value
    raise _wrong("java.lang.Boolean")


def _int(value: Any, _allowance: Allowance) -> int:
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    return narrowed(_number(value), _INT_BITS)


def _long(value: Any, _allowance: Allowance) -> int:
    if type(value) is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    return narrowed(_number(value), _LONG_BITS)


def _float(value: Any, _allowance: Allowance) -> float:
    number = _double(value, _allowance)
    if abs(number) >= _FLOAT_MAX:
        return float("inf") if number > 0 else float("-inf")
    return number


def _double(value: Any, _allowance: Allowance) -> float:
    if type(value) is float:
        return value
    number = _number(value)
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _number(value: Any) -> Any:
    if type(value) is not int and type(value) is not float:
        raise _wrong("java.lang.Number")
    return value


def _string(value: Any, _allowance: Allowance) -> str:
    if type(value) is str:
        return value
    raise _wrong("java.lang.String")


def _bytes(value: Any, _allowance: Allowance) -> bytes:
    if type(value) is str:
        return value.encode()
    raise _wrong("java.lang.String")


_LENIENT: dict[str, Take] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
}


# Avro's own JSON encoding.


def _got(expected: str, value: Any) -> Unfit:
    return Unfit(f": Expected {expected}. Got {_token(value)}.")


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


class Strict(_Takers):
    """Avro's own JSON encoding: every field is there, a union's value is an object of its branch's
    name, and bytes are text of ISO 8859-1.
    """

    def _primitive(self, what: str, _kind: dict[str, Any]) -> Take:
        return _STRICT[what]

    def _union(self, branches: list[tuple[str, Take, AvroType]]) -> Take:
        takes = {name: take for name, take, _ in branches}
        null = ("null", None)

        def union(value: Any, allowance: Allowance) -> Any:
            if value is None and "null" in takes:
                return null
            if type(value) is not dict or len(value) != 1:
                raise _got("start-union", value)
            ((name, held),) = value.items()
            take = takes.get(name)
            if take is None or name == "null":
                raise Unfit(f": Unknown union branch {name}")
            return name, take(held, allowance)

        return union

    def _array(self, item: Take) -> Take:
        def array(value: Any, allowance: Allowance) -> Any:
            if type(value) is not list:
                raise _got("array-start", value)
            allowance.spend(len(value))
            return [item(each, allowance) for each in value]

        return array

    def _map(self, item: Take) -> Take:
        def take(value: Any, allowance: Allowance) -> Any:
            if type(value) is not dict:
                raise _got("map-start", value)
            allowance.spend(len(value))
            return {name: item(each, allowance) for name, each in value.items()}

        return take

    def _enum(self, symbols: list[str]) -> Take:
        known = frozenset(symbols)

        def enum(value: Any, _allowance: Allowance) -> Any:
            if type(value) is not str:
                raise _got("enum", value)
            if value not in known:
                raise Unfit(f": Unknown symbol in enum {value[:_SYMBOLS_SHOWN]}")
            return value

        return enum

    def _fixed(self, kind: dict[str, Any]) -> Take:
        size = kind["size"]

        def fixed(value: Any, _allowance: Allowance) -> Any:
            taken = _latin(value, "fixed")
            if len(taken) != size:
                raise Unfit(f": Expected fixed length {size}, but got {len(taken)}")
            return taken

        return fixed

    def _record(self, kind: dict[str, Any]) -> Take:
        fields = [(field["name"], self.of(field["type"])) for field in kind["fields"]]

        def record(value: Any, allowance: Allowance) -> Any:
            if type(value) is not dict:
                raise _got("record-start", value)
            allowance.spend(len(fields))
            taken = {}
            for name, take in fields:
                if name not in value:
                    raise Unfit(f": Expected field name not found: {name}")
                taken[name] = take(value[name], allowance)
            return taken

        return record


def _exactly(expected: str, *types: type) -> Take:
    def take(value: Any, _allowance: Allowance) -> Any:
        if type(value) not in types:
            raise _got(expected, value)
        return value

    return take


def _within(expected: str, bits: int) -> Take:
    limit = 1 << (bits - 1)

    def take(value: Any, _allowance: Allowance) -> Any:
        if type(value) is float and value.is_integer() and -limit <= value < limit:
            return int(value)
        if type(value) is not int:
            raise _got(expected, value)
        if not -limit <= value < limit:
            raise Unfit(
                f": Numeric value ({str(value)[:_SYMBOLS_SHOWN]}) out of range of {expected}"
            )
        return value

    return take


def _real(expected: str, widest: Take) -> Take:
    def take(value: Any, allowance: Allowance) -> Any:
        if type(value) is not int and type(value) is not float:
            raise _got(expected, value)
        return widest(value, allowance)

    return take


def _latin(value: Any, expected: str) -> bytes:
    if type(value) is not str:
        raise _got(expected, value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise Unfit(
            f": Expected {expected} as text of ISO 8859-1. Got other characters."
        ) from error


_STRICT: dict[str, Take] = {
    "null": _exactly("null", type(None)),
    "boolean": _exactly("boolean", bool),
    "int": _within("int", _INT_BITS),
    "long": _within("long", _LONG_BITS),
    "float": _real("float", _float),
    "double": _real("double", _double),
    "string": _exactly("string", str),
    "bytes": lambda value, _allowance: _latin(value, "bytes"),
}


def _default_of(strict: Strict, field: dict[str, Any]) -> Any:
    """The default of a field as fastavro writes it. Raises NotAvro for one that does not fit."""
    try:
        return _filled(strict, field["type"], field["default"])
    except (Unfit, struct.error) as error:
        reason = str(error).removeprefix(": ")
        raise NotAvro(f"the default of field {field['name']} does not fit: {reason}") from error


def _filled(strict: Strict, kind: AvroType, value: Any) -> Any:
    """A default: of a union it is one of the first branch, a record's own defaults fill it."""
    kind = strict.types.resolved(kind)
    if isinstance(kind, list):
        return _branch(kind[0]), _filled(strict, kind[0], value)
    what = kind if isinstance(kind, str) else kind["type"]
    if what in RECORDS and isinstance(kind, dict):
        if type(value) is not dict:
            raise _got("record-start", value)
        filled = {}
        for field in kind["fields"]:
            if field["name"] not in value and "default" not in field:
                raise Unfit(f": Expected field name not found: {field['name']}")
            given = value.get(field["name"], field.get("default"))
            filled[field["name"]] = _filled(strict, field["type"], given)
        return filled
    if what == "array" and isinstance(kind, dict) and type(value) is list:
        return [_filled(strict, kind["items"], each) for each in value]
    if what == "map" and isinstance(kind, dict) and type(value) is dict:
        return {name: _filled(strict, kind["values"], each) for name, each in value.items()}
    return strict.of(kind)(value, Allowance(1))
