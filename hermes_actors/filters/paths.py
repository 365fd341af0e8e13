"""JSONPath (RFC 9535) over decoded JSON.

Paths of names, indexes and `[*]` are followed here, in time linear in the document's size. All
others are left to the library.
"""

import re
from collections.abc import Sequence
from typing import Any

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery

from hermes_actors.filters.failures import FilterFailed, FilterInvalid

TEXT_CHARACTERS_MAX = 1_000
_LOOP_UNITS_MAX = 50_000
"""Maximum product of path length and message size for the library on the loop: about 5 ms at
most.
"""

_ENVIRONMENT = JSONPathEnvironment()
_ABSENT = object()
_EVERY = object()

# Names that the standard would require in quotes, as in `$.event-type`, are accepted too.
_NAME = r"""[^.\[\]()\s'"*?@,\\:]+"""
_STEP = re.compile(
    rf"""\.(?P<name>{_NAME})|\[(?:'(?P<single>[^'\\]*)'|"(?P<double>[^"\\]*)")\]"""
    r"""|\[(?P<index>0|-?[1-9][0-9]{0,8})\]|(?P<every>\.\*|\[\*\])"""
)
_LOOSE = re.compile(
    rf"""(?P<dots>\.\.?)(?P<name>{_NAME})"""
    r"""|\.\.?\*|\.\.(?=\[)|\[(?:[^\[\]'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")*\]"""
)
_COSTLY_INSIDE = re.compile(r"[*(:]|\.\.")
"""A filter expression with these may scan the whole document for each of its parts."""


class CompiledPath:
    """A compiled path. Beyond the standard, `a.b` means `$.a.b`, as in Hermes, and `$.event-type`
    means `$['event-type']`.
    """

    __slots__ = ("_loop_bytes_max", "_names", "_query", "_steps")

    def __init__(self, text: str) -> None:
        """Compile the path. Raises FilterInvalid, naming the field `path`."""
        if len(text) > TEXT_CHARACTERS_MAX:
            raise FilterInvalid("path", f"must have at most {TEXT_CHARACTERS_MAX} characters")
        if not text.startswith(("$", "@")):
            text = "$" + text if text.startswith("[") else "$." + text
        self._steps = _steps_of(text)
        # The common case: only names.
        is_plain = self._steps is not None and all(type(each) is str for each in self._steps)
        self._names: tuple[Any, ...] | None = self._steps if is_plain else None
        self._query = None if self._steps is not None else _compiled(text)
        self._loop_bytes_max = _loop_bytes_max(text)

    def is_for_loop(self, size_bytes: int) -> bool:
        """True if the path is fast on a message of this size."""
        return self._steps is not None or size_bytes <= self._loop_bytes_max

    def values(self, document: Any) -> Sequence[Any]:
        """Return everything found in the document, in order. Raises FilterFailed if the document is
        nested too deep.
        """
        if self._names is not None:
            for name in self._names:
                if type(document) is not dict:
                    return ()
                document = document.get(name, _ABSENT)
                if document is _ABSENT:
                    return ()
            return (document,)
        if self._steps is not None:
            return _walk(document, self._steps)
        assert self._query is not None, "a path without steps has a query"
        try:
            return self._query.find(document).values()
        except (JSONPathError, RecursionError) as error:
            raise FilterFailed(f"its path cannot be followed: {error}") from error


def _loop_bytes_max(text: str) -> int:
    _, mark, expression = text.partition("?")
    if text.count("..") > 1 or (mark and ("?" in expression or _COSTLY_INSIDE.search(expression))):
        return 0
    return _LOOP_UNITS_MAX // len(text)


def _steps_of(text: str) -> tuple[Any, ...] | None:
    """Return a name, an index or `_EVERY` for each step; None if the path has anything else."""
    steps: list[Any] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        at = step.end()
        if step["every"]:
            steps.append(_EVERY)
        elif step["index"]:
            steps.append(int(step["index"]))
        else:
            steps.append(
                next(each for each in step.group("name", "single", "double") if each is not None)
            )
    return tuple(steps) if text[0] == "$" else None


def _compiled(text: str) -> JSONPathQuery:
    try:
        try:
            return _ENVIRONMENT.compile(text)
        except JSONPathError:
            standard = _standard(text)
            if standard is None:
                raise
            return _ENVIRONMENT.compile(standard)
    except (JSONPathError, OverflowError) as error:
        # For example 1e400, which the library cannot represent.
        raise FilterInvalid("path", f"must be a JSONPath (RFC 9535): {error}") from error
    except RecursionError as error:
        raise FilterInvalid("path", "is nested too deeply") from error


def _standard(text: str) -> str | None:
    """The path with its names in quotes; None if it has more than names and brackets."""
    if not text.startswith("$"):
        return None
    pieces, at = ["$"], 1
    while at < len(text):
        piece = _LOOSE.match(text, at)
        if piece is None:
            return None
        if piece["name"]:
            pieces.append(f"{'..' if piece['dots'] == '..' else ''}['{piece['name']}']")
        else:
            pieces.append(piece[0])
        at = piece.end()
    return "".join(pieces)


def _walk(document: Any, steps: tuple[Any, ...]) -> list[Any]:
    found = [document]
    for step in steps:
        if step is _EVERY:
            found = [
                child
                for each in found
                if type(each) is dict or type(each) is list
                for child in (each.values() if type(each) is dict else each)
            ]
        elif type(step) is str:
            found = [each[step] for each in found if type(each) is dict and step in each]
        else:
            # A negative index counts from the end.
            least = step + 1 if step >= 0 else -step
            found = [each[step] for each in found if type(each) is list and len(each) >= least]
    return found
