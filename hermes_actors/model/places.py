"""Finds the place of a decoding error in the caller's input, in terms of its keys. Pure."""

import re
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")
_HERE = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_KEY = "key` in `"


def explained(
    value: Any, decode: Callable[[Any], object], error: msgspec.ValidationError
) -> tuple[str, str]:
    """Return the path of the error in the value, such as `[1].matcher` or `[dc1][0]` (empty string
    for the value itself), and what is wrong there. `error` is what `decode` raised.

    The decoder writes `[...]` for any key of a map. The actual key is found by decoding each value
    alone.
    """
    problem, _, place = str(error).partition(" - at `")
    is_key = place.startswith(_KEY)
    steps = [match.groups() for match in _STEP.finditer(place.rstrip("`").partition("$")[2])]
    if is_key:
        steps.append((None, None, "[...]"))
    path = ""
    rebuild: Callable[[Any], Any] = _itself
    key: str | int
    for name, index, any_key in steps:
        if any_key:
            if not isinstance(value, dict):
                return f"{path}{any_key}", problem
            key = _first_wrong(value, rebuild, decode, str(error))
            path += f"[{key}]"
            # Other values of the map may fail in the same way.
            value = {key: value[key]}
        elif name:
            key = name
            path += f".{key}"
        else:
            key = int(index)
            path += f"[{key}]"
        rebuild = _within(rebuild, value, key)
        value = value[key]
    return path, f"the key is wrong: {problem}" if is_key else problem


def _kind_at(kind: Any, path: str) -> Any:
    """The type at this path within a value of this type; None if there is no such path."""
    for name, _ in _HERE.findall(path):
        kind = _without_none(kind)
        if not name:
            # The values of a list, or of a map.
            kind = (typing.get_args(kind) or (None,))[-1]
        elif _is(kind, msgspec.Struct):
            fields = msgspec.structs.fields(kind)
            kind = next((each.type for each in fields if each.encode_name == name), None)
        else:
            return None
    return _without_none(kind)


def words_at(kind: Any, path: str) -> list[str]:
    """The allowed words at this path within a value of this type; empty if it is no enumeration."""
    found = _kind_at(kind, path)
    if typing.get_origin(found) is typing.Literal:
        return list(typing.get_args(found))
    return [each.value for each in found] if _is(found, StrEnum) else []


def _without_none(kind: Any) -> Any:
    """Return X for `X | None`, None for a larger union, and other types unchanged."""
    if typing.get_origin(kind) not in (types.UnionType, typing.Union):
        return kind
    some = [each for each in typing.get_args(kind) if each is not type(None)]
    return some[0] if len(some) == 1 else None


def _is(kind: Any, wanted: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, wanted)


def _first_wrong(
    found: dict[str, Any],
    rebuild: Callable[[Any], Any],
    decode: Callable[[Any], object],
    wrong: str,
) -> str:
    """The first key that fails, or whose value fails, with the same error as the whole map."""
    for key, value in found.items():
        try:
            decode(rebuild({key: value}))
        except msgspec.ValidationError as error:
            if str(error) == wrong:
                return key
    raise AssertionError("decoding all of it fails as it did")


def _itself(part: Any) -> Any:
    return part


def _within(rebuild: Callable[[Any], Any], holder: Any, key: Any) -> Callable[[Any], Any]:
    """Rebuilds the whole with another part at this key of its holder."""

    def whole(part: Any) -> Any:
        if isinstance(holder, list):
            return rebuild([*holder[:key], part, *holder[key + 1 :]])
        return rebuild({**holder, key: part})

    return whole
