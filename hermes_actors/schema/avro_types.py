"""The types of an Avro schema, resolved, and the bounds of what a value of it can be."""

import re
from typing import Any

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType
from msgspec import Struct

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
RECORDS = frozenset({"record", "error"})

_LEVELS_MAX = 64
_NODES_MAX = 100_000
_IDLE_MAX = 1_000
_FIXED_BYTES_MAX = 1_048_576
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_SCHEMA = (
    *(SchemaParseException, UnknownType, KeyError, TypeError, ValueError, AttributeError),
    *(IndexError, RecursionError),
)

AvroType = str | list[Any] | dict[str, Any]
"""A type as a schema has it: a name, a union, or a description."""


class NotAvro(Exception):
    """The text is no Avro schema, or one whose values could be any amount of work."""


class _Measure(Struct, frozen=True):
    """Of one type: whether its values take no bytes, how many records it opens before a byte is
    taken, the most that are so opened anywhere in it, how many values it holds that take none, and
    how many levels it has.
    """

    is_empty: bool
    chain: int = 0
    chain_within: int = 0
    idle: int = 0
    levels: int = 1


_SOME_BYTES = _Measure(is_empty=False)


class AvroTypes:
    """A schema, decoded and resolved.

    `root` is its outermost record, `named` are its named types by their full names, `plain` is the
    schema without logical types, as fastavro takes it. `idle_max` is the most values that one
    record holds without taking a byte, `chain_max` the most records that open before a byte is
    taken, in what a body may hold any number of, `text_max` the longest name or symbol, of which a
    byte may make one; `is_recursive`: some type holds itself.
    """

    def __init__(self, text: str) -> None:
        """Raises NotAvro, which says what is wrong."""
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise NotAvro(f"it is not JSON: {error}") from error
        _require_bounded(raw)
        try:
            parsed = fastavro.parse_schema(raw)
            self.plain: Any = fastavro.parse_schema(_without_logical(raw))
        except _NO_SCHEMA as error:
            raise NotAvro(str(error) or type(error).__name__) from error
        if not isinstance(parsed, dict) or parsed.get("type") not in RECORDS:
            raise NotAvro("the outermost type must be a record")
        self.root: dict[str, Any] = parsed
        self.named: dict[str, dict[str, Any]] = {}
        self.is_recursive = False
        self.idle_max = self.chain_max = self.text_max = 0
        self._measured: dict[str, _Measure] = {}
        self._held_by_themselves: set[str] = set()
        self._measure(parsed, frozenset(), 0)
        if self.idle_max > _IDLE_MAX:
            raise NotAvro(
                f"a record holds {self.idle_max} values that take no bytes; at most {_IDLE_MAX} "
                "are taken"
            )

    def resolved(self, kind: AvroType) -> AvroType:
        """The type that a name means; any other type as it is."""
        return self.named[kind] if isinstance(kind, str) and kind not in PRIMITIVES else kind

    def _measure(self, kind: AvroType, direct: frozenset[str], level: int) -> _Measure:
        """Measure a type; `direct` are the records that are open and have taken no byte yet."""
        if level > _LEVELS_MAX:
            raise NotAvro(f"it has more than {_LEVELS_MAX} levels")
        if isinstance(kind, str):
            if kind in PRIMITIVES:
                return _Measure(is_empty=kind == "null")
            return self._of_name(kind, direct, level)
        if isinstance(kind, list):
            _require_distinct(kind)
            return self._below([self._measure(each, frozenset(), level + 1) for each in kind])
        match kind["type"]:
            case "record" | "error":
                self.named[kind["name"]] = kind
                return self._of_record(kind, direct, level)
            case "array":
                items = self._measure(kind["items"], frozenset(), level + 1)
                if items.is_empty:
                    raise NotAvro("the items of an array must take at least one byte each")
                self.chain_max = max(self.chain_max, items.chain_within)
                return self._below([items])
            case "map":
                values = self._measure(kind["values"], frozenset(), level + 1)
                self.chain_max = max(self.chain_max, values.chain_within)
                return self._below([values])
            case "fixed":
                self.named[kind["name"]] = kind
                size = kind["size"]
                if type(size) is not int or not 0 <= size <= _FIXED_BYTES_MAX:
                    raise NotAvro(f"fixed {kind['name']}: size must be 0 to {_FIXED_BYTES_MAX}")
                return _Measure(is_empty=size == 0)
            case "enum":
                self.named[kind["name"]] = kind
                _require_names(f"the symbols of {kind['name']}", kind["symbols"])
                self.text_max = max([self.text_max, *map(len, kind["symbols"])])
                return _SOME_BYTES
            case primitive:
                return _Measure(is_empty=primitive == "null")

    def _of_name(self, name: str, direct: frozenset[str], level: int) -> _Measure:
        if self.named[name]["type"] not in RECORDS:
            return _Measure(is_empty=self.named[name].get("size") == 0)
        known = self._measured.get(name)
        if known is None:
            # It is being measured: it holds itself.
            self.is_recursive = True
            self._held_by_themselves.add(name)
            if name in direct:
                raise NotAvro(f"record {name} holds itself without an end; use a union with null")
            return _SOME_BYTES
        if level + known.levels > _LEVELS_MAX:
            raise NotAvro(f"it has more than {_LEVELS_MAX} levels")
        return known

    def _of_record(self, record: dict[str, Any], direct: frozenset[str], level: int) -> _Measure:
        name = record["name"]
        field_names = [field["name"] for field in record["fields"]]
        _require_names(f"the names of the fields of {name}", field_names)
        self.text_max = max([self.text_max, *map(len, field_names)])
        fields = [
            self._measure(field["type"], direct | {name}, level + 1) for field in record["fields"]
        ]
        chain = 1 + max([field.chain for field in fields], default=0)
        measure = _Measure(
            is_empty=all(field.is_empty for field in fields),
            chain=chain,
            chain_within=max([chain, *[field.chain_within for field in fields]]),
            idle=min(sum([field.idle + field.is_empty for field in fields]), 10**9),
            levels=1 + max([field.levels for field in fields], default=0),
        )
        self._measured[name] = measure
        self.idle_max = max(self.idle_max, measure.idle)
        if name in self._held_by_themselves:
            self.chain_max = max(self.chain_max, measure.chain_within)
        return measure

    def _below(self, held: list[_Measure]) -> _Measure:
        """Measure what takes a byte before one of these comes."""
        return _Measure(
            is_empty=False,
            chain_within=max([each.chain_within for each in held], default=0),
            levels=1 + max([each.levels for each in held], default=0),
        )


def _require_distinct(branches: list[AvroType]) -> None:
    """Raises NotAvro for a union of which a value would not tell the branch."""
    names: set[str] = set()
    for each in branches:
        if isinstance(each, list):
            raise NotAvro("a union must not hold another one directly")
        name = each if isinstance(each, str) else str(each.get("name", each["type"]))
        if name in names:
            raise NotAvro(f"a union has two branches {name}")
        names.add(name)
    if not names:
        raise NotAvro("a union has no branch")


def _require_names(what: str, names: Any) -> None:
    if type(names) is not list or not all(type(each) is str for each in names):
        raise NotAvro(f"{what} must be texts")
    if len(set(names)) < len(names):
        raise NotAvro(f"{what} must differ")
    if not all(_NAME.fullmatch(each) for each in names):
        raise NotAvro(f"{what} must be letters, digits and _, and not begin with a digit")


def _require_bounded(raw: Any) -> None:
    """Raises NotAvro for a text that nests too deep, or holds too much, to be parsed."""
    waiting: list[tuple[Any, int]] = [(raw, 0)]
    nodes = 0
    while waiting:
        one, level = waiting.pop()
        nodes += 1
        # A level of types takes at most three of JSON: fields, one of them, its type.
        if level > 3 * _LEVELS_MAX or nodes > _NODES_MAX:
            raise NotAvro(f"it has more than {_LEVELS_MAX} levels, or too many parts")
        if isinstance(one, dict):
            if "__fastavro_parsed" in one or "__named_schemas" in one:
                # fastavro would trust what follows.
                raise NotAvro("a property of it is fastavro's own; leave it out")
            # fastavro takes it for a record without fields.
            if one.get("type") in ("record", "error") and type(one.get("fields")) is not list:
                raise NotAvro("a record has a list of fields")
            waiting += [(each, level + 1) for each in one.values()]
        elif isinstance(one, list):
            waiting += [(each, level + 1) for each in one]


def _without_logical(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_without_logical(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    parts = ("type", "items", "values", "fields")
    return {
        name: _without_logical(value) if name in parts else value
        for name, value in raw.items()
        if name != "logicalType"
    }
