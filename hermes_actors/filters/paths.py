"""JSONPath (RFC 9535) over decoded JSON: what a path finds, within bounded work.

Paths of names, indexes and `[*]` are walked here; all others are the library's.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jsonpath_rfc9535 import JSONPathError, JSONPathNode, JSONPathQuery
from jsonpath_rfc9535.filter_expressions import (
    Expression,
    FilterContext,
    FilterExpression,
    FilterQuery,
)
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import (
    FilterSelector,
    IndexSelector,
    NameSelector,
    WildcardSelector,
)

from hermes_actors.filters.budget import Budget
from hermes_actors.filters.failures import FilterFailed, FilterInvalid
from hermes_actors.filters.path_functions import BUDGET, ENVIRONMENT

TEXT_CHARACTERS_MAX = 1_000
_A_STEP = 64
"""So many values looked at are one step of the budget's."""

_ABSENT = object()
_EVERY = object()

# One piece of what Hermes takes beyond the standard: names with characters that the standard wants
# in quotes, as in `$.event-type`.
_LOOSE = re.compile(
    r"""(?P<dots>\.\.?)(?P<name>[^.\[\]()\s'"*?@,]+)"""
    r"""|\.\.?\*|\.\.(?=\[)|\[(?:[^\[\]'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")*\]"""
)


class CompiledPath:
    """A compiled path. Beyond the standard, `a.b` means `$.a.b`, as in Hermes, and `$.event-type`
    means `$['event-type']`.
    """

    __slots__ = ("_names", "_query", "_steps")

    def __init__(self, text: str) -> None:
        """Compile the path. Raises FilterInvalid, which names the field `path`."""
        self._query = _compiled(text)
        self._steps = _steps_of(self._query)
        # By far the most are nothing but names.
        is_plain = self._steps is not None and all(type(each) is str for each in self._steps)
        self._names: tuple[Any, ...] | None = self._steps if is_plain else None

    @property
    def is_walked(self) -> bool:
        """True when it needs no library."""
        return self._steps is not None

    def values(self, document: Any, budget: Budget) -> Sequence[Any]:
        """All that is found in the document, in its order. Raises BudgetSpent, and FilterFailed for
        a document that nests too deep.
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
            return _walk(document, self._steps, budget)
        return self._searched(document, budget)

    def searched(self, document: Any) -> list[Any]:
        """Return what the library finds, without regard to bounds; for tests of the walk."""
        before = BUDGET.set(Budget(float("inf"), lambda: 0.0))
        try:
            return self._query.find(document).values()
        finally:
            BUDGET.reset(before)

    def _searched(self, document: Any, budget: Budget) -> list[Any]:
        budget.look()
        before = BUDGET.set(budget)
        try:
            return [node.value for node in self._query.finditer(document)]
        except (JSONPathError, RecursionError) as error:
            raise FilterFailed(f"its path cannot be followed: {error}") from error
        finally:
            BUDGET.reset(before)


class _Counted(JSONPathNode):
    """A place in a document that does without its location, and costs a step."""

    __slots__ = ("budget",)

    budget: Budget

    def new_child(self, value: object, _key: int | str, _parent: JSONPathNode | None) -> "_Counted":
        self.budget.spend()
        child = _Counted(value=value, location=(), parent=None, root=self.root)
        child.budget = self.budget
        return child


class _CountedQuery(JSONPathQuery):
    """A query whose steps the budget of the message is asked for."""

    def finditer(self, value: Any) -> Iterable[JSONPathNode]:
        root = _Counted(value=value, location=(), parent=None, root=value)
        root.budget = BUDGET.get()
        nodes: Iterable[JSONPathNode] = (root,)
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _CountedExpression(FilterExpression):
    """A filter expression, asked of each part of a message; each of its own parts is a step."""

    __slots__ = ("_steps",)

    def __init__(self, of: FilterExpression) -> None:
        super().__init__(of.token, of.expression)
        parts = list(_parts_of(of.expression))
        self._steps = len(parts)
        for part in parts:
            if isinstance(part, FilterQuery):
                part.query = _CountedQuery(env=part.query.env, segments=part.query.segments)

    def evaluate(self, context: FilterContext) -> bool:
        BUDGET.get().spend(self._steps)
        return super().evaluate(context)


def _compiled(text: str) -> _CountedQuery:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise FilterInvalid("path", f"must have at most {TEXT_CHARACTERS_MAX} characters")
    if not text.startswith(("$", "@")):
        text = "$" + text if text.startswith("[") else "$." + text
    try:
        try:
            query = ENVIRONMENT.compile(text)
        except JSONPathError:
            standard = _standard(text)
            if standard is None:
                raise
            query = ENVIRONMENT.compile(standard)
    except JSONPathError as error:
        raise FilterInvalid("path", f"must be a JSONPath (RFC 9535): {error}") from error
    except RecursionError as error:
        raise FilterInvalid("path", "must not nest so deep") from error
    _require_bounded(query)
    return _CountedQuery(env=query.env, segments=query.segments)


def _standard(text: str) -> str | None:
    """The path with its names in quotes; None when it is not one of names and brackets alone."""
    if not text.startswith("$"):
        return None
    pieces, at = ["$"], 1
    while at < len(text):
        piece = _LOOSE.match(text, at)
        if piece is None:
            return None
        if piece["name"]:
            name = piece["name"].replace("\\", "\\\\")
            pieces.append(f"{'..' if piece['dots'] == '..' else ''}['{name}']")
        else:
            pieces.append(piece[0])
        at = piece.end()
    return "".join(pieces)


def _require_bounded(query: JSONPathQuery) -> None:
    """Bound a query: each part of a message is looked at once for each selector, and not for each
    pair of parts.

    Raises FilterInvalid.
    """
    descents = 0
    for segment in query.segments:
        descents += isinstance(segment, JSONPathRecursiveDescentSegment)
        for selector in segment.selectors:
            if isinstance(selector, FilterSelector):
                for part in _parts_of(selector.expression):
                    if isinstance(part, FilterQuery):
                        _require_shallow(part.query)
                selector.expression = _CountedExpression(selector.expression)
    if descents > 1:
        raise FilterInvalid("path", "must not descend (..) more than once")


def _require_shallow(inner: JSONPathQuery) -> None:
    for segment in inner.segments:
        if isinstance(segment, JSONPathRecursiveDescentSegment):
            raise FilterInvalid("path", "must not descend (..) within a filter expression")
        if any(isinstance(each, FilterSelector) for each in segment.selectors):
            raise FilterInvalid("path", "must not have a filter expression within another")


def _parts_of(expression: Expression) -> Iterator[Expression]:
    """The expression and all that it is made of."""
    yield expression
    for name in ("expression", "left", "right"):
        part = getattr(expression, name, None)
        if isinstance(part, Expression):
            yield from _parts_of(part)
    for part in getattr(expression, "args", ()):
        yield from _parts_of(part)


def _steps_of(query: JSONPathQuery) -> tuple[Any, ...] | None:
    """A name, an index or `_EVERY` for each segment; None when there is anything else."""
    steps: list[Any] = []
    for segment in query.segments:
        if isinstance(segment, JSONPathRecursiveDescentSegment) or len(segment.selectors) != 1:
            return None
        selector = segment.selectors[0]
        if isinstance(selector, NameSelector):
            steps.append(selector.name)
        elif isinstance(selector, IndexSelector):
            steps.append(selector.index)
        elif isinstance(selector, WildcardSelector):
            steps.append(_EVERY)
        else:
            return None
    return tuple(steps)


def _walk(document: Any, steps: tuple[Any, ...], budget: Budget) -> list[Any]:
    found = [document]
    for step in steps:
        budget.spend(1 + len(found) // _A_STEP)
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
            # From the end when negative.
            least = step + 1 if step >= 0 else -step
            found = [each[step] for each in found if type(each) is list and len(each) >= least]
    return found
