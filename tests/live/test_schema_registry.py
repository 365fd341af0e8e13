"""The embedded schema registry over real sockets: Confluent's own clients, and Hermes' paths."""

import http.client
import json
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from hermes_chaos.wanted import topic_body
from tests.live.waiting import wait_until

pytestmark = pytest.mark.live

METADATA = {
    "name": "__metadata",
    "type": ["null", {"type": "map", "values": "string"}],
    "default": None,
}


def record(*fields: dict[str, Any]) -> str:
    """The text of a record with these fields."""
    shown = {"type": "record", "name": "Visit", "namespace": "com.example"}
    return json.dumps({**shown, "fields": [METADATA, *fields]})


AGE = {"name": "age", "type": "int"}
FIRST = record(AGE)
WIDER = record(AGE, {"name": "note", "type": "string", "default": "none"})
DEMANDING = record(AGE, {"name": "note", "type": "string"})


def request(method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=15)
    try:
        connection.request(method, parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.fixture
def start_node(start, http, data, ports):
    """`start_node(**variables)`: a node with group shop and the AVRO topic shop.visits."""

    def start_it(**variables: str) -> Any:
        own = ports(3)
        node = start(
            "node",
            "--json",
            HERMES_FRONTEND_PORT=str(own[0]),
            HERMES_MANAGEMENT_PORT=str(own[1]),
            HERMES_STATUS_PORT=str(own[2]),
            HERMES_LOG_DIRECTORY=str(data),
            HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS="0",
            **variables,
        )
        management = node.ready["management"]
        assert http("POST", f"{management}/groups", {"groupName": "shop"})[0] == 201
        body = topic_body("shop.visits", contentType="AVRO", schema=FIRST)
        assert http("POST", f"{management}/topics", body)[0] == 201
        return node

    return start_it


@pytest.fixture
def node(start_node):
    return start_node(
        HERMES_MANAGEMENT_ALLOW_SCHEMA_REMOVAL="true", HERMES_MANAGEMENT_ALLOW_REMOVAL="true"
    )


@pytest.fixture
def client_of():
    """`client_of(node)`: Confluent's client of its registry, closed with the test."""
    with ExitStack() as clients:

        def open_client(node: Any) -> SchemaRegistryClient:
            url = f"{node.ready['management']}/schema-registry"
            return clients.enter_context(SchemaRegistryClient({"url": url}))

        yield open_client


def test_confluents_client_registers_finds_compares_and_deletes(node, client_of):
    registry = client_of(node)
    assert registry.get_subjects() == ["shop.visits"]
    first = registry.lookup_schema("shop.visits", Schema(FIRST, "AVRO"))
    assert (first.version, first.subject) == (1, "shop.visits")
    assert registry.get_schema(first.schema_id).schema_str == FIRST
    assert registry.test_compatibility("shop.visits", Schema(WIDER, "AVRO"))
    assert not registry.test_compatibility("shop.visits", Schema(DEMANDING, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("shop.visits", Schema(DEMANDING, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    second = registry.register_schema("shop.visits", Schema(WIDER, "AVRO"))
    assert registry.get_versions("shop.visits") == [1, 2]
    latest = registry.get_latest_version("shop.visits")
    assert (latest.version, latest.schema_id, latest.schema.schema_type) == (2, second, "AVRO")
    assert registry.get_version("shop.visits", 1).schema.schema_str == FIRST
    named = [(each.subject, each.version) for each in registry.get_schema_versions(second)]
    assert named == [("shop.visits", 2)]
    assert registry.get_subjects_by_schema_id(second) == ["shop.visits"]
    assert sorted(registry.get_schema_types()) == ["AVRO", "JSON"]
    assert registry.delete_version("shop.visits", 2) == 2
    assert registry.get_versions("shop.visits") == [1]


def test_confluents_client_sets_levels_and_uses_subjects_that_are_no_topics(node, client_of):
    registry = client_of(node)
    assert registry.get_compatibility() == "BACKWARD"
    assert registry.get_global_mode() == registry.get_mode("plain-key") == "READWRITE"
    registry.set_compatibility("plain-key", "FULL")
    assert registry.get_compatibility("plain-key") == "FULL"
    assert registry.get_config("plain-key").compatibility_level == "FULL"
    registry.register_schema("plain-key", Schema('"string"', "AVRO"))
    assert not registry.test_compatibility("plain-key", Schema('"int"', "AVRO"))
    registry.delete_config("plain-key")
    assert registry.delete_subject("plain-key") == [1]
    with pytest.raises(SchemaRegistryError) as missing:
        registry.get_latest_version("plain-key")
    assert missing.value.error_code == 40401


def test_confluents_serializer_and_deserializer_work_with_the_registry(node, client_of):
    registry = client_of(node)
    context = SerializationContext("other.topic", MessageField.VALUE)
    written = AvroSerializer(registry, WIDER)({"age": 5, "note": "x", "__metadata": None}, context)
    assert AvroDeserializer(registry)(written, context) == {
        "age": 5,
        "note": "x",
        "__metadata": None,
    }
    assert registry.get_subjects() == ["other.topic-value", "shop.visits"]
    # A topic's subject by the name that Kafka's tools give it: nothing new is registered.
    context = SerializationContext("shop.visits", MessageField.VALUE)
    AvroSerializer(registry, FIRST)({"age": 5}, context)
    assert registry.get_versions("shop.visits") == [1]


@pytest.mark.kafka
def test_confluents_deserializer_reads_what_was_published_with_framing(
    start_node, kafka_cluster, client_of
):
    servers = ",".join(kafka_cluster.bootstrap_servers)
    node = start_node(
        HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=servers,
        HERMES_FRONTEND_CONFLUENT_FRAMING="true",
        # The first message waits for a topic that Kafka is making.
        HERMES_FRONTEND_IDLE_TIMEOUT_MS="5000",
        HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS="5000",
    )
    publish = f"{node.ready['publish']}/topics/shop.visits"
    json_body = {"Content-Type": "application/json"}
    assert request("POST", publish, b'{"age": 5}', **json_body)[0] == 201
    saved = request("POST", f"{node.ready['management']}/topics/shop.visits/schema", WIDER.encode())
    assert saved == (201, b"")
    # Each frontend knows it within a second; until then an explicit version is refused.
    by_second = json_body | {"Schema-Version": "2"}
    second = b'{"age": 6, "note": "x"}'
    wait_until(lambda: request("POST", publish, second, **by_second)[0] == 201, "it is known")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    read = AvroDeserializer(client_of(node))
    try:
        consumer.subscribe(["shop.visits"])
        found = []
        while len(found) < 2:
            polled = consumer.poll(30)
            assert polled is not None, "both were acknowledged"
            assert polled.error() is None
            found.append(
                read(polled.value(), SerializationContext(polled.topic(), MessageField.VALUE))
            )
    finally:
        consumer.close()
    found.sort(key=lambda visit: visit["age"])
    assert [(visit["age"], visit.get("note")) for visit in found] == [(5, None), (6, "x")]
    assert all({"messageId", "timestamp"} <= set(visit["__metadata"]) for visit in found)
