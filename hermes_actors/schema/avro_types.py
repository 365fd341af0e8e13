"""Parses an Avro schema with fastavro, and marks the types whose values need conversion for
JSON.
"""

import struct
from math import isfinite
from typing import Any

import fastavro
import fastavro.read
import msgspec

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.loop_limits import AvroType, avro_parts

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
RECORDS = frozenset({"record", "error"})
LOGICAL = "hermesLogicalType"
"""The property that preserves the schema's own logical type, while fastavro returns plain
values.
"""

_SHOWN = "hermes-shown"
_CONVERTED = frozenset({"float", "double", "bytes", "fixed"})
_LEVELS_MAX = 200
_SHOWN_MAX = 500
_FLOAT = struct.Struct("<f")


class AvroTypes:
    """A parsed schema: its outermost record, and its named types by full name.

    `parts` is its size for the loop's limit; None if it may only be used in a worker.
    """

    def __init__(self, text: str) -> None:
        """Raises Refused with FORMAT_ERROR; the message gives the reason."""
        try:
            raw = msgspec.json.decode(text)
            plain = msgspec.json.encode(raw)
            if b'"__fastavro_parsed"' in plain or b'"__named_schemas"' in plain:
                # fastavro trusts a schema that has these properties.
                raise ValueError("a property of it is fastavro's own; leave it out")
            self.named: dict[str, dict[str, Any]] = {}
            self.root: Any = fastavro.parse_schema(_marked(raw, 0), self.named)
        except Exception as error:
            raise no_schema(str(error) or type(error).__name__) from error
        if not isinstance(self.root, dict) or self.root.get("type") not in RECORDS:
            raise no_schema("the outermost type must be a record")
        self.parts = avro_parts(self.root, self.named)

    def resolved(self, kind: AvroType) -> AvroType:
        """Return the type that a name refers to; other types unchanged."""
        return self.named[kind] if isinstance(kind, str) and kind not in PRIMITIVES else kind


def no_schema(reason: str) -> Refused:
    """The error for a text that is not an Avro schema of messages."""
    shown = reason if len(reason) <= _SHOWN_MAX else reason[:_SHOWN_MAX] + "…"
    return Refused(f"The schema is not an Avro schema: {shown}", ErrorCode.FORMAT_ERROR)


def _marked(raw: Any, level: int) -> Any:
    """The schema with our logical type at each type whose values JSON shows differently."""
    if level > _LEVELS_MAX:
        raise ValueError(f"it has more than {_LEVELS_MAX} levels")
    if isinstance(raw, str):
        return {"type": raw, "logicalType": _SHOWN} if raw in _CONVERTED else raw
    if isinstance(raw, list):
        if not raw or any(isinstance(each, list) for each in raw):
            raise ValueError("a union has branches, and none of them is a union")
        return [_marked(each, level + 1) for each in raw]
    if not isinstance(raw, dict):
        return raw
    kind = raw["type"]
    marked = {name: value for name, value in raw.items() if name != "logicalType"}
    if "logicalType" in raw:
        marked[LOGICAL] = raw["logicalType"]
    if kind in RECORDS:
        marked["fields"] = [
            {**field, "type": _marked(field["type"], level + 1)} for field in raw["fields"]
        ]
    elif kind == "array":
        marked["items"] = _marked(raw["items"], level + 1)
    elif kind == "map":
        marked["values"] = _marked(raw["values"], level + 1)
    elif isinstance(kind, str) and kind in _CONVERTED:
        marked["logicalType"] = _SHOWN
    elif not isinstance(kind, str):
        return _marked(kind, level + 1)
    return marked


def _shown_float(number: float, _writer: Any, _reader: Any) -> float | str:
    """The shortest number that is the same in 32 bits, which is what its writer had."""
    if not isfinite(number):
        return _shown_double(number, None, None)
    packed = _FLOAT.pack(number)
    for digits in (7, 8):
        short = float(f"{number:.{digits}g}")
        if abs(short) < 3.4e38 and _FLOAT.pack(short) == packed:
            return short
    return float(f"{number:.9g}")


def _shown_double(number: float, _writer: Any, _reader: Any) -> float | str:
    if isfinite(number):
        return number
    return "NaN" if number != number else ("Infinity" if number > 0 else "-Infinity")


def _shown_bytes(value: bytes, _writer: Any, _reader: Any) -> str:
    return value.decode("latin-1")


fastavro.read.LOGICAL_READERS.update(
    {
        f"float-{_SHOWN}": _shown_float,
        f"double-{_SHOWN}": _shown_double,
        f"bytes-{_SHOWN}": _shown_bytes,
        f"fixed-{_SHOWN}": _shown_bytes,
    }
)
