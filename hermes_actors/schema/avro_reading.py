"""What fastavro has read, as JSON can say it."""

import math
import struct
from collections.abc import Callable
from typing import Any

from hermes_actors.schema.avro_types import PRIMITIVES, RECORDS, AvroType, AvroTypes

Give = Callable[[Any], Any]
"""Turns a value as fastavro has read it into what JSON can say."""

_FLOAT = struct.Struct("<f")


def giver_of(types: AvroTypes) -> Give:
    """Return what turns a record of this schema into what JSON can say."""
    return _Givers(types).of(types.root) or _same


class _Givers:
    """Makes each type's function once; None for a type whose values stay as they are."""

    def __init__(self, types: AvroTypes) -> None:
        self._types = types
        # A record that holds itself finds its function here when it is called.
        self._records: dict[str, Give] = {}

    def of(self, kind: AvroType) -> Give | None:
        kind = self._types.resolved(kind)
        if isinstance(kind, list):
            return self._union(kind)
        what = kind if isinstance(kind, str) else kind["type"]
        if what in PRIMITIVES:
            return _PRIMITIVES.get(what)
        assert isinstance(kind, dict), "it is described"
        if what in RECORDS:
            return self._record(kind)
        if what == "fixed":
            return _text
        if what == "enum":
            return None
        below = self.of(kind["items" if what == "array" else "values"])
        if below is None:
            return None
        if what == "array":
            return lambda values: [below(each) for each in values]
        return lambda values: {name: below(each) for name, each in values.items()}

    def _record(self, kind: dict[str, Any]) -> Give:
        name = kind["name"]
        if name in self._records:
            return self._later(name)
        self._records[name] = _same
        changed = [
            (field["name"], give)
            for field in kind["fields"]
            if (give := self.of(field["type"])) is not None
        ]

        def record(value: dict[str, Any]) -> dict[str, Any]:
            for field, give in changed:
                value[field] = give(value[field])
            return value

        self._records[name] = record if changed else _same
        return self._records[name]

    def _later(self, name: str) -> Give:
        """The function of a record that is being compiled, found when it is called."""
        records = self._records

        def later(value: Any) -> Any:
            return records[name](value)

        return later

    def _union(self, kinds: list[AvroType]) -> Give | None:
        gives: dict[Any, Give] = {}
        by_type: dict[type, Give] = {}
        for each in map(self._types.resolved, kinds):
            give = self.of(each)
            what = each if isinstance(each, str) else each["type"]  # type: ignore[call-overload]
            if what in RECORDS:
                gives[each["name"]] = give or _same  # type: ignore[call-overload, index]
            elif give is not None and what in _TYPES:
                # Of two that Python reads alike the one that says more wins.
                by_type[_TYPES[what]] = by_type.get(_TYPES[what], give)
                if what == "double":
                    by_type[float] = give
        if not gives and not by_type:
            return None

        def union(value: Any) -> Any:
            if type(value) is tuple:
                # As fastavro tells a record within a union.
                name, record = value
                return gives[name](record)
            give = by_type.get(type(value))
            return value if give is None else give(value)

        return union


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float) -> float | str:
    """The shortest number that is this one in four bytes, as Java shows it."""
    if not math.isfinite(value):
        return _double(value)
    packed = _FLOAT.pack(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) < _FLOAT_MAX and _FLOAT.pack(short) == packed:
            return short
    return value


_FLOAT_MAX = 3.4028235677973366e38
_PRIMITIVES: dict[str, Give] = {"bytes": _text, "float": _float, "double": _double}
_TYPES: dict[str, type] = {
    "bytes": bytes,
    "fixed": bytes,
    "float": float,
    "double": float,
    "array": list,
    "map": dict,
}
