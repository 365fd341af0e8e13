"""Nodes, metrics, health and the reason why not, from status records."""

import pytest
import trio

from hermes_actors.management.administration import Administration
from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.keys import activation_key
from hermes_actors.model.names import SubscriptionName
from hermes_actors.status.fold import GONE_AFTER_S, StatusFold
from hermes_actors.status.record import (
    Flow,
    Header,
    Published,
    StatusRecord,
    SubscriptionStatus,
    TopicStatus,
)

FULL = "shop.orders$billing"
TOPIC = "/topics/shop.orders"
SUBSCRIPTION = f"{TOPIC}/subscriptions/billing"


class Nodes:
    """Puts in records as readers would."""

    def __init__(self, fold, clock):
        self.fold = fold
        self._clock = clock
        self._sequence = 0

    def read(self, dc, trouble=""):
        self.fold.report(dc, trouble, 1_700_000_000_000, trio.current_time())

    def tell(self, dc, node, *, topics=(), subscriptions=(), boot="b", **header):
        self._sequence += 1
        header = Header(
            node=node,
            dc=dc,
            boot_id=boot,
            sequence=self._sequence,
            round=self._sequence,
            **{"roles": ("consumers",), "written_at_ms": 1_700_000_000_000, **header},
        )
        record = StatusRecord(header, tuple(topics), tuple(subscriptions))
        now_s = trio.current_time()
        self.fold.take(dc, record, int(1_000 * now_s), now_s)


@pytest.fixture
async def nodes(api):
    fold = StatusFold()
    security = api.administration.security
    api.administration = Administration(
        api.metadata, api.log, api.config, api.clock, security, status=fold
    )
    api.client = api.rebuilt()
    await api.with_topic()
    await api.with_subscription()
    return Nodes(fold, api.clock)


def consumed(rates=None, *, counts=None, **fields):
    flow = {name: round(1_000 * rate) for name, rate in (rates or {}).items()}
    return SubscriptionStatus(FULL, counts=Flow(**(counts or {})), rates=Flow(**flow), **fields)


async def test_all_nodes_are_listed_with_state_age_and_reasons(autojump_clock, api, nodes):
    nodes.read("dc1")
    nodes.read("dc2")
    nodes.tell("dc1", "gone")
    nodes.tell("dc2", "far")
    await trio.sleep(GONE_AFTER_S)
    nodes.tell(
        "dc1", "a", published_rate=1_500, delivered_rate=2_000, stopped_subscriptions=2, missed=3
    )
    nodes.tell("dc1", "b", reasons=("the metadata log is away",))
    nodes.tell("dc1", "c", is_leaving=True)
    nodes.read("dc2", "the log does not answer")
    body = (await api.get("/status/nodes")).json()
    assert body["datacenters"] == [
        {"datacenter": "dc1", "isKnown": True},
        {
            "datacenter": "dc2",
            "isKnown": False,
            "reason": "status unknown since 2023-11-14T22:13:20Z: the log does not answer",
        },
    ]
    assert [(each["node"], each["state"], each["reasons"]) for each in body["nodes"]] == [
        ("a", "READY", []),
        ("b", "NOT_READY", ["the metadata log is away"]),
        ("c", "LEFT", []),
        ("gone", "GONE", ["not heard of for 10 s"]),
        ("far", "UNKNOWN", [body["datacenters"][1]["reason"]]),
    ]
    first = body["nodes"][0]
    assert (first["publishedRate"], first["deliveredRate"], first["stoppedSubscriptions"]) == (
        1.5,
        2.0,
        2,
    )
    assert (first["ageMs"], first["missedRecords"], first["roles"]) == (0, 3, ["consumers"])


async def test_two_processes_of_one_name_are_told_of(api, nodes):
    nodes.read("dc1")
    for boot in ("b1", "b2", "b1"):
        nodes.tell("dc1", "a", boot=boot)
    (node,) = (await api.get("/status/nodes")).json()["nodes"]
    assert node["reasons"] == ["another process reports as a too; give each its own name"]


async def test_nodes_are_listed_also_while_the_metadata_cannot_be_read(api, nodes):
    nodes.read("dc1")
    nodes.tell("dc1", "a")

    def refuse():
        raise AssertionError("the list of nodes needs no metadata")

    api.administration.require_readable = refuse
    async with api.rebuilt() as client:
        assert len((await client.get("/status/nodes")).json()["nodes"]) == 1


async def test_a_topics_metrics_are_the_sum_over_nodes_and_datacentres(api, nodes):
    for dc in ("dc1", "dc2"):
        nodes.read(dc)
        nodes.tell(
            dc,
            "front",
            topics=[TopicStatus("shop.orders", Published(10, 400), Published(2_500, 100_000))],
        )
        nodes.tell(dc, "consumer", subscriptions=[consumed({"delivered": 2})])
    assert (await api.get(f"{TOPIC}/metrics")).json() == {
        "published": 20,
        "volume": 800,
        "rate": "5.0",
        "deliveryRate": "4.0",
        "throughput": "200.0",
        "subscriptions": 1,
    }


async def test_an_unknown_topic_has_metrics_of_zero_and_an_unknown_subscription_none(api, nodes):
    nodes.read("dc1")
    answer = await api.get("/topics/shop.nothing/metrics")
    assert (answer.status_code, answer.json()["published"], answer.json()["rate"]) == (
        200,
        0,
        "0.0",
    )
    for path in ("metrics", "metrics/persistent", "health", "why"):
        answer = await api.get(f"{TOPIC}/subscriptions/nothing/{path}")
        assert api.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")


async def test_a_subscriptions_metrics_are_the_sum_over_nodes_and_datacentres(api, nodes):
    flow = dict(zip(Flow.__struct_fields__, range(1, 15), strict=True))
    for dc in ("dc1", "dc2"):
        nodes.read(dc)
        nodes.tell(dc, "a", subscriptions=[consumed(flow, counts=flow, lag=21)])
    assert (await api.get(f"{SUBSCRIPTION}/metrics")).json() == {
        "delivered": 2,
        "discarded": 6,
        "volume": 4,
        "timeouts": "12.0",
        "otherErrors": "14.0",
        "codes2xx": "16.0",
        "codes4xx": "20.0",
        "codes5xx": "22.0",
        "retries": "10.0",
        "lag": "42",
        "rate": "2.0",
        "throughput": "4.0",
        "batchRate": "24.0",
    }
    assert (await api.get(f"{SUBSCRIPTION}/metrics/persistent")).json() == {
        "delivered": 2,
        "discarded": 6,
        "volume": 4,
    }


async def test_rates_of_nodes_that_are_gone_do_not_count_their_counters_do(
    autojump_clock, api, nodes
):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed({"delivered": 2}, counts={"delivered": 5})])
    await trio.sleep(GONE_AFTER_S)
    metrics = (await api.get(f"{SUBSCRIPTION}/metrics")).json()
    assert (metrics["delivered"], metrics["rate"], metrics["lag"]) == (5, "0.0", "-1")


async def test_without_any_status_rates_are_unavailable_and_health_has_no_data(api):
    await api.with_topic()
    await api.with_subscription()
    topic = (await api.get(f"{TOPIC}/metrics")).json()
    assert topic == {
        "published": 0,
        "volume": 0,
        "rate": "unavailable",
        "deliveryRate": "unavailable",
        "throughput": "unavailable",
        "subscriptions": 1,
    }
    metrics = (await api.get(f"{SUBSCRIPTION}/metrics")).json()
    assert (metrics["delivered"], metrics["rate"], metrics["lag"]) == (0, "unavailable", "-1")
    assert (await api.get(f"{SUBSCRIPTION}/health")).json() == {
        "status": "NO_DATA",
        "problems": [],
    }
    assert (await api.get("/status/nodes")).json() == {
        "datacenters": [],
        "stoppedSubscriptions": 0,
        "failingSubscriptions": 0,
        "nodes": [],
        "notices": [],
    }
    assert (await api.get(f"{SUBSCRIPTION}/why")).json()["datacenters"] == []


async def test_rates_are_unavailable_while_no_datacentre_can_be_read_but_not_while_one_can(
    api, nodes
):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed({"delivered": 2})])
    nodes.read("dc2", "the log does not answer")
    assert (await api.get(f"{SUBSCRIPTION}/metrics")).json()["rate"] == "2.0"
    nodes.read("dc1", "the log does not answer")
    assert (await api.get(f"{SUBSCRIPTION}/metrics")).json()["rate"] == "unavailable"


@pytest.mark.parametrize(
    ("rates", "fields", "codes"),
    [
        ({"codes_2xx": 100, "delivered": 100}, {}, []),
        ({"codes_2xx": 89, "timeouts": 11}, {}, ["TIMING_OUT"]),
        ({"codes_2xx": 90, "timeouts": 10}, {}, []),
        ({"codes_2xx": 89, "codes_5xx": 11}, {}, ["MALFUNCTIONING"]),
        ({"codes_2xx": 49, "other_errors": 51}, {}, ["UNREACHABLE"]),
        # Nothing is delivered at all: that is not too little to judge.
        ({"other_errors": 10}, {}, ["UNREACHABLE"]),
        ({"codes_4xx": 50, "codes_2xx": 50}, {}, []),
        ({"codes_5xx": 1}, {}, []),
        ({"codes_2xx": 1}, {"lag": 6_000}, []),
        ({"codes_2xx": 1}, {"lag": 6_001}, ["LAGGING"]),
        ({}, {"lag": -1}, []),
        (
            {"timeouts": 60, "codes_5xx": 60, "other_errors": 200},
            {"lag": 10**6},
            ["LAGGING", "UNREACHABLE", "TIMING_OUT", "MALFUNCTIONING"],
        ),
    ],
)
async def test_health_names_each_problem_by_hermes_limits(api, nodes, rates, fields, codes):
    nodes.read("dc1")
    nodes.tell(
        "dc1",
        "a",
        topics=[TopicStatus("shop.orders", rates=Published(10_000))],
        subscriptions=[consumed(rates, **{"lag": 0, **fields})],
    )
    health = (await api.get(f"{SUBSCRIPTION}/health")).json()
    assert health["status"] == ("UNHEALTHY" if codes else "HEALTHY")
    assert [problem["code"] for problem in health["problems"]] == codes
    assert all(problem["description"] for problem in health["problems"])


async def test_client_errors_are_a_problem_only_where_they_are_retried(api, nodes):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed({"codes_4xx": 50, "codes_2xx": 50})])
    assert (await api.get(f"{SUBSCRIPTION}/health")).json()["status"] == "HEALTHY"
    await api.put(SUBSCRIPTION, {"subscriptionPolicy": {"retryClientErrors": True}})
    (problem,) = (await api.get(f"{SUBSCRIPTION}/health")).json()["problems"]
    assert problem["code"] == "RECEIVING_MALFORMED_MESSAGES"
    assert problem["description"] == "50.0 of 100.0 attempts a second are answered with 4xx"


async def test_a_suspended_subscription_is_healthy(api, nodes):
    await api.put(f"{SUBSCRIPTION}/state", "SUSPENDED")
    assert (await api.get(f"{SUBSCRIPTION}/health")).json() == {
        "status": "HEALTHY",
        "problems": [],
    }


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


NOW_MS = 1_700_000_000_000
REFUSED = {"last_failure": "connect: refused", "last_failure_at_ms": NOW_MS}


@pytest.mark.parametrize(
    ("rates", "fields", "state", "reason"),
    [
        ({}, {"lag": 0}, "IDLE", "there is nothing to deliver"),
        ({}, {"lag": 9}, "IDLE", "nothing is under way"),
        (
            {"codes_5xx": 5},
            {"last_failure": "HTTP 503", "last_failure_at_ms": NOW_MS},
            "FAILING",
            "the endpoint takes nothing: HTTP 503",
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
            "3 wait for their time, 0 are in flight; HTTP 503",
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
            "the endpoint takes nothing: connect: refused",
        ),
        # It took much until it died: the rate of what it took has not fallen yet.
        (
            {"delivered": 40, "codes_2xx": 40, "other_errors": 20},
            {**REFUSED, "last_success_at_ms": NOW_MS - 11_000, "waiting_retries": 50, "lag": 90},
            "FAILING",
            "the endpoint takes nothing: connect: refused",
        ),
        # The pauses between retries may be long.
        (
            {},
            {**REFUSED, "last_failure_at_ms": NOW_MS - 300_000, "waiting_retries": 1, "lag": 1},
            "FAILING",
            "1 wait for their time, 0 are in flight; connect: refused",
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
                "1 wait for their time, 0 are in flight; no-token: provider p does not exist; "
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
