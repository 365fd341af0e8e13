"""One message's life over two datacentres, as `hermes trace` and an OTLP receiver show it: real
processes and sockets.
"""

import json
import subprocess
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from hermes_chaos.wanted import subscription_body, topic_body
from tests.live.conftest import HERMES
from tests.live.endpoint import Endpoint
from tests.live.waiting import wait_until
from tests.otlp_collector import http_collector

pytestmark = pytest.mark.live

TOPIC = "shop.orders"
MESSAGE = b'{"id": 1}'
# Longer than a hedge waits, and shorter than a publish may take.
SLOW_OWN_LOG = {
    "mode": "DATACENTER",
    "datacenterPolicies": {
        "dc1": {
            "probability": 100,
            "delayFrom": 400,
            "delayTo": 400,
            "completeWithError": False,
        }
    },
}


@contextmanager
def endpoint(*statuses):
    """An endpoint that answers MESSAGE with these, in their order, and takes all else; its URL, and
    when all are given.
    """
    left, is_done = list(statuses), threading.Event()

    def take(_headers, body):
        status = left.pop(0) if body == MESSAGE else 200
        if not left:
            is_done.set()
        return status

    with Endpoint(take) as served:
        yield f"{served.url}orders", is_done


def publish(url: str, body: bytes) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("POST", f"/topics/{TOPIC}", body)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["Hermes-Message-Id"]
    finally:
        connection.close()


def is_hedged(http, management: str, message_id: str) -> bool:
    """Wait until something is known of it; True if another log was asked."""

    def told() -> list:
        return http("GET", f"{management}/tracking/{message_id}")[1]["events"]

    return "HEDGED" in {each["event"] for each in wait_until(told, "something is known of it")}


def traced(management: str, message_id: str, until: set) -> tuple[int, dict]:
    """The exit code and the answer of `hermes trace`, once it tells these events."""

    def trace() -> tuple[int, dict] | None:
        result = subprocess.run(
            [*HERMES, "trace", message_id, "-o", "json", "--management", management],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        found = json.loads(result.stdout or '{"events": []}')
        events = {(each["event"], each["datacenter"]) for each in found["events"]}
        return (result.returncode, found) if until <= events else None

    return wait_until(trace, f"{until} is told")


def told(event) -> tuple:
    return event["event"], event.get("attempt"), event.get("status")


def spans_of(collector, message_id) -> list:
    """The spans of the message's trace, once its delivery has ended."""

    def trace_ids() -> set:
        of_message = [
            each
            for each in collector.spans
            if each.attributes.get("messaging.message.id") == message_id
        ]
        is_over = sum(each.name.startswith("deliver") for each in of_message) == 1
        return {each.trace_id for each in of_message} if is_over else set()

    found = wait_until(trace_ids, "its delivery is a span")
    return [each for each in collector.spans if each.trace_id in found]


def test_a_message_hedged_retried_twice_and_delivered_is_one_life_in_one_command(start, http):
    with http_collector() as collector, endpoint(500, 503, 200) as (url, is_done):
        node = start(
            *("dev", "--publish-port", "0", "--management-port", "0", "--json"),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
            OTEL_METRICS_EXPORTER="none",
            OTEL_BSP_SCHEDULE_DELAY="200",
        )
        first, second = node.ready["dcs"]
        management = first["management"]
        assert http("POST", f"{management}/groups", {"groupName": "shop"})[0] == 201
        topic = topic_body(
            TOPIC,
            fallbackToRemoteDatacenterEnabled=True,
            trackingEnabled=True,
            chaos=SLOW_OWN_LOG,
        )
        assert http("POST", f"{management}/topics", topic)[0] == 201
        # Until the other datacentre knows the topic, its log takes nothing of it.
        while not is_hedged(http, management, publish(first["publish"], b'{"id": 0}')[1]):
            pass
        subscription = subscription_body(TOPIC, "billing", url, trackingMode="trackingAll")
        assert http("POST", f"{management}/topics/{TOPIC}/subscriptions", subscription)[0] == 201
        status, message_id = publish(first["publish"], MESSAGE)
        assert status == 201
        assert is_done.wait(30)

        code, found = traced(second["management"], message_id, {("DELIVERED", "dc2")})
        spans = spans_of(collector, message_id)
    assert code == 0, found
    events = [told(each) for each in found["events"]]
    # The other datacentre may push it before the publisher has its answer.
    events.remove(("PUBLISHED", None, None))
    assert events == [
        ("HEDGED", None, None),
        ("INFLIGHT", 1, None),
        ("FAILED", 1, 500),
        ("INFLIGHT", 2, None),
        ("FAILED", 2, 503),
        ("INFLIGHT", 3, None),
        ("DELIVERED", 3, None),
    ]
    published = next(each for each in found["events"] if each["event"] == "PUBLISHED")
    delivered = found["events"][-1]
    assert (published["partition"], published["offset"]) == (
        delivered["partition"],
        delivered["offset"],
    )
    names = {each.span_id: each.name for each in spans}
    assert sorted((each.name, names.get(each.parent_id, "")) for each in spans) == [
        ("POST", "deliver shop.orders"),
        ("POST", "deliver shop.orders"),
        ("POST", "deliver shop.orders"),
        ("deliver shop.orders", "publish shop.orders"),
        ("hedge shop.orders", "publish shop.orders"),
        ("publish shop.orders", ""),
    ]
    node_of = {each.name: each.resource["service.instance.id"] for each in spans}
    assert (node_of["publish shop.orders"], node_of["POST"]) == ("dc1-1", "dc2-1")
