"""Reads Avro's binary form: each type compiled to a function, within a budget of work and depth.

fastavro could, but a body of 10 kB that nests deep overflows its stack and ends the process, and it
takes negative indexes, numbers of any length and what is left over. This is no slower for messages.
"""

import struct
from collections.abc import Callable
from math import isfinite
from typing import Any

from hermes_actors.schema.avro_types import RECORDS, AvroType, AvroTypes

NESTED_MAX = 300
"""Records, arrays and maps within one another: more than a body in JSON may have, with defaults."""

STEPS_MAX = 1_000_000
"""Fields and items of one body; more by its size."""

_TEXT_A_STEP = 64

Read = Callable[[bytes, int], tuple[Any, int]]
"""From the body and where the value begins: the value, as JSON can say it, and where it ends."""

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_LONG_MAX = 2**64


class UndecodableAvro(Exception):
    """The bytes are not what the schema says; the message says why."""


class _Steps:
    """Counts down the steps that one body may still take, and how deep it is nested so far."""

    __slots__ = ("depth", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.depth = 0


def read_long(body: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length number of at most 64 bits."""
    byte = body[at]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 127, 7
    while shift < 70:
        at += 1
        byte = body[at]
        number |= (byte & 127) << shift
        if byte < 128:
            if number >= _LONG_MAX:
                break
            return (number >> 1) ^ -(number & 1), at + 1
        shift += 7
    raise UndecodableAvro("a number has more than 64 bits")


def _read_int(body: bytes, at: int) -> tuple[int, int]:
    number, end = read_long(body, at)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise UndecodableAvro("an int has more than 32 bits")
    return number, end


def _read_null(_body: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_boolean(body: bytes, at: int) -> tuple[bool, int]:
    byte = body[at]
    if byte > 1:
        raise UndecodableAvro("a boolean is neither 0 nor 1")
    return byte == 1, at + 1


def _read_float(body: bytes, at: int) -> tuple[Any, int]:
    packed = body[at : at + 4]
    number = _FLOAT.unpack(packed)[0]
    if not isfinite(number):
        return _not_finite(number), at + 4
    # The shortest number that is this one in 32 bits, as whoever wrote it had it.
    for digits in (7, 8):
        short = float(f"{number:.{digits}g}")
        if -3.4e38 < short < 3.4e38 and _FLOAT.pack(short) == packed:
            return short, at + 4
    return float(f"{number:.9g}"), at + 4


def _read_double(body: bytes, at: int) -> tuple[Any, int]:
    number = _DOUBLE.unpack_from(body, at)[0]
    return number if isfinite(number) else _not_finite(number), at + 8


def _not_finite(number: float) -> str:
    if number != number:
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _read_text(body: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(body, at)
    end = at + size
    if size < 0 or end > len(body):
        raise UndecodableAvro("a text ends after the body")
    return body[at:end].decode(), end


def _read_bytes(body: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(body, at)
    end = at + size
    if size < 0 or end > len(body):
        raise UndecodableAvro("bytes end after the body")
    return body[at:end].decode("latin-1"), end


_PRIMITIVES: dict[str, Read] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_text,
}


class DatumReader:
    """Reads bodies that one schema has written."""

    def __init__(self, types: AvroTypes) -> None:
        self._types = types
        self._work = _Steps()
        # A record that holds itself finds its function here when it is called.
        self._records: dict[str, Read] = {}
        self._read = self._of(types.root)
        self._fields = [(field["name"], self._of(field["type"])) for field in types.root["fields"]]

    def read(self, body: bytes) -> Any:
        """Read a whole body, as JSON can say it. Raises UndecodableAvro."""
        return self._whole(body, self._read)

    def place_of(self, name: str, body: bytes) -> tuple[int, int]:
        """Where this field of a whole body begins and ends, after all of the body has been read.
        Raises UndecodableAvro.
        """
        places: dict[str, tuple[int, int]] = {}

        def fields(body: bytes, at: int) -> tuple[None, int]:
            for each, read_field in self._fields:
                begin = at
                _, at = read_field(body, at)
                places[each] = begin, at
            return None, at

        self._whole(body, fields)
        return places[name]

    def _whole(self, body: bytes, read: Read) -> Any:
        self._work.steps = STEPS_MAX + 16 * len(body)
        self._work.depth = 0
        try:
            value, end = read(body, 0)
        except (IndexError, struct.error) as error:
            raise UndecodableAvro("it ends too early") from error
        except UnicodeDecodeError as error:
            raise UndecodableAvro("a text is not UTF-8") from error
        except RecursionError as error:
            raise UndecodableAvro("it is nested too deep") from error
        if end != len(body):
            raise UndecodableAvro(f"{len(body) - end} bytes are left after the message")
        return value

    def _of(self, kind: AvroType) -> Read:
        kind = self._types.resolved(kind)
        if isinstance(kind, list):
            return _union([self._of(each) for each in kind])
        what = kind if isinstance(kind, str) else kind["type"]
        if what in _PRIMITIVES:
            return _PRIMITIVES[what]
        assert isinstance(kind, dict), "it is described"
        if what in RECORDS:
            return self._record(kind)
        if what == "enum":
            return _enum(kind["symbols"])
        if what == "fixed":
            return _fixed(kind["size"])
        item = self._of(kind["items" if what == "array" else "values"])
        return self._array(item) if what == "array" else self._map(item)

    def _record(self, kind: dict[str, Any]) -> Read:
        name, records = kind["name"], self._records
        if name in records:
            return records[name]

        def later(body: bytes, at: int) -> tuple[Any, int]:
            return records[name](body, at)

        records[name] = later
        plan = [(field["name"], self._of(field["type"])) for field in kind["fields"]]
        text = sum(len(each) for each, _ in plan)
        work, steps = self._work, len(plan) + text // _TEXT_A_STEP

        def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
            work.steps -= steps
            work.depth += 1
            if work.steps < 0 or work.depth > NESTED_MAX:
                raise _too_much(work)
            record = {}
            for each, read_field in plan:
                record[each], at = read_field(body, at)
            work.depth -= 1
            return record, at

        records[name] = read
        return read

    def _array(self, item: Read) -> Read:
        work = self._work

        def read(body: bytes, at: int) -> tuple[list[Any], int]:
            items: list[Any] = []
            append = items.append
            work.depth += 1
            count, at = _block(body, at)
            while count:
                work.steps -= count
                if work.steps < 0 or work.depth > NESTED_MAX:
                    raise _too_much(work)
                for _ in range(count):
                    value, at = item(body, at)
                    append(value)
                count, at = _block(body, at)
            work.depth -= 1
            return items, at

        return read

    def _map(self, item: Read) -> Read:
        work = self._work

        def read(body: bytes, at: int) -> tuple[dict[str, Any], int]:
            items: dict[str, Any] = {}
            work.depth += 1
            count, at = _block(body, at)
            while count:
                work.steps -= count
                if work.steps < 0 or work.depth > NESTED_MAX:
                    raise _too_much(work)
                for _ in range(count):
                    key, at = _read_text(body, at)
                    items[key], at = item(body, at)
                count, at = _block(body, at)
            work.depth -= 1
            return items, at

        return read


def _block(body: bytes, at: int) -> tuple[int, int]:
    """How many items follow; 0 at the end. Each takes a byte at least."""
    count, at = read_long(body, at)
    if count < 0:
        count = -count
        _, at = read_long(body, at)
    if count > len(body) - at:
        raise UndecodableAvro("an array or a map ends after the body")
    return count, at


def _union(branches: list[Read]) -> Read:
    count = len(branches)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(body, at)
        if not 0 <= index < count:
            raise UndecodableAvro(f"a union has no branch {index}")
        return branches[index](body, at)

    return read


def _enum(symbols: list[str]) -> Read:
    def read(body: bytes, at: int) -> tuple[str, int]:
        index, at = read_long(body, at)
        if not 0 <= index < len(symbols):
            raise UndecodableAvro(f"an enum has no symbol {index}")
        return symbols[index], at

    return read


def _fixed(size: int) -> Read:
    def read(body: bytes, at: int) -> tuple[str, int]:
        end = at + size
        if end > len(body):
            raise UndecodableAvro("fixed bytes end after the body")
        return body[at:end].decode("latin-1"), end

    return read


def _too_much(work: _Steps) -> UndecodableAvro:
    if work.steps < 0:
        return UndecodableAvro("it is more values than so few bytes may be")
    return UndecodableAvro(f"it is nested too deep: more than {NESTED_MAX} levels")
