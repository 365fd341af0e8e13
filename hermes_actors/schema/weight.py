"""How much work a JSON Schema can be for one value, told by the schema alone.

A schema may apply many of its parts to one place of a value, and where its parts refer to each
other their number may double with each level. So before a value is looked at on the loop, the parts
that can apply to one place are counted, in the worst case and for all levels; a schema for which
that grows without bound, or that cannot be understood here, weighs too much (None).
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

_PARTS_MAX = 1_000
"""Parts of a schema that are looked at; a larger one weighs too much."""
_PATTERNS_MAX = 100
_UNITS_MAX = 10_000
_OPTION_UNITS = 10
_FRACTION_UNITS = 8
_DIVISOR_MIN = 1e-9
_EXACT_UNITS = 60
_EXPONENT = re.compile(rb"[0-9][eE]")
_LARGE_EXPONENT = re.compile(rb"[0-9][eE][+-]?[0-9]{2}")
_LARGE_EXPONENT_UNITS = 80
_EXPONENTS_MIN = 300
"""As many letters may be exponents, at 8 µs each, before they are looked for: that takes 7 ns for
each byte, more than the check of an everyday message.
"""
_LEVELS = 32
_STEPS_MAX = 10_000
"""Looks at parts while they are counted: some 3 ms."""
_EXPLAINED_BYTES_MAX = 1_280
_EXPLAINED_UNITS_MAX = 2_500
_EXPLAINED_OPTIONS_MAX = 100
_CHAIN_MAX = 64
"""Parts that refer to one another and apply to the same place."""
_APPLIED_MAX = 64
"""Parts that may apply to one place of a value."""

_ONE_IN_PLACE = ("not", "if", "then", "else")
_MANY_IN_PLACE = ("allOf", "anyOf", "oneOf")
_ANY_PROPERTY = ("additionalProperties", "propertyNames")
_ANY_ITEM = ("items", "additionalItems", "contains")
_NOT_UNDERSTOOD = (
    *("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "dependencies"),
    # The library asks all that applies beside them again, at each level.
    *("unevaluatedProperties", "unevaluatedItems"),
)
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LARGE = 2**63
"""Numbers beyond are compared digit by digit."""
_NODES_MAX = 10_000
_POINTERS_MAX = 200_000
"""Characters of all pointers to parts."""
_HEAVY = 10**9
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_COUNT = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_COUNTED_GROUP = re.compile(r"\)\{")

Below = tuple[str, str | int | None, str]
"""An array's or an object's part: `items` or `properties`, which one (None: any), its schema."""


def exponent_units(body: bytes) -> int:
    """The most work of decoding the numbers of a body in JSON that have large exponents, in units
    of some 0.1 µs: one may take 8 µs, where others take a thousandth of that.
    """
    if body.count(b"e") + body.count(b"E") < _EXPONENTS_MIN:
        return 0
    return len(_LARGE_EXPONENT.findall(body)) * _LARGE_EXPONENT_UNITS


class Weight(Struct, frozen=True):
    """The most that is done for one place of a value, in units of 0.1 µs: `parts` by the schemas
    that apply to it, `members` for each object or array by the names that these compare with,
    `patterns` for each byte by those of its text. `is_exact`: they calculate with fractions.
    `options` is the most values that one part allows by name.
    """

    parts: int
    members: int
    patterns: int
    is_exact: bool = False
    options: int = 0
    is_unique: bool = False

    def units(self, body: bytes) -> int:
        """The most work that a body in JSON can be, in units of some 0.1 µs."""
        size = len(body)
        if self.is_exact and _EXPONENT.search(body) is not None:
            # Dividing 1e300 without rounding takes 24 µs.
            return size * _EXACT_UNITS
        if self.is_unique and _LONG_NUMBER.search(body) is not None:
            # They are compared each with each.
            return _HEAVY
        # A place takes two bytes at least; a pattern takes up to 60 ns for each byte of text:
        # classes of Unicode do.
        opens = body.count(b"{") + body.count(b"[")
        checked = size * self.parts // 2 + opens * self.members + size * self.patterns * 6 // 10
        return checked + exponent_units(body)

    def is_soon_explained(self, body: bytes) -> bool:
        """True when the reasons why the body does not fit are soon found: each may repeat the
        object that it is in, and all that it is compared with, so they may be the square of that.
        """
        return (
            len(body) <= _EXPLAINED_BYTES_MAX
            and self.options <= _EXPLAINED_OPTIONS_MAX
            and self.units(body) <= _EXPLAINED_UNITS_MAX
        )


class _Part(Struct):
    in_place: list[str]
    below: list[Below]
    units: int
    members: int
    patterns: int
    is_unique: bool
    is_exact: bool = False
    options: int = 0


def weigh(schema: Any) -> Weight | None:
    """The weight of a JSON Schema, decoded; None when it may be more than any value is worth."""
    parts: dict[str, _Part] = {}
    waiting = [""]
    if _has_other_resources(schema):
        return None
    characters = 0
    while waiting:
        pointer = waiting.pop()
        if pointer in parts:
            continue
        characters += len(pointer)
        if characters > _POINTERS_MAX:
            return None
        found = _look_up(schema, pointer)
        if isinstance(found, bool):
            parts[pointer] = _Part([], [], 1, 0, 0, False)
            continue
        if not isinstance(found, dict) or any(name in found for name in _NOT_UNDERSTOOD):
            return None
        part = _part_of(found, pointer)
        if part is None or len(parts) >= _PARTS_MAX:
            return None
        parts[pointer] = part
        waiting += part.in_place
        waiting += [each for _, _, each in part.below]
    if sum(part.patterns for part in parts.values()) > _PATTERNS_MAX:
        return None
    return _Weigher(parts).weigh()


def _has_other_resources(schema: Any) -> bool:
    """True when a part has a name of its own that references go by, or the schema is very large."""
    waiting, nodes = [schema], 0
    while waiting:
        found = waiting.pop()
        nodes += 1
        if nodes > _NODES_MAX:
            return True
        if isinstance(found, dict):
            is_named = isinstance(found.get("$id"), str) or isinstance(found.get("id"), str)
            if is_named and found is not schema:
                return True
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
    return False


def _is_large(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) > _LARGE


def _pattern_weight(pattern: str) -> int:
    """How much a pattern does for each byte, in 60 ns: more where repetitions are counted, as each
    count may be under way at the same time.
    """
    counts = [max(int(low[:4]), int(high[:4] or 0)) for low, high in _COUNT.findall(pattern)]
    if _COUNTED_GROUP.search(pattern):
        return 1 + math.prod(max(each, 1) for each in counts) // 8
    return 1 + sum(counts) // 8


def _look_up(schema: Any, pointer: str) -> Any:
    """Return the part at that pointer, None when there is none."""
    found = schema
    for name in pointer.split("/")[1:]:
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 5:
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
        is_within = isinstance(reference, str) and (reference == "#" or reference[:2] == "#/")
        # The library decodes `%` before it takes a reference apart.
        if not is_within or "%" in reference:
            return None
        in_place.append(reference[1:])
    below: list[Below] = [
        ("properties", name, at("properties", name)) for name in _dict(found, "properties")
    ]
    patterns = _dict(found, "patternProperties")
    below += [("properties", None, at("patternProperties", name)) for name in patterns]
    below += [("properties", None, at(name)) for name in _ANY_PROPERTY if name in found]
    below += list(_items(found, at))
    compared = len(_list(found, "required")) + len(_dict(found, "properties")) + 8 * len(patterns)
    needed = _dict(found, "dependentRequired")
    compared += len(needed) + sum(len(each) for each in needed.values() if isinstance(each, list))
    texts = [*patterns, *([found["pattern"]] if isinstance(found.get("pattern"), str) else [])]
    own_patterns = sum(map(_pattern_weight, texts))
    units = 1 + _compared_units(found)
    divisor = found.get("multipleOf")
    if isinstance(divisor, float):
        if divisor < _DIVISOR_MIN:
            return None
        units += _FRACTION_UNITS
    if any(_is_large(found.get(name)) for name in (*_LIMITS, "multipleOf")):
        return None
    is_unique, is_exact = "uniqueItems" in found, divisor is not None
    options = len(_list(found, "enum"))
    return _Part(in_place, below, units, compared, own_patterns, is_unique, is_exact, options)


def _compared_units(found: dict[str, Any]) -> int:
    """The work of comparing a value with those that are allowed: the library looks texts up, and
    integers, if there is nothing else; all others it goes through.
    """
    options = [*_list(found, "enum"), *([found["const"]] if "const" in found else [])]
    if all(type(each) is str for each in options):
        return 0
    if all(type(each) is int and not _is_large(each) for each in options):
        # Only a number with a fraction is compared with each.
        return len(options) // 100
    count, waiting = 0, options
    while waiting and count < _APPLIED_MAX * _OPTION_UNITS:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return count * _OPTION_UNITS


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
        self._steps = 0
        self._is_endless = False

    def weigh(self) -> Weight | None:
        for pointer in self._parts:
            if self._closure(pointer) is None:
                return None
        most = [self._most(name) for name in ("units", "members", "patterns")]
        # Each array with unique items looks at all that is in it.
        unique = sum(part.is_unique for part in self._parts.values())
        if None in most or (unique and self._is_endless):
            return None
        units, members, patterns = (each or 0 for each in most)
        is_exact = any(part.is_exact for part in self._parts.values())
        options = max(part.options for part in self._parts.values())
        return Weight(units + unique, members, patterns, is_exact, options, bool(unique))

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

    def _most(self, name: str) -> int | None:
        """The most of this for one place, however deep; None when it grows with the depth, or
        counting takes long.
        """
        # For a place so many levels below one where a part applies: first none, then one more.
        now = {pointer: self._sum(pointer, name) for pointer in self._parts}
        most = 0
        for _ in range(_LEVELS):
            most = max(most, now[""])
            below = {pointer: self._below(pointer, now) for pointer in self._parts}
            if most > _UNITS_MAX or self._steps > _STEPS_MAX:
                return None
            if below == now or not any(below.values()):
                self._is_endless = self._is_endless or any(below.values())
                return most
            now = below
        return None

    def _below(self, pointer: str, applied: dict[str, int]) -> int:
        if self._steps > _STEPS_MAX:
            return 0
        named: defaultdict[tuple[str, str | int], int] = defaultdict(int)
        anywhere: defaultdict[str, int] = defaultdict(int)
        for each, count in (self._closures[pointer] or Counter()).items():
            self._steps += 1 + len(self._parts[each].below)
            for kind, which, schema in self._parts[each].below:
                if which is None:
                    anywhere[kind] += count * applied[schema]
                else:
                    named[kind, which] += count * applied[schema]
        worst = max(anywhere.values(), default=0)
        for (kind, _), together in named.items():
            worst = max(worst, together + anywhere[kind])
        return worst
