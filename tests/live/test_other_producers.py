"""A node beside another producer on one Kafka: its records keep one id everywhere, and tombstones
are what they were.
"""

import json
import threading
from collections import defaultdict
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import pytest

from hermes_chaos.wanted import subscription_body, topic_body
from tests.live.endpoint import Endpoint
from tests.live.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.kafka]

TOPIC = "others.orders"
PATH = f"/topics/{TOPIC}/subscriptions"
AT_MS = 1_764_000_000_123
ENVELOPES = {
    "deliveryType": "BATCH",
    "subscriptionPolicy": {"batchSize": 1, "batchTime": 50, "body": "ENVELOPES"},
}


class Subscribers:
    """Endpoints by name, and the pushes that each received: id, time, body and headers."""

    def __init__(self) -> None:
        self.taken: dict[str, list[tuple[str, Any, bytes, dict[str, str]]]] = defaultdict(list)
        self._lock = threading.Lock()

    def endpoint(self, name: str, status: int = 200) -> Endpoint:
        def take(headers: dict[str, str], body: bytes) -> int:
            one = headers.get("hermes-message-id"), headers.get("ce-time"), body, headers
            if name == "batch":
                (element,) = json.loads(body)
                known = element["metadata"]
                body = json.dumps(element["message"]).encode()
                one = known["id"], known["timestamp"], body, known["externalMetadata"]
            with self._lock:
                self.taken[name].append(one)
            return status

        return Endpoint(take)

    def count(self) -> dict[str, int]:
        with self._lock:
            return {name: len(each) for name, each in self.taken.items()}


def read_lines(url: str) -> list[dict[str, Any]]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=15)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return [json.loads(line) for line in connection.getresponse().read().splitlines() if line]
    finally:
        connection.close()


def test_a_record_of_another_producer_is_one_message_for_everybody(
    start, http, ports, data, kafka_cluster
):
    servers = ",".join(kafka_cluster.bootstrap_servers)
    own = ports(3)
    variables = {
        "HERMES_FRONTEND_PORT": str(own[0]),
        "HERMES_MANAGEMENT_PORT": str(own[1]),
        "HERMES_STATUS_PORT": str(own[2]),
        "HERMES_LOG_DIRECTORY": str(data),
        "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": servers,
        "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
    }
    node = start("node", "--json", **variables)
    management = node.ready["management"]
    assert http("POST", f"{management}/groups", {"groupName": "others"})[0] == 201
    assert http("POST", f"{management}/topics", topic_body(TOPIC))[0] == 201
    subscribers = Subscribers()
    tracked = {"trackingMode": "trackingAll"}
    with (
        subscribers.endpoint("plain") as plain,
        subscribers.endpoint("event") as event,
        subscribers.endpoint("batch") as batch,
        subscribers.endpoint("skip") as skip,
        subscribers.endpoint("refuse", 400) as refuse,
    ):
        for name, url, fields in (
            ("plain", plain.url, {}),
            ("event", event.url, {"cloudEventsEnabled": True}),
            ("batch", batch.url, ENVELOPES),
            ("skip", skip.url, {"tombstones": "skip"}),
            ("refuse", refuse.url, tracked),
        ):
            body = subscription_body(TOPIC, name, url, **fields)
            assert http("POST", f"{management}{PATH}", body)[0] == 201
        for name in ("plain", "event", "batch", "skip", "refuse"):
            wait_until(
                lambda name=name: http("GET", f"{management}{PATH}/{name}/state")[1] == "ACTIVE",
                "an active subscription",
            )
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        at = {"partition": 0, "timestamp": AT_MS}
        binary = bytes.fromhex("a60aef36c55446a2a878424349a481ef")
        producer.produce(TOPIC, b'{"a":1}', **at)
        producer.produce(TOPIC, b'{"a":2}', headers=[("id", binary)], **at)
        producer.produce(TOPIC, b'{"a":3}', headers=[("only-for", b"\xff"), ("h-A", b"\xff")], **at)
        producer.produce(TOPIC, None, key=b"k1", **at)
        assert producer.flush(30) == 0
        all_of_it = {"plain": 4, "event": 4, "batch": 4, "skip": 3, "refuse": 4}
        wait_until(lambda: subscribers.count() == all_of_it, "each record at each subscriber")
        # Another process reads all of it again.
        assert node.terminate()[0] == 0
        node = start("node", "--json", **variables)
        management = node.ready["management"]
        anew = {"retransmissionDate": "2020-01-01T00:00:00Z"}
        asked = f"{management}{PATH}/plain/retransmission"
        wait_until(lambda: http("PUT", asked, anew)[0] == 200, "a retransmission")
        wait_until(lambda: subscribers.count()["plain"] == 8, "each record once more")

        places = [f"dc1:{TOPIC}:0:{offset}" for offset in range(4)]
        bodies = [b'{"a":1}', b'{"a":2}', b'{"a":3}', b""]
        for name in ("plain", "event", "refuse"):
            told = {(each[0], each[2]) for each in subscribers.taken[name]}
            assert told == set(zip(places, bodies, strict=True)), name
        assert {each[1] for each in subscribers.taken["event"]} == {"2025-11-24T16:00:00.123Z"}
        told = {each[:3] for each in subscribers.taken["batch"]}
        in_batches = [*(json.dumps({"a": n}).encode() for n in (1, 2, 3)), b"null"]
        assert told == {(i, AT_MS, b) for i, b in zip(places, in_batches, strict=True)}
        assert {each[0] for each in subscribers.taken["skip"]} == set(places[:3])
        for name in ("plain", "event", "refuse", "batch"):
            for message_id, _, _, told_with in subscribers.taken[name]:
                if message_id == places[3]:
                    headers = {key.lower(): value for key, value in told_with.items()}
                    assert (headers["hermes-tombstone"], headers["partition-key"]) == ("true", "k1")
                    assert "content-type" not in headers

        # The same id wherever somebody looks.
        lines = read_lines(f"{management}/topics/{TOPIC}/messages?from=beginning")
        assert [(line["id"], line["timestamp"]) for line in lines] == [(i, AT_MS) for i in places]
        assert lines[3]["body"] is None
        letters = http("GET", f"{management}{PATH}/refuse/dead-letters")[1]["deadLetters"]
        assert {(each["messageId"], each.get("isTombstone", False)) for each in letters} == {
            (place, place == places[3]) for place in places
        }
        shown = http("GET", f"{management}{PATH}/refuse/dead-letters/{letters[0]['id']}")[1]
        assert shown["messageId"] in places
        trace = f"{management}{PATH}/refuse/events/{places[1]}/trace"
        wait_until(lambda: http("GET", trace)[1], "its events")
        assert {each["messageId"] for each in http("GET", trace)[1]} == {places[1]}
