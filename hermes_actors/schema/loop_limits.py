"""Decides which schemas and bodies are checked on the event loop: small ones that cannot recurse.

References in a schema are expanded, and its parts are counted. Recursion never ends and doubling
grows fast, so both exceed the limit. A body is checked on the loop if its bytes times the schema's
parts are at most UNITS_MAX; otherwise in a worker.
"""

import re
from typing import Any
from urllib.parse import unquote

AvroType = str | list[Any] | dict[str, Any]
"""A type in a schema: a name, a union, or a description."""

UNITS_MAX = 250_000
"""Bytes times parts: typically well below 1 ms, in the worst case about 15 ms."""

TEXT_MAX = 65_536
"""Maximum length of a schema that is parsed on the loop, in characters."""

BODY_BYTES_MAX = 65_536
_PARTS_MAX = 2_000
_TEXT_A_PART = 8
_COSTLY_PARTS = 100
_CONVERTED_PARTS = 20
_NUMBERS_MAX = 200
_COUNTED_BYTES = 1_200  # A shorter body has fewer such numbers.
_LARGE_EXPONENT = re.compile(rb"[0-9][eE][+-]?[0-9]{3}")
"""Such a number takes up to 10 µs to decode."""

_COUNTED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_COUNTED_AGAIN = re.compile(r"[)}]\{")
_NOT_WRITTEN_OUT = frozenset(
    {"$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"}
)


class _TooLarge(Exception):
    """The schema must not be used on the loop."""


def is_small(body: bytes) -> bool:
    """True if the JSON body may be decoded on the loop."""
    if len(body) > BODY_BYTES_MAX:
        return False
    if len(body) <= _COUNTED_BYTES or body.count(b"e") + body.count(b"E") <= _NUMBERS_MAX:
        return True
    return len(_LARGE_EXPONENT.findall(body)) <= _NUMBERS_MAX


def json_parts(root: Any) -> int | None:
    """The parts of an expanded JSON Schema; None if it must not be used on the loop."""
    waiting = [root]
    parts = 0
    try:
        while waiting:
            part = waiting.pop()
            parts += 1
            if isinstance(part, list):
                waiting += part
            elif isinstance(part, dict):
                if _NOT_WRITTEN_OUT & part.keys() or (
                    isinstance(part.get("$id"), str) and part is not root
                ):
                    raise _TooLarge
                for keyword, value in part.items():
                    parts += _keyword_parts(keyword, value)
                    if keyword == "$ref" and isinstance(value, str):
                        waiting.append(_pointed(root, value))
                    elif part is not root or keyword not in ("$defs", "definitions"):
                        # Definitions count where they are referred to.
                        waiting.append(value)
            if parts + len(waiting) > _PARTS_MAX:
                return None
    except _TooLarge:
        return None
    return parts


def _keyword_parts(keyword: str, value: Any) -> int:
    if keyword in ("uniqueItems", "multipleOf") and not isinstance(value, dict):
        return _COSTLY_PARTS
    if keyword == "pattern" and isinstance(value, str):
        return _pattern_parts(value)
    if keyword == "patternProperties" and isinstance(value, dict):
        return sum(map(_pattern_parts, value))
    # A property may have the name of a keyword; its schema is counted by itself.
    return 0 if isinstance(value, dict) else 1


def _pattern_parts(pattern: str) -> int:
    """The approximate size of a pattern with its repetitions expanded."""
    if _COUNTED_AGAIN.search(pattern):
        raise _TooLarge
    repeated = sum(max(int(n), int(m or 0)) for n, m in _COUNTED.findall(pattern))
    return 1 + (len(pattern) + repeated) // 8


def _pointed(root: Any, reference: str) -> Any:
    if not reference.startswith("#/") and reference != "#":
        raise _TooLarge
    found = root
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise _TooLarge
    return found


def avro_parts(root: AvroType, named: dict[str, Any]) -> int | None:
    """The parts of an expanded Avro schema; None if it must not be used on the loop."""
    left = _PARTS_MAX

    def spend(parts: int) -> None:
        nonlocal left
        left -= parts
        if left < 0:
            raise _TooLarge

    def takes_bytes(kind: AvroType) -> bool:
        """Count one type. False if its values take no bytes."""
        spend(1)
        if isinstance(kind, list):
            for each in kind:
                takes_bytes(each)
            return True
        if isinstance(kind, str):
            return takes_bytes(named[kind]) if kind in named else kind != "null"
        match kind["type"]:
            case "record" | "error":
                return any([field_takes_bytes(field) for field in kind["fields"]])  # noqa: C419
            case "array":
                if not takes_bytes(kind["items"]):
                    # A few bytes could be any number of items.
                    raise _TooLarge
                return True
            case "map":
                takes_bytes(kind["values"])
                return True
            case "enum":
                spend(max(map(len, kind["symbols"]), default=0) // _TEXT_A_PART)
                return True
            case "fixed":
                spend(_CONVERTED_PARTS)
                return bool(kind["size"])
            case "float" | "bytes":
                spend(_CONVERTED_PARTS)
                return True
            case primitive:
                return bool(primitive != "null")

    def field_takes_bytes(field: dict[str, Any]) -> bool:
        spend(1 + len(field["name"]) // _TEXT_A_PART)
        default = field.get("default")
        if isinstance(default, dict | list) and default:
            # It may be completed with other defaults.
            raise _TooLarge
        spend(len(str(default)) // _TEXT_A_PART)
        return takes_bytes(field["type"])

    try:
        takes_bytes(root)
    except (_TooLarge, RecursionError):
        return None
    return _PARTS_MAX - left
