"""Avro's own JSON encoding on its way into Avro, and the defaults of fields, which are like it."""

from collections.abc import Callable
from typing import Any

from hermes_actors.schema.avro_types import RECORDS, AvroType, NotAvro
from hermes_actors.schema.avro_writing import (
    INT_BITS,
    LONG_BITS,
    SYMBOLS_SHOWN,
    Allowance,
    Take,
    Takers,
    TooMuchWork,
    Unfit,
    branch_of,
    real,
    shortened,
)


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


class Strict(Takers):
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
                raise Unfit(f": Unknown symbol in enum {value[:SYMBOLS_SHOWN]}")
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
                f": Numeric value ({str(value)[:SYMBOLS_SHOWN]}) out of range of {expected}"
            )
        return value

    return take


def _real(expected: str, narrow: Callable[[float], float]) -> Take:
    def take(value: Any, _allowance: Allowance) -> Any:
        if type(value) is not int and type(value) is not float:
            raise _got(expected, value)
        return narrow(real(value))

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
    "int": _within("int", INT_BITS),
    "long": _within("long", LONG_BITS),
    "float": _real("float", shortened),
    "double": _real("double", real),
    "string": _exactly("string", str),
    "bytes": lambda value, _allowance: _latin(value, "bytes"),
}


DEFAULT_STEPS_MAX = 10_000
"""The values that all defaults of a schema may be: some 5 ms of filling them."""


def default_of(strict: Strict, field: dict[str, Any], allowance: Allowance) -> Any:
    """The default of a field as fastavro writes it. Raises NotAvro for one that does not fit."""
    try:
        return _filled(strict, field["type"], field["default"], allowance)
    except (TooMuchWork, RecursionError) as error:
        # A record's default may be filled with others', which double, or with itself.
        raise NotAvro(
            f"the default of field {field['name']}: with those that fill it, it is more than "
            f"{DEFAULT_STEPS_MAX} values, or has no end"
        ) from error
    except Unfit as error:
        reason = str(error).removeprefix(": ")
        raise NotAvro(f"the default of field {field['name']} does not fit: {reason}") from error


def _filled(strict: Strict, kind: AvroType, value: Any, allowance: Allowance) -> Any:
    """A default: of a union it is one of the first branch, a record's own defaults fill it."""
    allowance.spend(1)
    kind = strict.types.resolved(kind)
    if isinstance(kind, list):
        return branch_of(kind[0]), _filled(strict, kind[0], value, allowance)
    what = kind if isinstance(kind, str) else kind["type"]
    if what in RECORDS and isinstance(kind, dict):
        if type(value) is not dict:
            raise _got("record-start", value)
        filled = {}
        for field in kind["fields"]:
            if field["name"] not in value and "default" not in field:
                raise Unfit(f": Expected field name not found: {field['name']}")
            given = value.get(field["name"], field.get("default"))
            filled[field["name"]] = _filled(strict, field["type"], given, allowance)
        return filled
    if what == "array" and isinstance(kind, dict) and type(value) is list:
        return [_filled(strict, kind["items"], each, allowance) for each in value]
    if what == "map" and isinstance(kind, dict) and type(value) is dict:
        return {
            name: _filled(strict, kind["values"], each, allowance) for name, each in value.items()
        }
    return strict.of(kind)(value, Allowance(1))
