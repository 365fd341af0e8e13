"""The schemas of JSON topics, over Hermes' paths: saved, shown, compared, removed."""

import json

import pytest

from hermes_actors.config import ManagementConfig
from hermes_actors.metadata.commands import Absent, put
from hermes_actors.metadata.keys import topic_key
from hermes_actors.model.names import TopicName
from hermes_actors.model.schema import SCHEMA_BYTES_MAX

CLOSED = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
WIDER = {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False}
PATH = "/topics/shop.orders/schema"
TOPIC = TopicName("shop", "orders")


@pytest.fixture
async def settings():
    return ManagementConfig(allow_removal=True, allow_schema_removal=True)


@pytest.fixture
async def shop(api):
    await api.with_topic()
    return api


async def save(api, schema: object, path: str = PATH):
    content = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return await api.client.post(path, content=content)


async def test_a_saved_schema_is_shown_as_it_came(shop):
    text = b'{ "type" : "object" }'
    answer = await save(shop, text)
    assert (answer.status_code, answer.content) == (201, b"")
    for path in (PATH, f"{PATH}/versions/1"):
        shown = await shop.get(path)
        assert (shown.status_code, shown.content) == (200, text)
    assert (await shop.get("/topics/shop.orders")).json()["schema"] == text.decode()


async def test_a_topic_without_a_schema_shows_none(shop):
    for path in (PATH, f"{PATH}/versions/1", f"{PATH}/ids/5", "/topics/shop.unknown/schema"):
        shown = await shop.get(path)
        assert (shown.status_code, shown.content) == (204, b"")
    assert "schema" not in (await shop.get("/topics/shop.orders")).json()


async def test_each_new_schema_is_another_version_and_the_same_one_none(shop):
    for schema in (CLOSED, WIDER, WIDER, b" " + json.dumps(WIDER).encode()):
        assert (await save(shop, schema)).status_code == 201
    assert (await shop.get(f"{PATH}/versions/1")).json() == CLOSED
    assert (await shop.get(f"{PATH}/versions/2")).json() == WIDER
    assert (await shop.get(f"{PATH}/versions/3")).status_code == 204
    assert (await shop.get(PATH)).json() == WIDER


async def test_a_schema_is_found_by_its_id_where_it_belongs_to_the_topic(shop):
    await save(shop, CLOSED)
    (own_id,) = shop.metadata.catalog.schemas
    assert 0 < own_id < 2**31
    assert (await shop.get(f"{PATH}/ids/{own_id}")).json() == CLOSED
    assert (await shop.get(f"/topics/shop.other/schema/ids/{own_id}")).status_code == 204


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (b"", "FORMAT_ERROR"),
        (b"{", "FORMAT_ERROR"),
        (b"\xff", "FORMAT_ERROR"),
        (b'"string"', "FORMAT_ERROR"),
        ({"type": "record", "name": "a", "fields": []}, "FORMAT_ERROR"),
        ({"pattern": "(?=a)"}, "FORMAT_ERROR"),
        ({"description": "x" * SCHEMA_BYTES_MAX}, "VALIDATION_ERROR"),
    ],
)
async def test_what_is_no_json_schema_is_refused_and_not_kept(shop, schema, code):
    assert shop.refusal(await save(shop, schema)) == (400, code)
    assert (await shop.get(PATH)).status_code == 204


async def test_a_topic_that_is_not_there_has_no_schema_to_save(shop):
    answer = await save(shop, CLOSED, "/topics/shop.unknown/schema")
    assert shop.refusal(answer) == (404, "TOPIC_NOT_EXISTS")
    assert not shop.metadata.catalog.subjects


async def test_a_version_that_refuses_what_the_last_one_allows_is_refused(shop):
    await save(shop, WIDER)
    answer = await save(shop, CLOSED)
    assert shop.refusal(answer) == (400, "SCHEMA_BAD_REQUEST")
    assert "it cannot read messages of version 1: some may be refused" in shop.message(answer)
    assert (await shop.get(PATH)).json() == WIDER


async def test_a_topic_may_be_made_with_its_schema(api):
    await api.post("/groups", {"groupName": "shop"})
    made = await api.post("/topics", api.topic(schema=json.dumps(CLOSED)))
    assert made.status_code == 201
    assert (await api.get(PATH)).json() == CLOSED


async def test_a_topic_with_a_bad_schema_is_not_made(api):
    await api.post("/groups", {"groupName": "shop"})
    refused = await api.post("/topics", api.topic(schema='{"type": "strin"}'))
    assert api.refusal(refused) == (400, "FORMAT_ERROR")
    assert (await api.get("/topics/shop.orders")).status_code == 404


async def test_a_topics_schema_changes_with_an_update_that_names_it(shop):
    answer = await shop.put("/topics/shop.orders", {"schema": json.dumps(CLOSED)})
    assert answer.status_code == 200
    assert (await shop.get(PATH)).json() == CLOSED
    answer = await shop.put("/topics/shop.orders", {"schema": "{", "description": "new"})
    assert shop.refusal(answer) == (400, "FORMAT_ERROR")
    assert (await shop.get("/topics/shop.orders")).json()["description"] != "new"


async def test_a_removed_schema_leaves_the_topic_without(shop):
    await save(shop, CLOSED)
    (own_id,) = shop.metadata.catalog.schemas
    assert (await shop.client.delete(PATH)).status_code == 200
    assert (await shop.get(PATH)).status_code == 204
    assert own_id in shop.metadata.catalog.schemas  # What it was stored with stays readable.
    await save(shop, WIDER)
    assert (await shop.get(f"{PATH}/versions/1")).json() == WIDER


async def test_removing_schemas_is_off_unless_the_operator_allows_it(shop):
    shop.administered_with(config=type(shop.config)())
    await save(shop, CLOSED)
    assert shop.refusal(await shop.client.delete(PATH)) == (406, "OPERATION_DISABLED")
    assert (await shop.get(PATH)).json() == CLOSED


async def test_a_removed_topic_leaves_no_schema_to_the_next_one_of_its_name(shop):
    await save(shop, CLOSED)
    assert (await shop.client.delete("/topics/shop.orders")).status_code == 200
    assert not shop.metadata.catalog.subjects
    await shop.post("/topics", shop.topic())
    assert (await shop.get(PATH)).status_code == 204


async def test_a_schema_without_its_topic_is_nobodys_to_inherit(api):
    await api.post("/groups", {"groupName": "shop"})
    body = {"schemaType": "JSON", "schema": json.dumps(CLOSED)}
    await api.post("/schema-registry/subjects/shop.orders/versions", body)
    for fields in ({}, {"schema": json.dumps(CLOSED)}, {"schema": json.dumps(WIDER)}):
        answer = await api.post("/topics", api.topic(**fields))
        assert api.refusal(answer) == (400, "SCHEMA_ALREADY_EXISTS")
    await api.client.delete("/schema-registry/subjects/shop.orders")
    assert (await api.post("/topics", api.topic())).status_code == 201


async def test_a_topic_that_cannot_be_made_leaves_no_schema(api, monkeypatch):
    await api.post("/groups", {"groupName": "shop"})

    async def refuse(*_):
        raise ValueError("the cluster's policy forbids it")

    with monkeypatch.context() as patched:
        patched.setattr(api.log.topics, "create", refuse)
        answer = await api.post("/topics", api.topic(schema=json.dumps(CLOSED)))
    assert answer.status_code == 400
    assert not api.metadata.catalog.subjects
    assert (await api.post("/topics", api.topic())).status_code == 201


async def test_a_removal_takes_no_version_that_came_after_it(shop):
    await save(shop, CLOSED)
    noted = shop.administration.subjects.deletions("shop.orders")
    await shop.client.delete("/topics/shop.orders")
    await shop.post("/topics", shop.topic(schema=json.dumps(CLOSED)))
    for change in noted:
        await shop.metadata.change(change)
    assert (await shop.get(PATH)).json() == CLOSED


async def test_who_loses_a_topics_name_leaves_no_schema_to_the_winner(api, monkeypatch):
    await api.post("/groups", {"groupName": "shop"})
    create_topic = api.log.topics.create

    async def lose(*arguments):
        """Meanwhile another one has made the topic, who was before all checks of this one."""
        theirs = put(topic_key(TOPIC), json.dumps(api.topic()).encode(), Absent(topic_key(TOPIC)))
        await api.metadata.change(theirs)
        return await create_topic(*arguments)

    monkeypatch.setattr(api.log.topics, "create", lose)
    answer = await api.post("/topics", api.topic(schema=json.dumps(CLOSED)))
    assert api.refusal(answer) == (400, "TOPIC_ALREADY_EXISTS")
    assert (await api.get("/topics/shop.orders")).status_code == 200
    assert (await api.get(PATH)).status_code == 204
