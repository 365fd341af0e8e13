"""AVRO topics at their publishers' door: forms of bodies, versions, metadata, framing, batches."""

import base64
import json
import logging

import pytest
import trio
from msgspec.structs import replace

from hermes_actors.config import PropagationConfig
from hermes_actors.metadata.schemas import schema_body, schema_key, version_body, version_key
from hermes_actors.metadata.state import Register
from hermes_actors.model.message import from_record
from hermes_actors.model.schema import Schema, SchemaKind, WriterSchema
from hermes_actors.model.topic import ContentType
from hermes_actors.schema.avro import BodyForm, avro_schema
from hermes_actors.schema.loop_limits import BODY_BYTES_MAX
from tests.publisher.batch_exchange import EVENTS, call
from tests.publisher.test_schemas import working

METADATA = {
    "name": "__metadata",
    "type": ["null", {"type": "map", "values": "string"}],
    "default": None,
}
AGE = {"name": "age", "type": "int"}
NAME = {"name": "name", "type": "string", "default": "nobody"}
JSON, AVRO_JSON, BINARY = (form.value for form in BodyForm)
IDS = {1: 70_001, 2: 70_002, 3: 70_003}


def text_of(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "User", "fields": [METADATA, *fields]})


V1, V2 = text_of(AGE), text_of(AGE, NAME)


def set_version(world, number: int, text: str, topic: str = "shop.users") -> None:
    """As the router does when the metadata log says so."""
    stored = Schema(SchemaKind.AVRO, text)
    own_id = IDS[number]
    for key, body in (
        (schema_key(own_id), schema_body(stored)),
        (version_key(topic, number), version_body(own_id)),
    ):
        world.catalog.apply(Register(key, 0, number, "dc1", body))
    world.frontend.routes.renew_schema(topic)


@pytest.fixture
async def users(world, autojump_clock):
    await world.add_topic("shop.users", content_type=ContentType.AVRO)
    set_version(world, 1, V1)
    await trio.sleep(0.01)
    return world


async def publish(world, body: bytes, content_type: str | None = JSON, **headers: str):
    if content_type is not None:
        headers["content_type"] = content_type
    return await world.publish("shop.users", body, **headers)


def read(world, text: str = V1, at: int = -1):
    return avro_schema(text).document(world.stored[at].value)


def refused(answer, code: str = "VALIDATION_ERROR") -> str:
    assert answer.status_code == 400
    error = answer.json()
    assert error["code"] == code
    return error["message"]


async def test_json_becomes_avro_with_the_brokers_metadata(users, autojump_clock) -> None:
    answer = await publish(users, b'{"age": 7, "more": 1}')
    assert answer.status_code == 201
    document = read(users)
    assert document["age"] == 7
    assert document["__metadata"]["messageId"] == answer.headers["hermes-message-id"]
    message = from_record(users.stored[0])
    assert document["__metadata"]["timestamp"] == str(message.published_at_ms)
    assert message.written_with == WriterSchema(1, IDS[1])


async def test_propagated_headers_are_in_the_metadata_and_forge_nothing(
    open_world, autojump_clock
) -> None:
    propagation = PropagationConfig(enabled=True, allowed=["trace-id", "timestamp"])
    async with open_world(propagation=propagation) as w:
        await w.add_topic("shop.users", content_type=ContentType.AVRO)
        set_version(w, 1, V1)
        answer = await publish(w, b'{"age": 7}', trace_id="t", timestamp="0")
        assert answer.status_code == 201
        metadata = read(w)["__metadata"]
    assert {name.lower(): value for name, value in metadata.items()}["trace-id"] == "t"
    assert metadata["timestamp"] != "0"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/jsonx", "avro"])
async def test_another_content_type_is_refused_and_named(
    users, content_type: str | None, autojump_clock
) -> None:
    told = refused(await publish(users, b'{"age": 7}', content_type))
    shown = content_type or "null"
    assert told.startswith(f"Unsupported payload content type header {shown} for AVRO topic")
    assert users.stored == []


async def test_avros_own_json_and_binary_are_taken(users, autojump_clock) -> None:
    body = b'{"__metadata": null, "age": 7}'
    assert (await publish(users, body, AVRO_JSON)).status_code == 201
    binary = avro_schema(V1).take(b'{"age": 8}', BodyForm.JSON, {"messageId": "forged"})
    assert (await publish(users, binary, BINARY)).status_code == 201
    assert [read(users, at=at)["age"] for at in (0, 1)] == [7, 8]
    assert read(users)["__metadata"]["messageId"] != "forged"


# Versions.


@pytest.mark.parametrize("header", ["Schema-Version", "schema-version"])
async def test_a_header_asks_for_a_version(users, header: str, autojump_clock) -> None:
    set_version(users, 2, V2)
    answer = await users.client.post(
        "/topics/shop.users", content=b'{"age": 7}', headers={"content-type": JSON, header: "1"}
    )
    assert answer.status_code == 201
    assert "name" not in read(users, V1)
    assert from_record(users.stored[0]).written_with == WriterSchema(1, IDS[1])


async def test_an_unknown_version_is_refused_in_hermes_words(users, autojump_clock) -> None:
    answer = await publish(users, b'{"age": 7}', schema_version="3")
    told = refused(answer, "SCHEMA_VERSION_DOES_NOT_EXIST")
    assert told == "Given schema version '3' does not exist"


async def test_an_id_goes_before_a_version_where_ids_are_taken(open_world, autojump_clock) -> None:
    async with open_world(schema_id_header=True) as world:
        await world.add_topic("shop.users", content_type=ContentType.AVRO)
        set_version(world, 1, V1)
        set_version(world, 2, V2)
        both = {"schema_id": str(IDS[1]), "schema_version": "2"}
        assert (await publish(world, b'{"age": 7}', **both)).status_code == 201
        assert from_record(world.stored[0]).written_with == WriterSchema(1, IDS[1])
        answer = await publish(world, b'{"age": 7}', schema_id="5")
        assert "id '5'" in refused(answer, "SCHEMA_VERSION_DOES_NOT_EXIST")


async def test_a_topic_without_a_schema_says_so_until_it_has_one(world, autojump_clock) -> None:
    await world.add_topic("shop.users", content_type=ContentType.AVRO)
    answer = await publish(world, b'{"age": 7}')
    assert answer.status_code == 500
    assert answer.json()["code"] == "SCHEMA_COULD_NOT_BE_LOADED"
    set_version(world, 1, V1)
    assert (await publish(world, b'{"age": 7}')).status_code == 201


# What is stored.


async def test_framing_puts_the_schemas_id_before_the_message(open_world, autojump_clock) -> None:
    async with open_world(confluent_framing=True) as world:
        await world.add_topic("shop.users", content_type=ContentType.AVRO)
        set_version(world, 1, V1)
        assert (await publish(world, b'{"age": 7}')).status_code == 201
        (record,) = world.stored
        assert record.value[:5] == b"\0" + IDS[1].to_bytes(4, "big")
        assert avro_schema(V1).document(record.value[5:])["age"] == 7
        assert from_record(record).written_with == WriterSchema(1, IDS[1], is_framed=True)


async def test_what_a_schema_fills_in_has_a_bound(open_world, autojump_clock) -> None:
    filled = [{"name": f"f{at}", "type": "string", "default": "x" * 600} for at in range(30)]
    held = {"type": "record", "name": "Held", "fields": filled}
    text = text_of({"name": "all", "type": {"type": "array", "items": held}})
    async with open_world(body_bytes_max=20_000) as world:
        await world.add_topic("shop.users", content_type=ContentType.AVRO)
        set_version(world, 1, text)
        with working(world):
            assert (await publish(world, b'{"all":[{}]}')).status_code == 201
            told = refused(await publish(world, b'{"all":[{},{},{}]}'))
        assert "20000" in told


async def test_a_large_body_is_converted_beside_the_loop(open_world, autojump_clock) -> None:
    async with open_world() as world:
        await world.add_topic(
            "shop.users", content_type=ContentType.AVRO, message_bytes_max=1_000_000
        )
        set_version(world, 1, V2)
        name = "x" * BODY_BYTES_MAX
        with working(world):
            body = json.dumps({"age": 7, "name": name}).encode()
            assert (await publish(world, body)).status_code == 201
            assert "age" in refused(await publish(world, b'{"name": "%s"}' % name.encode()))
        assert read(world, V2)["name"] == name


# Batches and events.


async def test_each_message_of_a_batch_is_converted_or_refused(users, autojump_clock) -> None:
    lines = (await call(users, b'{"age":1}\n{"age":"x"}\n{"age":2}\n', topic="shop.users")).lines
    assert [line["status"] for line in lines] == [201, 400, 201]
    assert [read(users, at=at)["age"] for at in (0, 1)] == [1, 2]
    assert read(users)["__metadata"]["messageId"] == lines[2]["id"]
    assert from_record(users.stored[1]).written_with == WriterSchema(1, IDS[1])


async def test_a_batch_that_schemas_fill_in_stops_to_grow(users, autojump_clock) -> None:
    huge = {"name": "huge", "type": "string", "default": "x" * 60_000}
    set_version(users, 2, text_of(huge))
    lines = (await call(users, b"{}\n" * 200, topic="shop.users")).lines
    statuses = {line["status"] for line in lines}
    assert 400 in statuses
    assert all("publish it by itself" in line["message"] for line in lines if line["status"] == 400)


async def test_events_become_avro_by_the_type_of_their_data(users, autojump_clock) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/t", "type": "made"}
    body = json.dumps([event | {"data": {"age": 1}}]).encode()
    (line,) = (await call(users, body, topic="shop.users", content_type=EVENTS)).lines
    assert line["status"] == 201
    structured = "application/cloudevents+json"
    one = json.dumps(event | {"data": {"age": 2}}).encode()
    assert (await publish(users, one, structured)).status_code == 201
    binary = avro_schema(V1).take(b'{"age": 3}', BodyForm.JSON, {})
    held = {"data_base64": base64.b64encode(binary).decode(), "datacontenttype": BINARY}
    assert (await publish(users, json.dumps(event | held).encode(), structured)).status_code == 201
    assert [read(users, at=at)["age"] for at in range(3)] == [1, 2, 3]


# A dry run.


async def test_a_dry_run_stores_what_comes_and_tells_what_would_not_fit(
    world, autojump_clock, caplog
) -> None:
    await world.add_topic("shop.users")
    route = world.frontend.routes.by_name["shop.users"]
    set_version(world, 1, V1)
    route.change(_dry(route.topic))
    with caplog.at_level(logging.WARNING):
        assert (await publish(world, b'{"age": 7}')).status_code == 201
        assert (await publish(world, b'{"age": "x"}')).status_code == 201
    assert [record.value for record in world.stored] == [b'{"age": 7}', b'{"age": "x"}']
    assert "Field age is expected" in caplog.text
    # As in Hermes.
    assert "header null" in refused(await publish(world, b"{}", None))


def _dry(topic):
    return replace(topic, json_to_avro_dry_run=True)
