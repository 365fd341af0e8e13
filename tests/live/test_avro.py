"""AVRO topics of a real node, from management over publishing to subscribers, all over sockets.

The numbers are those of the black-box cases that a Hermes user would try.
"""

import http.client
import json
import queue
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_actors.schema.avro import BodyForm, avro_schema
from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.ports import free_ports
from tests.live.conftest import Process, ask
from tests.live.endpoint import Endpoint
from tests.live.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.live

JSON, AVRO_JSON, BINARY = (form.value for form in BodyForm)
METADATA = {
    "name": "__metadata",
    "type": ["null", {"type": "map", "values": "string"}],
    "default": None,
}
AGE = {"name": "age", "type": "int"}
NAME = {"name": "name", "type": ["null", "string"], "default": None}


def text_of(*fields: object, metadata: bool = True) -> str:
    first = [METADATA] if metadata else []
    return json.dumps({"type": "record", "name": "User", "fields": [*first, *fields]})


V1, V2 = text_of(AGE), text_of(AGE, NAME)

Push = tuple[dict[str, str], bytes]


class Subscriber:
    """An endpoint on loopback that keeps what is pushed to it."""

    def __init__(self) -> None:
        self.pushes: queue.SimpleQueue[Push] = queue.SimpleQueue()
        self.endpoint = Endpoint(self._take)
        self.url = self.endpoint.url

    def _take(self, headers: dict[str, str], body: bytes) -> int:
        self.pushes.put((headers, body))
        return 200

    def next(self) -> Push:
        return self.pushes.get(timeout=WAIT_S)

    def json(self) -> Any:
        return json.loads(self.next()[1])


class Broker:
    """A node with its two addresses."""

    def __init__(self, ports: list[int]) -> None:
        self.frontend, self.management = (f"http://127.0.0.1:{port}" for port in ports)

    def publish(
        self, topic: str, body: bytes, content_type: str | None = JSON, **headers: str
    ) -> tuple[int, Any]:
        """Status, and the error as JSON."""
        connection = http.client.HTTPConnection(urlsplit(self.frontend).netloc, timeout=15)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if content_type is not None:
            sent["Content-Type"] = content_type
        try:
            connection.request("POST", f"/topics/{topic}", body, sent)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def manage(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return ask(method, self.management + path, body)

    def raw(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlsplit(self.management).netloc, timeout=15)
        try:
            connection.request(method, path, body, {"Content-Type": JSON} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def subscribe(self, topic: str, name: str, **fields: Any) -> Subscriber:
        subscriber = Subscriber()
        body = subscription_body(topic, name, subscriber.url, **fields)
        made = self.manage("POST", f"/topics/{topic}/subscriptions", body)
        assert made[0] == 201, made
        return subscriber


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("avro")
    ports = free_ports(2)
    process = Process(
        ["node", "--json"],
        {
            "HERMES_FRONTEND_PORT": str(ports[0]),
            "HERMES_MANAGEMENT_PORT": str(ports[1]),
            "HERMES_LOG_DIRECTORY": str(data / "log"),
            # A busy machine is late; that is no reason for a 202.
            "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "5000",
            "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "5000",
            "HERMES_SPOOL_DIRECTORY": str(data / "spools"),
            "HERMES_CONSUMERS_ENDPOINTS_ALLOW_LOOPBACK": "true",
            "HERMES_MANAGEMENT_ALLOW_SCHEMA_REMOVAL": "true",
        },
    )
    try:
        process.wait_ready()
        broker = Broker(ports)
        assert broker.manage("POST", "/groups", {"groupName": "shop"})[0] == 201
        yield broker
    finally:
        process.end()


MakeTopic = Callable[..., str]


@pytest.fixture
def make_topic(node: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    def make(schema: str | None = V1, *, content_type: str = "AVRO", **fields: Any) -> str:
        name = f"shop.{request.node.name.partition('[')[0][-60:]}{abs(hash(request.node.name))}"
        body = topic_body(name, contentType=content_type, **fields)
        made = node.manage("POST", "/topics", body | ({"schema": schema} if schema else {}))
        assert made[0] == 201, made
        return name

    return make


def test_case_22_a_json_subscriber_gets_the_object_without_metadata(node, make_topic) -> None:
    topic = make_topic()
    subscriber = node.subscribe(topic, "json")
    assert node.publish(topic, b'{"age": 7}')[0] == 201
    headers, body = subscriber.next()
    assert json.loads(body) == {"age": 7}
    assert headers["content-type"] == "application/json"
    assert "schema-version" not in headers


def test_case_23_an_avro_subscriber_gets_avro(node, make_topic) -> None:
    topic = make_topic()
    subscriber = node.subscribe(topic, "avro", contentType="AVRO")
    binary = avro_schema(V1).take(b'{"age": 7}', BodyForm.JSON, {})
    assert node.publish(topic, binary, BINARY)[0] == 201
    headers, body = subscriber.next()
    assert headers["content-type"] == "avro/binary"
    assert headers["schema-version"] == "1"
    document = avro_schema(V1).document(body)
    assert document["age"] == 7
    assert document["__metadata"]["messageId"] == headers["hermes-message-id"]


def test_a_large_message_is_converted_and_read_beside_the_loop(node, make_topic) -> None:
    topic = make_topic(V2)
    wanted = {"type": "avropath", "path": "__metadata.messageId", "matcher": ".+"}
    subscriber = node.subscribe(topic, "json", filters=[wanted])
    body = {"age": 7, "name": "x" * 45_000}
    assert node.publish(topic, json.dumps(body).encode())[0] == 201
    assert subscriber.json() == body


def test_a_subscription_that_changes_what_it_takes_gets_that_from_then_on(node, make_topic) -> None:
    topic = make_topic()
    subscriber = node.subscribe(topic, "one")
    assert node.publish(topic, b'{"age": 1}')[0] == 201
    assert subscriber.json() == {"age": 1}
    path = f"/topics/{topic}/subscriptions/one"
    assert node.manage("PUT", path, {"contentType": "AVRO"})[0] == 200
    deadline_s = 60
    for age in range(2, deadline_s):
        assert node.publish(topic, b'{"age": %d}' % age)[0] == 201
        headers, sent = subscriber.next()
        if headers["content-type"] == "avro/binary":
            break
        assert json.loads(sent) == {"age": age}
    assert avro_schema(V1).document(sent)["age"] == age
    assert (headers["schema-version"], sent[:1] == b"{") == ("1", False)


def test_cases_32_and_33_a_version_is_asked_for_by_a_header(node, make_topic) -> None:
    topic = make_topic()
    subscriber = node.subscribe(topic, "avro", contentType="AVRO")
    assert node.raw("POST", f"/topics/{topic}/schema", V2)[0] == 201
    second = b'{"age": 1, "name": "x"}'
    wait_until(lambda: node.publish(topic, second, Schema_Version="2")[0] == 201, "it is known")
    assert node.publish(topic, b'{"age": 2}', schema_version="1")[0] == 201
    assert node.publish(topic, b'{"age": 3}', schema_version="abc")[0] == 201
    pushed = sorted(
        (document["age"], headers["schema-version"])
        for headers, body in (subscriber.next() for _ in range(3))
        if (document := avro_schema(V1 if headers["schema-version"] == "1" else V2).document(body))
    )
    assert pushed == [(1, "2"), (2, "1"), (3, "2")]


def test_case_37_messages_from_before_and_after_a_migration_arrive(node, make_topic) -> None:
    topic = make_topic(None, content_type="JSON")
    subscriber = node.subscribe(topic, "json")
    for age in (1, 2):
        assert node.publish(topic, b'{"age": %d}' % age)[0] == 201
    patch = {"contentType": "AVRO", "migratedFromJsonType": True, "schema": V1}
    changed = node.manage("PUT", f"/topics/{topic}", patch)
    assert changed[0] == 200, changed
    # From then on a body needs its Content-Type.
    wait_until(lambda: node.publish(topic, b'{"age": 3}', None)[0] == 400, "it is migrated")
    assert node.publish(topic, b'{"age": 4}')[0] == 201
    ages: set[int] = set()
    while not {1, 2, 4} <= ages:
        ages.add(subscriber.json()["age"])
