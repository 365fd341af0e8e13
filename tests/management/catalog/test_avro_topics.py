"""AVRO topics over Hermes' paths: made with a schema, migrated to, changed, and taken from."""

import json

import pytest

from hermes_actors.config import ManagementConfig
from hermes_actors.model.schema import SchemaKind

PATH = "/topics/shop.orders/schema"
REGISTRY = "/schema-registry/subjects/shop.orders/versions"
METADATA = {
    "name": "__metadata",
    "type": ["null", {"type": "map", "values": "string"}],
    "default": None,
}


def record(*fields: dict, name: str = "Order") -> dict:
    return {"type": "record", "name": name, "fields": list(fields)}


AGE = {"name": "age", "type": "int"}
FIRST = record(METADATA, AGE)
WIDER = record(METADATA, AGE, {"name": "note", "type": "string", "default": ""})
DEMANDING = record(METADATA, AGE, {"name": "note", "type": "string"})
MIGRATION = {"contentType": "AVRO", "migratedFromJsonType": True}


@pytest.fixture
async def settings():
    return ManagementConfig(allow_removal=True, allow_schema_removal=True)


@pytest.fixture
async def shop(api):
    """The AVRO topic shop.orders."""
    await api.with_topic(contentType="AVRO", schema=json.dumps(FIRST))
    return api


async def save(api, schema: object):
    content = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return await api.client.post(PATH, content=content)


async def test_an_avro_topic_is_made_with_its_schema_and_shows_it(shop):
    shown = (await shop.get("/topics/shop.orders")).json()
    assert (shown["contentType"], json.loads(shown["schema"])) == ("AVRO", FIRST)
    for path in (PATH, f"{PATH}/versions/1"):
        assert (await shop.get(path)).text == json.dumps(FIRST)
    (kept,) = shop.metadata.catalog.schemas.values()
    assert kept.kind is SchemaKind.AVRO


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ("{", "FORMAT_ERROR"),
        ('"string"', "FORMAT_ERROR"),
        ('{"type": "array", "items": "int"}', "FORMAT_ERROR"),
        (json.dumps(record(AGE)), "FORMAT_ERROR"),
        (json.dumps(record(METADATA | {"type": "string", "default": ""})), "FORMAT_ERROR"),
        (json.dumps(record(METADATA, AGE, name="$order")), "FORMAT_ERROR"),
        (json.dumps(record(METADATA, AGE | {"type": "Unknown"})), "FORMAT_ERROR"),
        (json.dumps(record(METADATA, AGE, AGE)), "FORMAT_ERROR"),
        ('{"items":' * 5_000, "FORMAT_ERROR"),
        (json.dumps(record(METADATA) | {"doc": "x" * 262_144}), "VALIDATION_ERROR"),
    ],
)
async def test_a_topic_is_not_made_with_what_cannot_be_its_schema(api, schema, code):
    await api.post("/groups", {"groupName": "shop"})
    answer = await api.post("/topics", api.topic(contentType="AVRO", schema=schema))
    assert api.refusal(answer) == (400, code)
    assert (await api.get("/topics")).json() == []
    assert not api.metadata.catalog.subjects


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "record"}, "FORMAT_ERROR"),
        (b"", "FORMAT_ERROR"),
        (record(AGE), "FORMAT_ERROR"),
        (DEMANDING, "SCHEMA_BAD_REQUEST"),
    ],
)
async def test_what_cannot_be_the_next_schema_is_refused(shop, schema, code):
    assert shop.refusal(await save(shop, schema)) == (400, code)
    assert (await shop.get(PATH)).json() == FIRST


async def test_the_error_says_which_field_disagrees_and_with_which_version(shop):
    answer = await save(shop, DEMANDING)
    assert "cannot read messages of version 1" in shop.message(answer)
    assert "note at /fields/2" in shop.message(answer)


async def test_metadata_is_wanted_unless_the_operator_says_otherwise(shop):
    shop.administered_with(
        config=type(shop.config)(management=ManagementConfig(avro_metadata_required=False))
    )
    bare = json.dumps(record(AGE))
    await shop.with_topic("shop.bare", contentType="AVRO", schema=bare)
    assert (await shop.get("/topics/shop.bare/schema")).text == bare


async def test_a_json_topic_migrates_with_a_schema_and_never_back(api):
    await api.with_topic()
    moved = await api.put("/topics/shop.orders", {**MIGRATION, "schema": json.dumps(FIRST)})
    assert moved.status_code == 200
    shown = (await api.get("/topics/shop.orders")).json()
    assert (shown["contentType"], shown["migratedFromJsonType"]) == ("AVRO", True)
    for back in ({"contentType": "JSON"}, {"migratedFromJsonType": False}):
        answer = await api.put("/topics/shop.orders", back)
        assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert (await api.get(PATH)).json() == FIRST


@pytest.mark.parametrize(
    ("patch", "code", "words"),
    [
        (
            {"migratedFromJsonType": True, "schema": "{}"},
            "VALIDATION_ERROR",
            "needs contentType AVRO",
        ),
        (MIGRATION, "VALIDATION_ERROR", "must hold the Avro schema"),
        (
            {"contentType": "AVRO", "schema": json.dumps(FIRST)},
            "VALIDATION_ERROR",
            "only with migratedFromJsonType",
        ),
        ({**MIGRATION, "schema": "{"}, "SCHEMA_BAD_REQUEST", "not an Avro schema"),
        ({**MIGRATION, "schema": json.dumps(record(AGE))}, "SCHEMA_BAD_REQUEST", "__metadata"),
    ],
)
async def test_half_a_migration_is_refused_and_leaves_no_schema(api, patch, code, words):
    await api.with_topic()
    answer = await api.put("/topics/shop.orders", patch)
    assert api.refusal(answer) == (400, code)
    assert words in api.message(answer)
    assert (await api.get(PATH)).status_code == 204


async def test_a_migration_may_use_a_schema_that_was_registered_before(api):
    await api.with_topic()
    assert (await api.post(REGISTRY, {"schema": json.dumps(FIRST)})).status_code == 200
    assert (await api.put("/topics/shop.orders", MIGRATION)).status_code == 200


async def test_a_topic_with_a_json_schema_migrates_and_keeps_its_old_versions(api):
    closed = {"type": "object", "additionalProperties": False}
    await api.with_topic(schema=json.dumps(closed))
    avro = {"schema": json.dumps(FIRST)}
    refused = await api.post(REGISTRY, avro)
    assert (refused.status_code, "kind JSON" in refused.json()["message"]) == (409, True)
    assert (await api.put("/topics/shop.orders", {**MIGRATION, **avro})).status_code == 200
    assert (await api.get(f"{PATH}/versions/1")).json() == closed
    assert (await api.get(PATH)).json() == FIRST
    assert (await save(api, WIDER)).status_code == 201
    json_again = {"schemaType": "JSON", "schema": "{}"}
    assert (await api.post(REGISTRY, json_again)).status_code == 422


async def test_who_brings_avro_to_a_json_topic_is_told_how_to_turn_it_to_avro(api):
    await api.with_topic()
    turn = "hermes topic update shop.orders contentType=AVRO migratedFromJsonType=true schema="
    wrong = ({"type": "enum", "name": "E", "symbols": ["A"]}, record(AGE | {"type": "Unknown"}))
    for schema in (FIRST, *wrong):
        for answer in (
            await save(api, schema),
            await api.put("/topics/shop.orders", {"schema": json.dumps(schema)}),
            await api.post(REGISTRY, {"schemaType": "JSON", "schema": json.dumps(schema)}),
        ):
            assert answer.status_code in (400, 422)
            assert "it takes JSON Schema" in api.message(answer)
            assert turn in api.message(answer)
    assert (await save(api, {"type": "object"})).status_code == 201
    assert turn in api.message(await api.post(REGISTRY, {"schema": json.dumps(FIRST)}))
    made = await api.post("/topics", api.topic("shop.other", schema=json.dumps(FIRST)))
    assert "create the topic with contentType AVRO" in api.message(made)


async def test_who_brings_json_schema_to_an_avro_topic_is_told_that_it_takes_avro(shop):
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {}}
    text = json.dumps(schema)
    other = shop.topic("shop.other", contentType="AVRO", schema=text)
    for answer in (
        await save(shop, schema),
        await shop.put("/topics/shop.orders", {"schema": text}),
        await shop.post(REGISTRY, {"schema": text}),
        await shop.post("/topics", other),
    ):
        assert answer.status_code in (400, 422)
        assert "An AVRO topic takes Avro schemas only" in shop.message(answer)
    assert shop.message(await shop.post(REGISTRY, {"schemaType": "JSON", "schema": text})) == (
        "Topic shop.orders is AVRO: its schemas must be Avro schemas"
    )


async def test_a_dry_run_takes_an_avro_schema_on_a_json_topic(api):
    await api.with_topic(jsonToAvroDryRun=True, schema=json.dumps(FIRST))
    (kept,) = api.metadata.catalog.schemas.values()
    assert kept.kind is SchemaKind.AVRO
    assert (await save(api, WIDER)).status_code == 201
    assert api.refusal(await save(api, {"type": "object"})) == (400, "FORMAT_ERROR")


async def test_who_comes_second_to_a_new_topics_schema_touches_nothing_of_it(api, monkeypatch):
    """Two make one topic at once: the first one's schema is there before the second one's."""
    await api.post("/groups", {"groupName": "shop"})
    subjects = api.administration.subjects
    require_valid = subjects.require_valid
    is_second = True

    async def come_second(subject, schema, topic):
        nonlocal is_second
        if is_second:
            is_second = False
            answer = await api.post(
                "/topics", api.topic(contentType="AVRO", schema=json.dumps(FIRST))
            )
            assert answer.status_code == 201
        await require_valid(subject, schema, topic)

    monkeypatch.setattr(subjects, "require_valid", come_second)
    answer = await api.post("/topics", api.topic(contentType="AVRO", schema=json.dumps(FIRST)))
    assert answer.status_code == 400
    assert (await api.get(PATH)).json() == FIRST


async def test_subscriptions_of_an_avro_topic_filter_by_avropath_and_header(shop):
    path = {"type": "avropath", "path": "age", "matcher": "5"}
    header = {"type": "header", "header": "Channel", "matcher": "web"}
    await shop.with_subscription(filters=[path, header], contentType="AVRO")
    wrong = {"type": "jsonpath", "path": "$.age", "matcher": "5"}
    body = shop.subscription("audit", filters=[wrong])
    answer = await shop.post("/topics/shop.orders/subscriptions", body)
    assert shop.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "avropath" in shop.message(answer)
    body = shop.subscription("audit", deliveryType="BATCH", contentType="AVRO")
    answer = await shop.post("/topics/shop.orders/subscriptions", body)
    assert shop.refusal(answer) == (400, "VALIDATION_ERROR")


async def test_a_subscription_of_a_json_topic_may_ask_for_avro(api):
    await api.with_topic()
    await api.with_subscription(contentType="AVRO")
