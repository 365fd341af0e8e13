"""The delivering node: `hermes node` with all roles, and the administration that parts need."""

import http.client
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.ports import free_ports
from publishing.node import Node

TOPIC = "bench.orders"
_WITHIN_S = 30.0


class Place(NamedTuple):
    """The place of a log: on a Kafka, or embedded in a folder."""

    log: str
    kafka_servers: str
    folder: Path


class DeliveringNode(Node):
    """A node on a log that may already exist."""

    def __init__(self, place: Place) -> None:
        is_on_kafka = place.log == "kafka"
        place.folder.mkdir(exist_ok=True)
        super().__init__(
            place.kafka_servers,
            free_ports(2),
            None if is_on_kafka else place.folder,
        )

    def wait_serving(self, *topics: str) -> None:
        """Wait until it runs, and accepts messages for each of these topics."""
        self.wait_ready()
        for topic in topics:
            self.wait_taking(topic)

    def create(self, *topics: str) -> None:
        """Create topics of one group, and wait until they accept messages."""
        self.post("/groups", {"groupName": topics[0].partition(".")[0]})
        for topic in topics:
            self.post("/topics", topic_body(topic, ack="LEADER"))
        for topic in topics:
            self.wait_taking(topic)

    def wait_taking(self, topic: str) -> None:
        """Wait until the topic accepts messages, by publishing one without a number."""
        end_s = time.perf_counter() + _WITHIN_S
        while (status := self.publish(topic, b'{"first": true}')) != 201:
            assert time.perf_counter() < end_s, f"a publish is still answered {status}"
            time.sleep(0.02)

    def publish(self, topic: str, body: bytes, kind: str = "application/json") -> int:
        """Publish one message, or a batch of lines. Return the status, 0 for an
        incomplete batch.
        """
        is_batch = kind == "application/x-ndjson"
        path = f"/topics/{topic}/batch" if is_batch else f"/topics/{topic}"
        connection = http.client.HTTPConnection("127.0.0.1", self.publish_port, timeout=60)
        try:
            connection.request("POST", path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            lines = answer.read()
        finally:
            connection.close()
        is_whole = not is_batch or lines.count(b'"status":201') == body.count(b"\n")
        return answer.status if is_whole else 0

    def subscribe(self, topic: str, name: str, endpoint: str, **policy: int) -> None:
        """Create a subscription without an effective rate limit."""
        policy = {"rate": 1_000_000, **policy}
        self.post(
            f"/topics/{topic}/subscriptions",
            subscription_body(topic, name, endpoint, subscriptionPolicy=policy),
        )

    def set_state(self, topic: str, name: str, state: str) -> None:
        """Set the state: ACTIVE or SUSPENDED."""
        self._ask("PUT", f"/topics/{topic}/subscriptions/{name}/state", state)

    def wait_active(self, topic: str, name: str) -> None:
        """Wait until a consumer has started, so that messages published now are delivered."""
        end_s, path = time.perf_counter() + _WITHIN_S, f"/topics/{topic}/subscriptions/{name}"
        while self._ask("GET", path)["state"] != "ACTIVE":
            assert time.perf_counter() < end_s, f"{path} is not active yet"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it with SIGKILL; its figures can be read until the end of the block."""
        self.process.kill()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.management_port, timeout=15)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, content
        return json.loads(content) if content else None
