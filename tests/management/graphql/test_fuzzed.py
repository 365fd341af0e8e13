"""Schemathesis asks for every field with generated arguments and selections."""

import re
import sys
from collections import Counter

import pytest
import schemathesis
from graphql import get_introspection_query

from hermes_actors.management.graphql.fields import CALLS
from tests.management.graphql.asking import data
from tests.management.routes.test_fuzzed import HELD, generated

EXAMPLES = 5
_STRING = r'"(?:[^"\\]|\\.)*"'


def with_what_exists(query):
    """The query about things that exist, with lists of a size that is allowed."""
    for name in ("topic", "name"):
        query = re.sub(rf"\b{name}: {_STRING}", f'{name}: "{HELD[name]}"', query)
    query = re.sub(r'topic\(name: "billing"', 'topic(name: "shop.orders"', query)
    query = re.sub(rf"\b(query|since|until|before|partition): ({_STRING}|[^,)]*)", "", query)
    return re.sub(r"\b(limit|last): [^,)]*", r"\1: 2", query)


@pytest.mark.slow
async def test_generated_operations_find_no_fault(api, monkeypatch, capsys):
    # No consumer is there to take a new position.
    monkeypatch.setattr("hermes_actors.management.offsets.retransmission.TAKEN_UP_WITHIN_S", 0.01)
    await api.with_topic(schema='{"type": "object"}')
    await api.with_subscription()
    outcomes, fields, faults = Counter(), set(), []
    described = await data(api, get_introspection_query())
    for result in schemathesis.graphql.from_dict(described).get_all_operations():
        operation = result.ok()
        fields.add(operation.definition.field_name)
        bodies = [case.body for case in generated(operation.as_strategy(), EXAMPLES)]
        for query in [*bodies, *map(with_what_exists, bodies)]:
            answer = await api.post("/graphql", {"query": query})
            body = answer.json()
            told = str(body.get("errors", body))
            outcomes[answer.status_code, "errors" in body] += 1
            if answer.status_code not in (200, 400) or "Internal error" in told:
                faults.append((query, told))
    with capsys.disabled():
        sys.stdout.write(f"\n{outcomes.total()} operations: {sorted(outcomes.items())}\n")
    assert faults == []
    assert outcomes[200, False] > 20
    assert fields <= CALLS
