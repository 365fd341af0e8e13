"""The reason why not: for each node, in a sentence."""

import pytest
import trio

from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.keys import activation_key
from hermes_actors.model.names import SubscriptionName
from hermes_actors.status.fold import GONE_AFTER_S
from tests.management.statuses_scene import FULL, NOW_MS, SUBSCRIPTION, consumed

REFUSED = {"last_failure": "connect: refused", "last_failure_at_ms": NOW_MS}


async def why(api):
    body = (await api.get(f"{SUBSCRIPTION}/why")).json()
    assert (body["topic"], body["subscription"]) == ("shop.orders", "billing")
    return body


async def test_why_says_for_each_datacentre_that_it_delivers_or_why_not(api, nodes):
    nodes.read("dc1")
    nodes.read("dc2")
    two = {"rates": {"delivered": 2, "codes_2xx": 2}}
    nodes.tell("dc1", "a", subscriptions=[consumed(lag=3, last_success_at_ms=NOW_MS, **two)])
    nodes.tell("dc2", "b", subscriptions=[consumed(why="the log cannot be read: away")])
    body = await why(api)
    assert body["state"] == "PENDING"
    dc1, dc2 = body["datacenters"]
    assert (dc1["isDelivering"], dc1["reason"]) == (True, "a: 2.0 messages a second")
    assert (dc2["isDelivering"], dc2["reason"]) == (False, "b: the log cannot be read: away")
    (node,) = dc1["nodes"]
    assert (node["state"], node["rate"], node["lag"]) == ("DELIVERING", 2.0, 3)
    assert ("lastFailure" in node, node["lastSuccessAt"]) == (False, NOW_MS / 1_000)
    name = SubscriptionName.parse(FULL)
    await api.metadata.change(put(activation_key(name, "dc1"), activation_body(0)))
    assert (await why(api))["state"] == "ACTIVE"


@pytest.mark.parametrize(
    ("rates", "fields", "state", "reason"),
    [
        ({}, {"lag": 0}, "IDLE", "there is nothing to deliver"),
        ({}, {"lag": 9}, "IDLE", "nothing is under way"),
        (
            {"codes_5xx": 5},
            {"last_failure": "HTTP 503", "last_failure_at_ms": NOW_MS},
            "FAILING",
            "HTTP 503; the endpoint takes nothing",
        ),
        (
            {"delivered": 5, "codes_2xx": 5, "timeouts": 1},
            {"last_failure": "timeout", "last_failure_at_ms": NOW_MS},
            "DELIVERING",
            "5.0 messages a second, and 1.0 attempts a second fail: timeout",
        ),
        (
            {},
            {"waiting_retries": 3, "last_failure": "HTTP 503", "last_failure_at_ms": NOW_MS},
            "FAILING",
            "HTTP 503; 3 wait for their time, 0 are in flight",
        ),
        (
            {},
            {"inflight": 3, "last_failure": "HTTP 503", "last_failure_at_ms": 1},
            "DELIVERING",
            "0 wait for their time, 3 are in flight",
        ),
        ({"delivered": 5}, {"why": "suspended"}, "STOPPED", "suspended"),
        # It failed for a while, recovered, and had one message to take: rates fall slowly.
        (
            {"delivered": 0.02, "codes_2xx": 0.02, "other_errors": 4},
            {
                **REFUSED,
                "last_failure_at_ms": NOW_MS - 16_000,
                "last_success_at_ms": NOW_MS - 15_000,
            },
            "IDLE",
            "there is nothing to deliver",
        ),
        (
            {"delivered": 0.5, "codes_2xx": 0.5, "other_errors": 8},
            {**REFUSED, "last_failure_at_ms": NOW_MS - 3_000, "last_success_at_ms": NOW_MS},
            "DELIVERING",
            "0.5 messages a second",
        ),
        (
            {"delivered": 0.02, "codes_2xx": 0.02, "other_errors": 4},
            {**REFUSED, "last_success_at_ms": NOW_MS, "lag": 7, "inflight": 2},
            "DELIVERING",
            "0 wait for their time, 2 are in flight",
        ),
        # One gets through now and then, the others wait.
        (
            {"delivered": 1, "codes_2xx": 1, "codes_5xx": 99},
            {**REFUSED, "last_success_at_ms": NOW_MS, "waiting_retries": 50, "lag": 90},
            "FAILING",
            "connect: refused; the endpoint takes nothing",
        ),
        # It took much until it died: the rate of what it took has not fallen yet.
        (
            {"delivered": 40, "codes_2xx": 40, "other_errors": 20},
            {**REFUSED, "last_success_at_ms": NOW_MS - 11_000, "waiting_retries": 50, "lag": 90},
            "FAILING",
            "connect: refused; the endpoint takes nothing",
        ),
        # The pauses between retries may be long.
        (
            {},
            {**REFUSED, "last_failure_at_ms": NOW_MS - 300_000, "waiting_retries": 1, "lag": 1},
            "FAILING",
            "connect: refused; 1 wait for their time, 0 are in flight",
        ),
        # What failed last was given up, long ago.
        (
            {},
            {**REFUSED, "last_failure_at_ms": NOW_MS - 300_000, "last_success_at_ms": 1},
            "IDLE",
            "there is nothing to deliver",
        ),
        (
            {"delivered": 5, "codes_2xx": 5, "timeouts": 1},
            {"last_success_at_ms": NOW_MS},
            "DELIVERING",
            "5.0 messages a second",
        ),
        (
            {"delivered": 0.02, "codes_2xx": 0.02},
            {"last_success_at_ms": NOW_MS, "lag": 3},
            "DELIVERING",
            "less than 0.1 messages a second",
        ),
        # A filter that drops everything looks idle from outside.
        (
            {"filtered": 2},
            {"counts": {"filtered": 31}},
            "IDLE",
            (
                "its filters let nothing pass: about 120 messages a minute are filtered out now, "
                "31 since the node's start"
            ),
        ),
        (
            {},
            {"counts": {"filtered": 31}},
            "IDLE",
            "there is nothing to deliver; all 31 messages since the node's start were filtered out",
        ),
        # One trouble is told of once.
        (
            {},
            {
                "level": "ADAPTING",
                "waiting_retries": 1,
                "last_failure": "no-token: provider p does not exist",
                "last_failure_at_ms": NOW_MS,
                "held_back": "provider p does not exist; 2 messages a second",
            },
            "FAILING",
            (
                "no-token: provider p does not exist; 1 wait for their time, 0 are in flight; "
                "2 messages a second"
            ),
        ),
    ],
)
async def test_why_tells_the_state_on_a_node_in_a_sentence(
    api, nodes, rates, fields, state, reason
):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed(rates, **{"lag": 0, **fields})])
    (datacenter,) = (await why(api))["datacenters"]
    (node,) = datacenter["nodes"]
    assert (node["state"], node["reason"]) == (state, reason)
    assert datacenter["isDelivering"] == (state in ("DELIVERING", "IDLE"))


async def test_why_tells_of_datacentres_without_a_node_for_it(autojump_clock, api, nodes):
    for dc in ("dc1", "dc2", "dc3"):
        nodes.read(dc)
    nodes.tell("dc1", "a", subscriptions=[consumed()])
    await trio.sleep(GONE_AFTER_S)
    nodes.tell("dc2", "b", subscriptions=[])
    nodes.tell("dc3", "c", subscriptions=[consumed()])
    nodes.read("dc3", "the log does not answer")
    body = await why(api)
    assert [each["reason"] for each in body["datacenters"]] == [
        "no node of dc1 with the role consumers is there",
        (
            "none of the consuming nodes of dc2 that are there (b) runs it: it is about to start, "
            "or they wait for its partitions to become free"
        ),
        "status unknown since 2023-11-14T22:13:20Z: the log does not answer",
    ]
    assert [each["isDelivering"] for each in body["datacenters"]] == [False] * 3
    (last_known,) = body["datacenters"][2]["nodes"]
    assert last_known["state"] == "UNKNOWN"


async def test_why_tells_of_each_node_that_owns_a_part_of_it(autojump_clock, api, nodes):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed()])
    nodes.tell("dc1", "b", subscriptions=[consumed()])
    (datacenter,) = (await why(api))["datacenters"]
    assert [each["node"] for each in datacenter["nodes"]] == ["a", "b"]
    assert datacenter["reason"].count("a: ") == datacenter["reason"].count("b: ") == 1
    nodes.tell("dc1", "b", subscriptions=[consumed()], is_leaving=True)
    (datacenter,) = (await why(api))["datacenters"]
    assert [each["node"] for each in datacenter["nodes"]] == ["a"]


async def test_why_has_a_hint_where_http2_may_be_what_fails(api, nodes):
    nodes.read("dc1")
    failed = {"last_failure": "malformed: not HTTP/2", "last_failure_at_ms": NOW_MS}
    nodes.tell("dc1", "a", subscriptions=[consumed(**failed)])
    (datacenter,) = (await why(api))["datacenters"]
    assert "hint" not in datacenter["nodes"][0]
    await api.put(SUBSCRIPTION, {"http2Enabled": True})
    (datacenter,) = (await why(api))["datacenters"]
    assert "http2Enabled" in datacenter["nodes"][0]["hint"]


async def test_attempts_of_what_failed_last_and_how_long_pushes_take_are_told_where_known(
    api, nodes
):
    nodes.read("dc1")
    known = {"last_attempts": 3, "latency_p50_ms": 12.5, "latency_p99_ms": 400.0}
    nodes.tell("dc1", "a", subscriptions=[consumed(lag=3, **REFUSED, **known)])
    nodes.tell("dc1", "b", subscriptions=[consumed(lag=3, **REFUSED)])
    nodes.tell("dc1", "c", subscriptions=[consumed(lag=3, last_attempts=3)])
    told, unknown, well = (await why(api))["datacenters"][0]["nodes"]
    assert told["lastFailureAttempt"] == 3
    assert told["latencyMs"] == {"p50": 12.5, "p99": 400.0}
    for node in (unknown, well):
        assert not {"lastFailureAttempt", "latencyMs"} & set(node)
