"""How much work a JSON Schema can be for one value, told by the schema alone.

A schema may apply many of its parts to one place of a value, and where its parts refer to each
other their number may double with each level. So before a value is looked at on the loop, the parts
that can apply to one place are counted, in the worst case and for all levels; a schema for which
that grows without bound, or that cannot be understood here, weighs too much (None).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

_PARTS_MAX = 1_000
"""Parts of a schema that are looked at; a larger one weighs too much."""
_PATTERNS_MAX = 100
_LEVELS = 32
_CHAIN_MAX = 64
"""Parts that refer to one another and apply to the same place."""
_APPLIED_MAX = 64
"""Parts that may apply to one place of a value."""

_ONE_IN_PLACE = ("not", "if", "then", "else")
_MANY_IN_PLACE = ("allOf", "anyOf", "oneOf")
_ANY_PROPERTY = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM = ("items", "additionalItems", "contains", "unevaluatedItems")
_NOT_UNDERSTOOD = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "dependencies")

Below = tuple[str, str | int | None, str]
"""An array's or an object's part: `items` or `properties`, which one (None: any), its schema."""


class Weight(Struct, frozen=True):
    """The most that is done for one place of a value: `parts` are schemas that apply to it,
    `members` the names and values that these compare with, `patterns` those of its text.
    """

    parts: int
    members: int
    patterns: int

    def units(self, body: bytes) -> int:
        """The most work that a body in JSON can be, in units of some 0.1 µs."""
        size = len(body)
        # A place takes two bytes at least; a pattern takes up to 60 ns for each byte of text:
        # classes of Unicode do.
        opens = body.count(b"{") + body.count(b"[")
        return size * self.parts // 2 + opens * self.members + size * self.patterns * 6 // 10


class _Part(Struct):
    in_place: list[str]
    below: list[Below]
    members: int
    patterns: int
    is_unique: bool


def weigh(schema: Any) -> Weight | None:
    """The weight of a JSON Schema, decoded; None when it may be more than any value is worth."""
    parts: dict[str, _Part] = {}
    waiting = [""]
    resources = 0
    while waiting:
        pointer = waiting.pop()
        if pointer in parts:
            continue
        found = _look_up(schema, pointer)
        if isinstance(found, bool):
            parts[pointer] = _Part([], [], 0, 0, False)
            continue
        if not isinstance(found, dict) or any(name in found for name in _NOT_UNDERSTOOD):
            return None
        resources += "$id" in found
        part = _part_of(found, pointer)
        if part is None or resources > 1 or len(parts) >= _PARTS_MAX:
            return None
        parts[pointer] = part
        waiting += part.in_place
        waiting += [each for _, _, each in part.below]
    if sum(part.patterns for part in parts.values()) > _PATTERNS_MAX:
        return None
    return _Weigher(parts).weigh()


def _look_up(schema: Any, pointer: str) -> Any:
    """What lies there, None when nothing does."""
    found = schema
    for name in pointer.split("/")[1:]:
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit():
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found


def _part_of(found: dict[str, Any], pointer: str) -> _Part | None:
    def at(*names: str | int) -> str:
        escaped = [_escaped(str(name)) for name in names]
        return "/".join((pointer, *escaped))

    in_place = [at(name) for name in _ONE_IN_PLACE if name in found]
    for name in _MANY_IN_PLACE:
        in_place += [at(name, index) for index in range(len(_list(found, name)))]
    in_place += [at("dependentSchemas", name) for name in _dict(found, "dependentSchemas")]
    reference = found.get("$ref")
    if reference is not None:
        if not isinstance(reference, str) or not (reference == "#" or reference[:2] == "#/"):
            return None
        in_place.append(reference[1:])
    below: list[Below] = [
        ("properties", name, at("properties", name)) for name in _dict(found, "properties")
    ]
    patterns = _dict(found, "patternProperties")
    below += [("properties", None, at("patternProperties", name)) for name in patterns]
    below += [("properties", None, at(name)) for name in _ANY_PROPERTY if name in found]
    below += list(_items(found, at))
    compared = sum(len(_list(found, name)) for name in ("enum", "required"))
    compared += len(_dict(found, "properties")) + 8 * len(patterns)
    own_patterns = len(patterns) + ("pattern" in found)
    return _Part(in_place, below, compared, own_patterns, "uniqueItems" in found)


def _items(found: dict[str, Any], at: Any) -> Iterator[Below]:
    prefix = "items" if isinstance(found.get("items"), list) else "prefixItems"
    for index in range(len(_list(found, prefix))):
        yield "items", index, at(prefix, index)
    for name in _ANY_ITEM:
        if name in found and name != prefix:
            yield "items", None, at(name)


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("~", "~0").replace("/", "~1")


def _list(found: dict[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    return value if isinstance(value, list) else []


def _dict(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


class _Weigher:
    """Counts what can apply to one place: level by level, along the worst way down."""

    def __init__(self, parts: dict[str, _Part]) -> None:
        self._parts = parts
        self._closures: dict[str, Counter[str] | None] = {}
        self._under_way: set[str] = set()
        self._most: dict[tuple[str, int], int] = {}

    def weigh(self) -> Weight | None:
        for pointer in self._parts:
            if self._closure(pointer) is None:
                return None
        applied = max(self._applied("", levels) for levels in range(_LEVELS))
        # Growing still: it has no bound.
        if applied > _APPLIED_MAX or self._applied("", _LEVELS) > self._applied("", _LEVELS // 2):
            return None
        # Each array with unique items looks at all that is in it.
        unique = sum(part.is_unique for part in self._parts.values())
        if unique and self._applied("", _LEVELS):
            return None
        members = max(self._sum(pointer, "members") for pointer in self._parts)
        patterns = max(self._sum(pointer, "patterns") for pointer in self._parts)
        return Weight(applied + unique, members * applied, patterns * applied)

    def _closure(self, pointer: str) -> Counter[str] | None:
        """All parts that apply where this one does, and how often; None when that has no end."""
        if pointer in self._closures:
            return self._closures[pointer]
        if pointer in self._under_way or len(self._under_way) >= _CHAIN_MAX:
            return None
        self._under_way.add(pointer)
        total: Counter[str] | None = Counter([pointer])
        for each in self._parts[pointer].in_place:
            inner = self._closure(each)
            if total is None or inner is None or total.total() > _APPLIED_MAX:
                total = None
                break
            total = total + inner
        self._under_way.discard(pointer)
        self._closures[pointer] = total
        return total

    def _sum(self, pointer: str, name: str) -> int:
        closure = self._closures[pointer] or Counter()
        return sum(getattr(self._parts[each], name) * count for each, count in closure.items())

    def _applied(self, pointer: str, levels: int) -> int:
        """The most parts that apply so many levels below a place where this one does."""
        known = self._most.get((pointer, levels))
        if known is not None:
            return known
        closure = self._closures[pointer] or Counter()
        most = self._below(closure, levels) if levels else closure.total()
        most = min(most, _APPLIED_MAX + 1)
        self._most[pointer, levels] = most
        return most

    def _below(self, closure: Counter[str], levels: int) -> int:
        named: defaultdict[tuple[str, str | int], int] = defaultdict(int)
        anywhere: defaultdict[str, int] = defaultdict(int)
        for each, count in closure.items():
            for kind, which, schema in self._parts[each].below:
                applied = count * self._applied(schema, levels - 1)
                if which is None:
                    anywhere[kind] += applied
                else:
                    named[kind, which] += applied
        worst = max(anywhere.values(), default=0)
        for (kind, _), applied in named.items():
            worst = max(worst, applied + anywhere[kind])
        return worst
