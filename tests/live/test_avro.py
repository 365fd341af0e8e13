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


def told(answer: tuple[int, Any], status: int = 400, code: str = "VALIDATION_ERROR") -> str:
    assert (answer[0], answer[1]["code"]) == (status, code), answer
    return str(answer[1]["message"])


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
    binary = avro_schema(V1).convert(BodyForm.JSON, b'{"age": 7}', {})
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


def test_the_tail_shows_json(node, make_topic) -> None:
    topic = make_topic()
    assert node.publish(topic, b'{"age": 7}')[0] == 201
    status, text = node.raw("GET", f"/topics/{topic}/messages?from=beginning")
    assert (status, json.loads(text)["body"]) == (200, '{"age":7}')


def test_cases_24_and_25_avros_own_json_names_branches_and_metadata(node, make_topic) -> None:
    topic = make_topic(V2)
    subscriber = node.subscribe(topic, "json")
    wrapped = b'{"__metadata": null, "age": 7, "name": {"string": "x"}}'
    assert node.publish(topic, wrapped, AVRO_JSON)[0] == 201
    assert subscriber.json() == {"age": 7, "name": "x"}
    told(node.publish(topic, b'{"age": 7, "name": {"string": "x"}}', AVRO_JSON))


@pytest.mark.parametrize("content_type", [None, "text/plain"])
def test_case_26_another_content_type_is_400(node, make_topic, content_type) -> None:
    topic = make_topic()
    assert topic in told(node.publish(topic, b'{"age": 7}', content_type))


def test_cases_27_to_29_what_does_not_fit_is_400_in_hermes_words(node, make_topic) -> None:
    topic = make_topic()
    assert told(node.publish(topic, b'{"age": "x"}')) == (
        "Invalid message: Failed to convert JSON to Avro: Field age is expected to be type: "
        "java.lang.Number"
    )
    answer = node.publish(topic, b'{"__metadata": null, "age": "x"}', AVRO_JSON)
    words = "Invalid message: Failed to convert to AVRO: Expected int. Got VALUE_STRING."
    assert told(answer) == words
    told(node.publish(topic, b'{"age": '))


def test_cases_30_and_31_defaults_extra_fields_and_forged_metadata(node, make_topic) -> None:
    topic = make_topic(V2)
    subscriber = node.subscribe(topic, "avro", contentType="AVRO")
    body = b'{"age": 7, "extra": 1, "__metadata": {"messageId": "forged"}}'
    assert node.publish(topic, body)[0] == 201
    document = avro_schema(V2).document(subscriber.next()[1])
    assert (document["age"], document["name"]) == (7, None)
    assert document["__metadata"]["messageId"] != "forged"
    told(node.publish(topic, b'{"name": "x"}'))


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


def test_an_unknown_version_is_400_in_hermes_words(node, make_topic) -> None:
    topic = make_topic()
    answer = node.publish(topic, b'{"age": 7}', schema_version="7")
    words = "Given schema version '7' does not exist"
    assert told(answer, 400, "SCHEMA_VERSION_DOES_NOT_EXIST") == words


def test_case_34_a_topic_without_its_schema_is_500(node, make_topic) -> None:
    topic = make_topic()
    assert node.raw("DELETE", f"/topics/{topic}/schema")[0] == 200
    wait_until(lambda: node.publish(topic, b'{"age": 7}')[0] != 201, "its schema is gone")
    told(node.publish(topic, b'{"age": 7}'), 500, "SCHEMA_COULD_NOT_BE_LOADED")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON"])
def test_case_35_content_types_as_people_write_them(node, make_topic, content_type) -> None:
    assert node.publish(make_topic(), b'{"age": 7}', content_type)[0] == 201


def test_case_36_an_unknown_symbol_and_no_fitting_branch_are_400(node, make_topic) -> None:
    state = {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}}
    topic = make_topic(text_of(state, NAME))
    assert node.publish(topic, b'{"state": "NEW"}')[0] == 201
    assert "state" in told(node.publish(topic, b'{"state": "LOST"}'))
    assert "name" in told(node.publish(topic, b'{"state": "NEW", "name": 1}'))


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


def test_case_38_a_dry_run_takes_what_would_not_fit(node, make_topic) -> None:
    topic = make_topic(V1, content_type="JSON", jsonToAvroDryRun=True)
    subscriber = node.subscribe(topic, "json")
    assert node.publish(topic, b'{"age": "x"}')[0] == 201
    assert subscriber.json() == {"age": "x"}


def test_case_39_logical_types_come_from_texts_and_numbers(node, make_topic) -> None:
    fields = [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
    ]
    topic = make_topic(text_of(*fields))
    subscriber = node.subscribe(topic, "json")
    for body in (
        {"day": "1970-01-05", "at": "1970-01-01T00:00:01Z", "price": "12.34"},
        {"day": 4, "at": 1000, "price": 12.34},
    ):
        assert node.publish(topic, json.dumps(body).encode())[0] == 201
        assert subscriber.json() == {"day": 4, "at": 1000, "price": "\x04Ò"}


def test_case_66_saving_a_schema(node, make_topic) -> None:
    topic = make_topic()
    assert node.raw("POST", f"/topics/{topic}/schema", V2) == (201, "")
    assert node.raw("GET", f"/topics/{topic}/schema") == (200, V2)
    assert node.raw("GET", "/topics/shop.nothing/schema")[0] == 204
    assert node.raw("POST", "/topics/shop.nothing/schema", V2)[0] == 404
    for wrong in ("{", text_of(AGE, metadata=False)):
        status, text = node.raw("POST", f"/topics/{topic}/schema", wrong)
        assert (status, json.loads(text)["code"]) == (400, "FORMAT_ERROR")


def test_cases_67_and_68_versions_stay_until_they_are_removed(node, make_topic) -> None:
    topic = make_topic()
    assert node.raw("POST", f"/topics/{topic}/schema", V2)[0] == 201
    assert node.raw("GET", f"/topics/{topic}/schema/versions/1") == (200, V1)
    assert node.raw("DELETE", f"/topics/{topic}/schema")[0] == 200
    assert node.raw("GET", f"/topics/{topic}/schema")[0] == 204
