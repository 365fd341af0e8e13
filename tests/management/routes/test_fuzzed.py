"""Schemathesis calls every route of the OpenAPI document with generated requests."""

import sys
from collections import Counter

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

HELD = {"group": "shop", "topic": "shop.orders", "name": "billing", "subject": "shop.orders"}
STREAMS = ("/topics/{topic}/messages", "/events")
# Rights have their own test (test_table.py), and rules say more than types can.
UNSUITABLE = [ignored_auth, positive_data_acceptance]


def generated(strategy, count):
    """The same cases in every run."""
    found = []

    @hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(case):
        found.append(case)

    collect()
    return found


def cases_of(operation, schemas):
    """Valid and invalid requests: of anything, of what exists, and of the document's example."""
    held = {name: value for name, value in HELD.items() if f"{{{name}}}" in operation.path}
    at = {"path_parameters": held or None}
    yield from generated(operation.as_strategy(GenerationMode.POSITIVE), 2)
    yield from generated(operation.as_strategy(GenerationMode.POSITIVE, **at), 2)
    if not operation.query and not operation.body:
        return
    yield from generated(operation.as_strategy(GenerationMode.NEGATIVE, **at), 4)
    for body in operation.body:
        name = body.definition["schema"].get("$ref", "").rpartition("/")[2]
        for example in schemas.get(name, {}).get("examples", ()):
            yield from generated(
                operation.as_strategy(GenerationMode.POSITIVE, **at, body=example), 1
            )


@pytest.mark.slow
async def test_generated_requests_find_no_fault(api, monkeypatch, capsys):
    # No consumer is there to take a new position.
    monkeypatch.setattr("hermes_actors.management.offsets.retransmission.TAKEN_UP_WITHIN_S", 0.01)
    await api.with_topic(schema='{"type": "object"}')
    await api.with_subscription()
    document = (await api.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    statuses, faults = Counter(), []
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = result.ok()
        for case in () if operation.path in STREAMS else cases_of(operation, schemas):
            made = requests.Request(**case.as_transport_kwargs("http://localhost")).prepare()
            answer = await api.client.request(
                made.method, made.url, headers=dict(made.headers), content=made.body
            )
            statuses[answer.status_code] += 1
            try:
                case.validate_response(answer, excluded_checks=UNSUITABLE)
            except BaseExceptionGroup as group:
                faults += [f"{made.method} {made.url}: {fault}" for fault in group.exceptions]
    with capsys.disabled():
        sys.stdout.write(f"\n{statuses.total()} requests: {sorted(statuses.items())}\n")
    assert faults == []
    assert statuses[200] > 100
    assert not [status for status in statuses if status >= 500 and status != 503]
