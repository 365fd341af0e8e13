"""Limits of a GraphQL document, checked before it is validated, because validation may take long.

A fragment is measured once, however often it is spread.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from strawberry.extensions import SchemaExtension

from hermes_actors.errors import Refused
from hermes_actors.management.graphql.fields import CALLS

TOKENS_MAX = 1_000
DEPTH_MAX = 15
"""As deep as the usual query for the schema. Nothing else in the schema is so deep."""

COST_MAX = 20_000
ITEMS_MAX = 500
"""The maximum of `limit` in the arguments of a list."""

ITEMS = 20
"""Its default."""

_CALL_COST = 5
"""Of each field that calls a part of management; other fields cost 1."""

_LISTS = {"groups", "topics", "subscriptions", "deadLetters"}
_TIMES = {"__schema": 20, "__type": 20} | dict.fromkeys(_LISTS, ITEMS)
"""How often the cost of what is below a field counts."""


class Limits(SchemaExtension):
    """Refuses documents beyond these limits. The document of an operation is read only once."""

    def on_parse(self) -> Iterator[None]:
        """Limit the parser. Use the operation's document if it has been read before."""
        self.execution_context.parse_options["max_tokens"] = TOKENS_MAX
        self.execution_context.graphql_document = self.execution_context.context.document
        yield

    def on_validate(self) -> Iterator[None]:
        """Check the limits. Raises Refused."""
        context, operation = self.execution_context, self.execution_context.context
        if operation.document is None:
            _require_within_limits(context.graphql_document, context.variables or {})
        else:
            context.pre_execution_errors = []
        yield
        operation.document = context.graphql_document


def _require_within_limits(document: Any, variables: Mapping[str, Any]) -> None:
    measure = _Measure(document, variables)
    for each in (e for e in document.definitions if e.kind == "operation_definition"):
        cost, depth = measure.of(each.selection_set)
        if depth > DEPTH_MAX:
            raise Refused(f"The query has {depth} levels, and the most is {DEPTH_MAX}")
        if cost > COST_MAX:
            text = f"The query costs {cost}, and the most is {COST_MAX}"
            raise Refused(f"{text}; ask for fewer fields, or give lists a smaller limit")


class _Measure:
    """Measures the cost and the depth of selections."""

    def __init__(self, document: Any, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        fragments = (e for e in document.definitions if e.kind == "fragment_definition")
        self._fragments = {each.name.value: each.selection_set for each in fragments}
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, selections: Any) -> tuple[int, int]:
        found = list(map(self._one, selections.selections))
        return sum(cost for cost, _ in found), max(depth for _, depth in found)

    def _one(self, node: Any) -> tuple[int, int]:
        if node.kind == "inline_fragment":
            cost, depth = self.of(node.selection_set)
            return cost, depth + 1
        name = node.name.value
        if node.kind == "fragment_spread":
            if name not in self._known:
                # Validation refuses a fragment that contains itself.
                self._known[name] = 0, 0
                if name in self._fragments:
                    self._known[name] = self.of(self._fragments[name])
            return self._known[name]
        cost, depth = self.of(node.selection_set) if node.selection_set else (0, 0)
        own = _CALL_COST if name in CALLS else 1
        return own + cost * self._times(name, node.arguments or ()), depth + 1

    def _times(self, name: str, arguments: Iterable[Any]) -> int:
        """A `limit` that is unknown or invalid counts as the maximum."""
        for each in arguments if name in _LISTS else ():
            if each.name.value == "limit":
                is_variable = each.value.kind == "variable"
                literal = getattr(each.value, "value", "")
                text = str(self._variables.get(each.value.name.value) if is_variable else literal)
                return int(text) if text.isdecimal() and len(text) < 4 else ITEMS_MAX
        return _TIMES.get(name, 1)
