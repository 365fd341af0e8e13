"""Metrics of topics and subscriptions, from the status records of all nodes."""

import trio

from hermes_actors.status.fold import GONE_AFTER_S
from hermes_actors.status.record import Flow, Published, TopicStatus
from tests.management.statuses_scene import SUBSCRIPTION, TOPIC, consumed

BOTH = [{"datacenter": "dc1", "isKnown": True}, {"datacenter": "dc2", "isKnown": True}]


async def test_a_topics_metrics_are_the_sum_over_nodes_and_datacentres(api, nodes):
    for dc, latency in (("dc1", (1.5, 9.0)), ("dc2", (2.0, 4.0))):
        nodes.read(dc)
        nodes.tell(
            dc,
            "front",
            topics=[
                TopicStatus("shop.orders", Published(10, 400), Published(2_500, 100_000), latency)
            ],
        )
        nodes.tell(dc, "consumer", subscriptions=[consumed({"delivered": 2})])
    assert (await api.get(f"{TOPIC}/metrics")).json() == {
        "published": 20,
        "volume": 800,
        "rate": "5.0",
        "deliveryRate": "4.0",
        "throughput": "200.0",
        "subscriptions": 1,
        # That of the slowest node: quantiles have no sum.
        "latencyMs": {"p50": 2.0, "p99": 9.0},
        "datacenters": BOTH,
    }


async def test_an_unknown_topic_has_no_rates_and_an_unknown_subscription_none(api, nodes):
    nodes.read("dc1")
    answer = await api.get("/topics/shop.nothing/metrics")
    assert (answer.status_code, answer.json()["published"], answer.json()["rate"]) == (
        200,
        0,
        "unavailable",
    )
    for path in ("metrics", "metrics/persistent", "health", "why"):
        answer = await api.get(f"{TOPIC}/subscriptions/nothing/{path}")
        assert api.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")


async def test_a_subscriptions_metrics_are_the_sum_over_nodes_and_datacentres(api, nodes):
    flow = dict(zip(Flow.__struct_fields__, range(1, 15), strict=True))
    for dc in ("dc1", "dc2"):
        nodes.read(dc)
        nodes.tell(
            dc,
            "a",
            subscriptions=[consumed(flow, counts=flow, lag=21, latency_ms=(3.0, 8.5))],
        )
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
        "latencyMs": {"p50": 3.0, "p99": 8.5},
        "datacenters": BOTH,
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
        "datacenters": [],
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


async def test_metrics_and_health_say_of_which_datacentres_nothing_is_known(api, nodes):
    nodes.read("dc1")
    nodes.read("dc2", "the log does not answer")
    nodes.tell("dc1", "a", subscriptions=[consumed({"delivered": 2}, lag=0)])
    for path in (TOPIC, SUBSCRIPTION):
        metrics = (await api.get(f"{path}/metrics")).json()
        one, two = metrics["datacenters"]
        assert (one, two["isKnown"]) == ({"datacenter": "dc1", "isKnown": True}, False)
        assert two["reason"].endswith("the log does not answer")
    health = (await api.get(f"{SUBSCRIPTION}/health")).json()
    assert health == {"status": "NO_DATA", "problems": []}
    nodes.tell("dc1", "a", subscriptions=[consumed({"timeouts": 50, "codes_2xx": 50}, lag=0)])
    health = (await api.get(f"{SUBSCRIPTION}/health")).json()
    assert [each["code"] for each in health["problems"]] == ["TIMING_OUT"]
