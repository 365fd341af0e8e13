"""Hermes' paths into a decoded Avro message: `order.lines[*].sku`.

A step is the name of a record's field or a map's key. It may have one index into an array, or `[*]`
for all of its items.
"""

import json
import re
from typing import Any

from hermes_actors.filters.failures import FilterFailed, FilterInvalid

PATH_CHARACTERS_MAX = 1_000

_EVERY = -1
_INDEXED = re.compile(r"(?P<name>.+)\[(?P<index>\*|[0-9]{1,9})\]", re.DOTALL)

_Step = tuple[str, int | None]
"""A name, and an index: None without one, `_EVERY` for all items."""


class AvroPath:
    """A compiled `avropath` of Hermes; dots at its ends are ignored."""

    __slots__ = ("_steps",)

    def __init__(self, text: str) -> None:
        """Raises FilterInvalid, which names the field `path`."""
        if len(text) > PATH_CHARACTERS_MAX:
            raise FilterInvalid("path", f"must have at most {PATH_CHARACTERS_MAX} characters")
        self._steps = tuple(_step(each) for each in text.strip(".").split("."))

    def is_for_loop(self, _size_bytes: int) -> bool:
        """Always True: the path is fast on any message."""
        return True

    def values(self, document: Any) -> list[Any]:
        """Return everything found; None in place of a value if only the last name or index is
        missing. Empty if the path ends earlier, or there is no array for an index.
        """
        found = [document]
        for name, index in self._steps:
            reached = [each.get(name) for each in found if type(each) is dict]
            if index is not None:
                arrays = [each for each in reached if type(each) is list]
                if index == _EVERY:
                    reached = [item for each in arrays for item in each]
                else:
                    reached = [each[index] if index < len(each) else None for each in arrays]
            found = reached
        return found


def avro_text(value: Any) -> str:
    """Return the text to compare with a matcher, as Java prints it: strings bare, an array as `[a,
    b]`, everything else as JSON with a space after each comma and colon. Raises FilterFailed.
    """
    if type(value) is str:
        return value
    try:
        if type(value) is list:
            return f"[{', '.join(map(_item_text, value))}]"
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise FilterFailed("what its path finds nests too deep") from error


def _item_text(value: Any) -> str:
    if type(value) is list:
        return f"[{', '.join(map(_item_text, value))}]"
    return value if type(value) is str else json.dumps(value, ensure_ascii=False)


def _step(text: str) -> _Step:
    if not text:
        raise FilterInvalid("path", "must be names with dots between, such as order.lines[*].sku")
    indexed = _INDEXED.fullmatch(text)
    if indexed is None:
        return text, None
    name, index = indexed.groups()
    if _INDEXED.fullmatch(name):
        raise FilterInvalid("path", f"must have one index after a name at most, {text} has more")
    return name, _EVERY if index == "*" else int(index)
