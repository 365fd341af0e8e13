"""Plain JSON on its way into Avro, by the rules of Hermes' json2avro."""

from typing import Any

from hermes_actors.schema.avro_logical import LOGICAL
from hermes_actors.schema.avro_strict import DEFAULT_STEPS_MAX, Strict, default_of
from hermes_actors.schema.avro_types import AvroType, AvroTypes
from hermes_actors.schema.avro_writing import (
    INT_BITS,
    LONG_BITS,
    SYMBOLS_SHOWN,
    Allowance,
    Take,
    Takers,
    TooMuchWork,
    Unfit,
    narrowed,
    real,
    shortened,
)

_ABSENT: Any = object()
_DEFAULT_BYTES_A_STEP = 64


def _wrong(java: str) -> Unfit:
    return Unfit(f": Field {{field}} is expected to be type: {java}")


class Lenient(Takers):
    """Plain JSON: what the schema does not know is left out, what is missing has its default,
    numbers are narrowed, and of a union the first branch that fits is taken.
    """

    def __init__(self, types: AvroTypes) -> None:
        super().__init__(types)
        self._default_allowance = Allowance(DEFAULT_STEPS_MAX)
        self.record_steps_max = 0
        """The most steps of one record that is all defaults; known when all are compiled."""

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
        shown = ", ".join(symbols[:SYMBOLS_SHOWN])
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
                default = default_of(strict, field, self._default_allowance)
                steps += 1 + _weight(default)
            fields.append((field["name"], self.of(field["type"]), default))

        self.record_steps_max = max(self.record_steps_max, steps)

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
    return narrowed(_number(value), INT_BITS)


def _long(value: Any, _allowance: Allowance) -> int:
    if type(value) is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    return narrowed(_number(value), LONG_BITS)


def _float(value: Any, _allowance: Allowance) -> float:
    return shortened(real(_number(value)))


def _double(value: Any, _allowance: Allowance) -> float:
    return value if type(value) is float else real(_number(value))


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
