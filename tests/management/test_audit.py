"""Each change is recorded in the metadata log with its author, and told in a line of the log."""

import json
import logging

import pytest
import trio

from hermes_actors.balancer.outbox import Outbox
from hermes_actors.config import ManagementConfig
from hermes_actors.log.memory import MemoryLog
from hermes_actors.log.ranges import read_forwards
from hermes_actors.management.access.table import RULES
from hermes_actors.metadata.audit import AUTHOR_HEADER
from hermes_actors.metadata.bodies import Suspension
from hermes_actors.metadata.commands import METADATA_TOPIC
from hermes_actors.metadata.state import MetadataState
from hermes_actors.model.redaction import MASK
from tests.management.dead_letters_scene import Desk

BILLING = "/topics/shop.orders/subscriptions/billing"
REGISTRY = "/schema-registry"
SECRETS = [
    "hunter2",
    "hunter3",
    "t0ken",
    "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "q-key",
]
OAUTH = {
    "name": "sso",
    "tokenEndpoint": "https://id.example.com/token",
    "clientId": "c",
    "clientSecret": SECRETS[0],
    "tokenRequestInitialDelay": 100,
    "tokenRequestMaxDelay": 60_000,
    "requestTimeout": 1_000,
    "socketTimeout": 0,
}
TASKS = "/offline-retransmission/tasks"
LETTERS = f"{BILLING}/dead-letters"

RECORDED_NOWHERE = {
    "GET /metadata/backup",
    "POST /topics/{topic}/subscriptions/{name}/test",
    # The node's own log tells of these.
    "POST /mode",
    "POST /topics/{topic}/subscriptions/{name}/dead-letters/expire",
    # With one datacentre there is nothing to change; a log topic has no metadata.
    "POST /consistency/sync/groups/{group}",
    "POST /consistency/sync/topics/{topic}",
    "POST /consistency/sync/topics/{topic}/subscriptions/{name}",
    "DELETE /consistency/inconsistencies/topics",
    *(
        f"POST /topics/{{topic}}/subscriptions/{{name}}/{verb}"
        for verb in ("pull", "ack", "nack", "extend")
    ),
}


def steps(api):
    """A request of each route that changes something, in an order in which they do."""
    schema = {"schema": '{"type":"object"}', "schemaType": "JSON"}
    billing = api.subscription(
        endpoint=f"https://ada:{SECRETS[1]}@billing.example.com/orders?key={SECRETS[4]}",
        headers=[{"name": "X-Api-Key", "value": SECRETS[2]}],
        signing={"secrets": [SECRETS[3]]},
    )
    hours = {"startTimestamp": "2026-01-01T10:00Z", "endTimestamp": "2026-01-01T11:00Z"}
    task = {"type": "topic", "sourceTopic": "shop.orders", "targetTopic": "shop.orders", **hours}
    level = {"compatibility": "NONE"}
    constraints = {"constraints": {"consumersNumber": 2}}
    return [
        ("POST /groups", "/groups", {"groupName": "shop"}),
        ("PUT /groups/{group}", "/groups/shop", {"owner": {"source": "Plaintext", "id": "sales"}}),
        ("POST /oauth/providers", "/oauth/providers", OAUTH),
        ("PUT /oauth/providers/{provider}", "/oauth/providers/sso", {"clientSecret": "hunter3"}),
        ("DELETE /oauth/providers/{provider}", "/oauth/providers/sso", None),
        ("POST /topics", "/topics", api.topic()),
        ("PUT /topics/{topic}", "/topics/shop.orders", {"description": "other"}),
        ("POST /topics/{topic}/schema", "/topics/shop.orders/schema", {"type": "object"}),
        ("DELETE /topics/{topic}/schema", "/topics/shop.orders/schema", None),
        (
            f"POST {REGISTRY}/subjects/{{subject}}/versions",
            f"{REGISTRY}/subjects/other/versions",
            schema,
        ),
        (f"PUT {REGISTRY}/config", f"{REGISTRY}/config", level),
        (f"PUT {REGISTRY}/config/{{subject}}", f"{REGISTRY}/config/other", level),
        (f"DELETE {REGISTRY}/config/{{subject}}", f"{REGISTRY}/config/other", None),
        (
            f"DELETE {REGISTRY}/subjects/{{subject}}/versions/{{version}}",
            f"{REGISTRY}/subjects/other/versions/1",
            None,
        ),
        ("", f"{REGISTRY}/subjects/other/versions", schema),
        (f"DELETE {REGISTRY}/subjects/{{subject}}", f"{REGISTRY}/subjects/other", None),
        ("POST /topics/{topic}/subscriptions", "/topics/shop.orders/subscriptions", billing),
        ("PUT /topics/{topic}/subscriptions/{name}", BILLING, {"description": "other"}),
        ("PUT /topics/{topic}/subscriptions/{name}/state", f"{BILLING}/state", "SUSPENDED"),
        (
            "POST /topics/{topic}/subscriptions/{name}/signing/rotate",
            f"{BILLING}/signing/rotate",
            {},
        ),
        (
            "POST /topics/{topic}/subscriptions/{name}/signing/retire",
            f"{BILLING}/signing/retire",
            None,
        ),
        (
            "PUT /topics/{topic}/subscriptions/{name}/retransmission",
            f"{BILLING}/retransmission",
            {"to": "start"},
        ),
        (
            "POST /topics/{topic}/subscriptions/{name}/moveOffsetsToTheEnd",
            f"{BILLING}/moveOffsetsToTheEnd",
            None,
        ),
        (
            "POST /topics/{topic}/subscriptions/{name}/dead-letters/redrive",
            f"{LETTERS}/redrive",
            {"all": True},
        ),
        (
            "DELETE /topics/{topic}/subscriptions/{name}/dead-letters/redrive",
            f"{LETTERS}/redrive",
            None,
        ),
        (
            "PUT /workload-constraints/topic",
            "/workload-constraints/topic",
            {"topicName": "shop.orders", **constraints},
        ),
        (
            "PUT /workload-constraints/subscription",
            "/workload-constraints/subscription",
            {"subscriptionName": "shop.orders$billing", **constraints},
        ),
        (
            "DELETE /workload-constraints/topic/{topic}",
            "/workload-constraints/topic/shop.orders",
            None,
        ),
        (
            "DELETE /workload-constraints/subscription/{topic}/{name}",
            "/workload-constraints/subscription/shop.orders/billing",
            None,
        ),
        (
            "PUT /balancer/drains/{dc}/{node}",
            "/balancer/drains/dc1/n1?force=true",
            {"reason": "a new disk"},
        ),
        ("DELETE /balancer/drains/{dc}/{node}", "/balancer/drains/dc1/n1", None),
        (
            "POST /readiness/datacenters/{dc}",
            "/readiness/datacenters/dc1",
            {"isReady": False},
        ),
        (f"POST {TASKS}", TASKS, task),
        (f"DELETE {TASKS}/{{task}}", f"{TASKS}/{{task}}", None),
        (
            "POST /metadata/restore",
            "/metadata/restore",
            {
                "key": "group/a",
                "incarnation": 0,
                "stamp": 1,
                "dc": "dc1",
                "body": {"groupName": "a"},
            },
        ),
        ("POST /apply", "/apply", {"groups": [{"groupName": "shop", "labels": {"team": "a"}}]}),
        ("DELETE /topics/{topic}/subscriptions/{name}", BILLING, None),
        ("DELETE /topics/{topic}", "/topics/shop.orders", None),
        ("DELETE /groups/{group}", "/groups/shop", None),
    ]


@pytest.fixture
def settings():
    return ManagementConfig(allow_removal=True, allow_schema_removal=True)


async def audited(api):
    """What a reader of the metadata log alone can tell: author, key, before and after."""
    found, state = [], MetadataState()

    def take(batch):
        for record in batch:
            held = dict(state.registers)
            changed = state.fold(record).changed
            if changed is not None:
                before = held.get(changed.key)
                author = json.loads(dict(record.headers)[AUTHOR_HEADER])
                bodies = (before.body if before else None, changed.body)
                found.append((author, changed.key, *map(as_json, bodies)))
        return True

    end = (await api.log.bounds(METADATA_TOPIC, 0))[1]
    await read_forwards(api.log, METADATA_TOPIC, 0, 0, end, take)
    return found


def as_json(body):
    return None if body is None else json.loads(body)


async def test_whichever_route_changes_something_the_record_and_the_log_tell_who_and_why(
    api, caplog, monkeypatch
):
    caplog.set_level(logging.INFO, "hermes_actors.metadata.audit")
    # No consumer is there to go anywhere.
    monkeypatch.setattr("hermes_actors.management.offsets.retransmission.TAKEN_UP_WITHIN_S", 0.01)
    routes = {
        f"{verb} {path}"
        for (verb, path), rule in RULES.items()
        # The console's pages make the same changes.
        if rule.changes and not path.startswith("/console/")
    }
    made = steps(api)
    assert {each for each, _, _ in made if each} == routes - RECORDED_NOWHERE
    for route, path, body in made:
        if "redrive" in path and body is not None:
            await Desk(api, MemoryLog("dc2", api.clock)).write(Desk(api, None).letter(1))
        if "{task}" in path:
            path = path.format(task=(await api.get(TASKS)).json()[0]["taskId"])
        before, lines = len(await audited(api)), len(caplog.records)
        headers = {"x-user": "admin", "Hermes-Change-Reason": f"CHG-7 {path} ü".encode()}
        verb = route.partition(" ")[0] or "POST"
        answer = await api.client.request(verb, path, json=body, headers=headers)
        if "retransmission" not in path and "moveOffsets" not in path:
            assert answer.is_success, (path, answer.text)
        new = (await audited(api))[before:]
        told = [each.change for each in caplog.records[lines:]]
        assert new, path
        author = {"by": "admin", "address": "127.0.0.1", "reason": f"CHG-7 {path} ü"}
        assert all(each[0] == author for each in new), path
        assert [each["key"] for each in told] == [key for _, key, _, _ in new]
        for line, (_, _, old, after) in zip(told, new, strict=True):
            assert line.items() >= author.items()
            assert (line["before"] is None, line["after"] is None) == (old is None, after is None)
    everything = json.dumps([each.change for each in caplog.records])
    assert [each for each in SECRETS if each in everything] == []
    assert MASK in everything
    assert "billing.example.com/orders" in everything


async def test_a_line_shows_the_fields_that_differ(api, caplog):
    caplog.set_level(logging.INFO, "hermes_actors.metadata.audit")
    await api.with_topic()
    await api.with_subscription()
    await api.put(BILLING, {"endpoint": "https://b.example.com/x"})
    change = caplog.records[-1].change
    assert change["key"] == "subscription/shop/orders/billing"
    assert change["before"] == {"subscription": {"endpoint": "https://billing.example.com/orders"}}
    assert change["after"] == {"subscription": {"endpoint": "https://b.example.com/x"}}


async def test_what_the_broker_changes_says_so(api, nursery, caplog):
    caplog.set_level(logging.INFO, "hermes_actors.metadata.audit")
    await api.with_topic()
    await api.with_subscription()
    outbox = Outbox(api.metadata)
    nursery.start_soon(outbox.run)
    suspension = Suspension(api.clock.ms, reason="it is gone")
    outbox.suspend(api.metadata.catalog.subscriptions["shop.orders$billing"], suspension)
    await trio.testing.wait_all_tasks_blocked()
    author, key, _, after = (await audited(api))[-1]
    assert (author["by"], key) == ("[broker]", "subscription/shop/orders/billing")
    assert after["suspended"]["reason"] == "it is gone"
    assert caplog.records[-2].change["after"]["suspended"]["reason"] == "it is gone"


async def test_a_reason_is_not_a_book(api):
    headers = {"Hermes-Change-Reason": "x" * 1_025}
    answer = await api.post("/groups", {"groupName": "shop"}, headers=headers)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
