"""Why a subscription is delivered or not: for each node a state, reasons and details, as data."""

import trio

from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.keys import activation_key
from hermes_actors.model.names import SubscriptionName
from hermes_actors.status.fold import GONE_AFTER_S
from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import LastUndelivered
from tests.management.statuses_scene import FULL, NOW_MS, SUBSCRIPTION, consumed

REFUSED = {"last_failure": "connect: refused", "last_failure_at_ms": NOW_MS}
TIMED_OUT = {"last_failure": "timeout", "last_failure_kind": "timeout", "level": "SLOW"}


async def why(api):
    body = (await api.get(f"{SUBSCRIPTION}/why")).json()
    assert (body["topic"], body["subscription"]) == ("shop.orders", "billing")
    return body


async def nodes_of(api):
    (datacenter,) = (await why(api))["datacenters"]
    return datacenter["nodes"]


def codes(reasons):
    return [each["code"] for each in reasons]


async def test_why_says_for_each_datacentre_that_it_delivers_or_why_not(api, nodes):
    nodes.read("dc1")
    nodes.read("dc2")
    two = {"delivered": 2, "codes_2xx": 2}
    nodes.tell("dc1", "a", subscriptions=[consumed(two, lag=3, last_success_at_ms=NOW_MS)])
    away = because(Code.LOG_AWAY, detail="no leader")
    nodes.tell("dc2", "b", subscriptions=[consumed(reasons=(away,))])
    body = await why(api)
    assert body["state"] == "PENDING"
    dc1, dc2 = body["datacenters"]
    assert (dc1["isDelivering"], dc2["isDelivering"]) == (True, False)
    (well,), (ill,) = dc1["nodes"], dc2["nodes"]
    assert (well["state"], well["rate"], well["lag"]) == ("DELIVERING", 2.0, 3)
    assert ("lastFailure" in well, well["lastSuccessAt"]) == (False, NOW_MS / 1_000)
    assert ill["reasons"] == [
        {
            "code": "LOG_AWAY",
            "params": {"detail": "no leader"},
            "text": "the log cannot be read: no leader",
        }
    ]
    assert ill["reason"] == "the log cannot be read: no leader"
    name = SubscriptionName.parse(FULL)
    await api.metadata.change(put(activation_key(name, "dc1"), activation_body(0)))
    assert (await why(api))["state"] == "ACTIVE"


async def test_datacentres_without_a_node_for_it_say_why(autojump_clock, api, nodes):
    for dc in ("dc1", "dc2", "dc3"):
        nodes.read(dc)
    nodes.tell("dc1", "a", subscriptions=[consumed()])
    await trio.sleep(GONE_AFTER_S)
    nodes.tell("dc2", "b", subscriptions=[])
    nodes.tell("dc3", "c", subscriptions=[consumed()])
    nodes.read("dc3", "the log does not answer")
    found = (await why(api))["datacenters"]
    assert [codes(each["reasons"]) for each in found] == [
        ["NO_CONSUMERS"],
        ["NOBODY_RUNS"],
        ["DC_UNKNOWN"],
    ]
    assert found[1]["reasons"][0]["params"] == {"dc": "dc2", "nodes": "b"}
    assert [each["isDelivering"] for each in found] == [False] * 3
    (last_known,) = found[2]["nodes"]
    assert (last_known["state"], codes(last_known["reasons"])) == ("UNKNOWN", ["LAST_KNOWN"])


async def test_a_node_that_is_silent_is_said_to_be_so_before_what_it_told(
    autojump_clock, api, nodes
):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed(lag=0)])
    await trio.sleep(5)
    (node,) = await nodes_of(api)
    assert node["heardAgoMs"] == 5_000
    assert codes(node["reasons"]) == ["SILENT", "IDLE"]
    await trio.sleep(GONE_AFTER_S - 5)
    assert await nodes_of(api) == []


async def test_details_tell_of_rate_filters_pushes_and_failures(api, nodes):
    nodes.read("dc1")
    await api.put(SUBSCRIPTION, {"subscriptionPolicy": {"rate": 400}})
    nodes.tell("dc1", "a", subscriptions=[consumed(lag=0)])
    busy = consumed(
        {"delivered": 2, "codes_2xx": 2},
        lag=3,
        level="FULL",
        rate_now=200.0,
        inflight=2,
        oldest_age_ms=9_000,
        latency_ms=(12.5, 400.0),
        last_attempts=3,
        counts={"filtered": 7},
        **REFUSED,
    )
    nodes.tell("dc1", "b", subscriptions=[busy])
    quiet, node = await nodes_of(api)
    assert quiet["details"] == []
    assert not {"latencyMs", "lastFailureAttempt", "rateMax"} & set(quiet)
    assert codes(node["details"]) == [
        "SHARE",
        "UNSETTLED",
        "FILTERED",
        "LATENCY",
        "LAST_FAILURE",
        "NO_SUCCESS",
    ]
    assert (node["rateNow"], node["rateMax"]) == (200.0, 400)
    assert (node["lastFailureAttempt"], node["latencyMs"]) == (3, {"p50": 12.5, "p99": 400.0})


async def test_a_failing_node_has_advice_where_there_is_some(api, nodes):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed(**TIMED_OUT)])
    advice = (await nodes_of(api))[0]["details"][-1]
    assert (advice["code"], advice["params"]) == ("RAISE_TIMEOUT", {"timeout": 1_000})
    kind = {"last_failure": "malformed: not HTTP/2", "last_failure_kind": "malformed"}
    nodes.tell("dc1", "a", subscriptions=[consumed(level="SLOW", **kind)])
    assert "NO_HTTP2" not in codes((await nodes_of(api))[0]["details"])
    await api.put(SUBSCRIPTION, {"http2Enabled": True})
    assert codes((await nodes_of(api))[0]["details"])[-1] == "NO_HTTP2"
    # One that delivers needs none.
    nodes.tell("dc1", "a", subscriptions=[consumed({"delivered": 2, "codes_2xx": 2}, **kind)])
    assert "NO_HTTP2" not in codes((await nodes_of(api))[0]["details"])


async def test_why_and_lag_tell_of_open_dead_letters_and_the_newest_one(api, nodes):
    nodes.read("dc1")
    unknown = {"open": 0, "isComplete": False}
    last = LastUndelivered(NOW_MS, 0, 7, "expired: HTTP 503")
    told = consumed(open_letters=2, last_undelivered=last)
    known = {
        "open": 2,
        "isComplete": True,
        "newest": {"discardedAt": "2023-11-14T22:13:20.000Z", "reason": "expired: HTTP 503"},
    }
    for subscription, letters in ((consumed(), unknown), (told, known)):
        nodes.tell("dc1", "a", subscriptions=[subscription])
        for path in ("why", "lag"):
            found = (await api.get(f"{SUBSCRIPTION}/{path}")).json()
            assert found["deadLetters"] == letters, path
