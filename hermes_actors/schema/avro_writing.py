"""Turns a body in JSON into the values that fastavro writes, by the rules of Hermes' publishers.

Each type of a schema has two functions: the lenient one takes plain JSON as Hermes' json2avro does,
the strict one Avro's own JSON encoding. A member of a union becomes a pair of its branch and value.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from hermes_actors.schema.avro_types import PRIMITIVES, AvroType, AvroTypes

INT_BITS, LONG_BITS = 32, 64
FLOAT_MAX = 3.4028235677973366e38
"""The first number that four bytes cannot hold."""

SYMBOLS_SHOWN = 20
"""Of an enum, in an error."""


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


class Takers(ABC):
    """Makes the functions of one encoding for all types of a schema. A subclass says how each kind
    of type is taken.
    """

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
            return self._union([(branch_of(each), self.of(each), each) for each in kind])
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


def branch_of(kind: AvroType) -> str:
    """The name of a branch of a union, for fastavro and in Avro's JSON encoding."""
    if isinstance(kind, str):
        return kind
    assert isinstance(kind, dict), "a union holds no union"
    return str(kind.get("name", kind["type"]))


def real(value: float) -> float:
    """A number as a double; infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def shortened(number: float) -> float:
    """A double that four bytes can hold; infinite where it is too large for them."""
    if abs(number) >= FLOAT_MAX:
        return float("inf") if number > 0 else float("-inf")
    return number
