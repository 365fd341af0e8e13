"""The schema registry by the paths, answers and error numbers of Confluent's."""

import json

import pytest

from hermes_actors.config import ManagementConfig

ROOT = "/schema-registry"
CLOSED = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
WIDER = {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False}


@pytest.fixture
async def settings():
    return ManagementConfig(allow_removal=True, allow_schema_removal=True)


@pytest.fixture
async def shop(api):
    await api.with_topic()
    return api


def body_of(schema: object) -> dict[str, str]:
    return {"schemaType": "JSON", "schema": json.dumps(schema)}


async def register(api, subject: str, schema: object, **kwargs):
    return await api.post(f"{ROOT}/subjects/{subject}/versions", body_of(schema), **kwargs)


async def error_of(answer) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


async def test_a_registered_schema_is_found_by_version_and_by_id(shop):
    answer = await register(shop, "shop.orders", CLOSED)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    own_id = answer.json()["id"]
    text = json.dumps(CLOSED)
    whole = {
        "subject": "shop.orders",
        "version": 1,
        "id": own_id,
        "schemaType": "JSON",
        "schema": text,
    }
    for version in ("1", "latest", "-1"):
        shown = await shop.get(f"{ROOT}/subjects/shop.orders/versions/{version}")
        assert shown.json() == whole
    assert (await shop.get(f"{ROOT}/subjects/shop.orders/versions/1/schema")).text == text
    by_id = await shop.get(f"{ROOT}/schemas/ids/{own_id}")
    assert by_id.json() == {"schema": text, "schemaType": "JSON"}
    assert (await shop.get(f"{ROOT}/schemas/ids/{own_id}/schema")).text == text
    named = await shop.get(f"{ROOT}/schemas/ids/{own_id}/versions")
    assert named.json() == [{"subject": "shop.orders", "version": 1}]
    looked_up = await shop.post(f"{ROOT}/subjects/shop.orders", body_of(CLOSED))
    assert looked_up.json() == whole


async def test_topics_and_subjects_are_the_same_schemas(shop):
    await register(shop, "shop.orders-value", CLOSED)
    assert (await shop.get("/topics/shop.orders/schema")).json() == CLOSED
    assert (await shop.get(f"{ROOT}/subjects")).json() == ["shop.orders"]
    assert (await shop.get(f"{ROOT}/subjects/shop.orders-value/versions")).json() == [1]
    await register(shop, "elsewhere-value", CLOSED)
    assert (await shop.get(f"{ROOT}/subjects")).json() == ["elsewhere-value", "shop.orders"]


async def test_the_same_schema_has_one_id_in_all_subjects(shop):
    ids = [(await register(shop, name, CLOSED)).json()["id"] for name in ("a", "b", "a")]
    assert len(set(ids)) == 1
    assert (await shop.get(f"{ROOT}/subjects/a/versions")).json() == [1]


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/subjects/none/versions", 40401),
        ("/subjects/none/versions/1", 40401),
        ("/subjects/known/versions/2", 40402),
        ("/subjects/known/versions/0", 42202),
        ("/subjects/known/versions/x", 42202),
        ("/subjects/known/versions/" + "1" * 5_000, 42202),
        ("/schemas/ids/5", 40403),
        ("/schemas/ids/5/versions", 40403),
        ("/config/known", 40408),
    ],
)
async def test_what_is_not_there_has_its_number(shop, path, number):
    await register(shop, "known", CLOSED)
    assert await error_of(await shop.get(ROOT + path)) == (number // 100, number)


async def test_a_schema_that_is_no_version_is_not_found(shop):
    await register(shop, "known", CLOSED)
    answer = await shop.post(f"{ROOT}/subjects/known", body_of(WIDER))
    assert await error_of(answer) == (404, 40403)


@pytest.mark.parametrize(
    "body",
    [
        {"schemaType": "JSON", "schema": "{"},
        {"schemaType": "JSON", "schema": '{"type": "strin"}'},
        {"schemaType": "PROTOBUF", "schema": "{}"},
        {"schemaType": ["JSON"], "schema": "{}"},
        {"schemaType": "JSON"},
        {"schema": "string"},
        {"schemaType": "JSON", "schema": "{}", "references": [{"name": "a"}]},
    ],
)
async def test_what_is_no_schema_is_unprocessable(shop, body):
    answer = await shop.post(f"{ROOT}/subjects/a/versions", body)
    assert await error_of(answer) == (422, 42201)
    assert (await shop.get(f"{ROOT}/subjects")).json() == []


async def test_a_version_that_disagrees_is_a_conflict_and_may_be_asked_for_before(shop):
    await register(shop, "a", WIDER)
    path = f"{ROOT}/compatibility/subjects/a/versions"
    asked = await shop.post(f"{path}?verbose=true", body_of(CLOSED))
    assert asked.json()["is_compatible"] is False
    assert "version 1" in asked.json()["messages"][0]
    assert (await shop.post(path, body_of(CLOSED))).json() == {"is_compatible": False}
    asked = await shop.post(f"{path}/latest", body_of(WIDER))
    assert asked.json() == {"is_compatible": True}
    assert await error_of(await register(shop, "a", CLOSED)) == (409, 409)


@pytest.mark.parametrize("level", ["SOME", ["NONE"], {"NONE": 1}, None, 1, "x" * 9_000])
async def test_what_is_no_level_is_unprocessable(shop, level):
    bad = await shop.put(f"{ROOT}/config/a", {"compatibility": level})
    assert await error_of(bad) == (422, 42203)
    assert len(bad.json()["message"]) < 200


async def test_a_subjects_level_wins_over_that_of_all_and_that_over_the_nodes(shop):
    async def level(subject: str) -> str:
        answer = await shop.get(f"{ROOT}/config/{subject}?defaultToGlobal=true")
        return answer.json()["compatibilityLevel"]

    assert (await shop.get(f"{ROOT}/config")).json() == {"compatibilityLevel": "BACKWARD"}
    await shop.put(f"{ROOT}/config", {"compatibility": "FULL"})
    assert await level("a") == "FULL"
    await shop.put(f"{ROOT}/config/a", {"compatibility": "NONE"})
    assert (await level("a"), await level("b")) == ("NONE", "FULL")
    await register(shop, "a", WIDER)
    assert (await register(shop, "a", CLOSED)).status_code == 200
    dropped = await shop.client.delete(f"{ROOT}/config/a")
    assert dropped.json() == {"compatibility": "NONE"}
    assert await level("a") == "FULL"


@pytest.mark.parametrize(
    ("level", "first", "second", "is_taken"),
    [
        ("BACKWARD", CLOSED, WIDER, True),
        ("BACKWARD", WIDER, CLOSED, False),
        ("FORWARD", WIDER, CLOSED, True),
        ("FORWARD", CLOSED, WIDER, False),
        ("FULL", CLOSED, WIDER, False),
        ("FULL", CLOSED, {**CLOSED, "title": "the same"}, True),
        ("NONE", WIDER, CLOSED, True),
    ],
)
async def test_each_level_takes_what_it_says(shop, level, first, second, is_taken):
    await shop.put(f"{ROOT}/config/a", {"compatibility": level})
    await register(shop, "a", first)
    assert ((await register(shop, "a", second)).status_code == 200) is is_taken


async def test_a_transitive_level_compares_with_all_versions(shop):
    await shop.put(f"{ROOT}/config/a", {"compatibility": "NONE"})
    for schema in (WIDER, CLOSED):
        await register(shop, "a", schema)
    third = {**CLOSED, "title": "the same as the last"}
    await shop.put(f"{ROOT}/config/a", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert (await register(shop, "a", third)).status_code == 409
    await shop.put(f"{ROOT}/config/a", {"compatibility": "BACKWARD"})
    assert (await register(shop, "a", third)).status_code == 200


async def test_deleted_versions_are_gone_and_their_schemas_stay_readable(shop):
    own_id = (await register(shop, "a", CLOSED)).json()["id"]
    await register(shop, "a", WIDER)
    assert (await shop.client.delete(f"{ROOT}/subjects/a/versions/1")).json() == 1
    assert (await shop.get(f"{ROOT}/subjects/a/versions")).json() == [2]
    assert (await shop.client.delete(f"{ROOT}/subjects/a")).json() == [2]
    assert await error_of(await shop.client.delete(f"{ROOT}/subjects/a")) == (404, 40401)
    assert json.loads((await shop.get(f"{ROOT}/schemas/ids/{own_id}")).json()["schema"]) == CLOSED


async def test_deleting_is_off_unless_the_operator_allows_it(shop):
    shop.administered_with(config=type(shop.config)())
    await register(shop, "a", CLOSED)
    assert await error_of(await shop.client.delete(f"{ROOT}/subjects/a")) == (422, 42205)


async def test_a_topics_owner_changes_its_subject_and_only_administrators_others(shop):
    owner = {"headers": {"x-user": "ann", "x-teams": "sales"}}
    stranger = {"headers": {"x-user": "eve", "x-teams": "other"}}
    admin = {"headers": {"x-user": "admin"}}
    assert (await register(shop, "shop.orders", CLOSED, **stranger)).status_code == 403
    assert (await register(shop, "shop.orders", CLOSED, **owner)).status_code == 200
    assert (await register(shop, "other", CLOSED, **owner)).status_code == 403
    assert (await register(shop, "other", CLOSED, **admin)).status_code == 200
    assert (await shop.put(f"{ROOT}/config", {"compatibility": "NONE"}, **owner)).status_code == 403


async def test_the_registry_says_what_it_can_do(shop):
    assert (await shop.get(f"{ROOT}/schemas/types")).json() == ["JSON", "AVRO"]
    assert (await shop.get(f"{ROOT}/mode")).json() == {"mode": "READWRITE"}


async def test_an_avro_schema_is_found_whatever_the_order_of_its_attributes_and_its_names(shop):
    fields = [{"name": "name", "type": "string"}, {"name": "n", "type": "int", "default": 0}]
    first = {"namespace": "a.b", "type": "record", "name": "User", "fields": fields}
    other_fields = [{"type": {"type": "string"}, "name": "name"}, fields[1]]
    other = {"type": "record", "name": "a.b.User", "fields": other_fields}
    path = f"{ROOT}/subjects/users"
    answer = await shop.post(f"{path}/versions", {"schema": json.dumps(first)})
    for query in ("", "?normalize=true"):
        found = await shop.post(path + query, {"schema": json.dumps(other)})
        assert (found.status_code, found.json()["id"]) == (200, answer.json()["id"])
    again = await shop.post(f"{path}/versions", {"schema": json.dumps(other)})
    assert again.json() == answer.json()
    changed = first | {"fields": [fields[0], fields[1] | {"default": 1}]}
    assert (await shop.post(f"{path}/versions", {"schema": json.dumps(changed)})).status_code == 200
    assert (await shop.get(f"{path}/versions")).json() == [1, 2]


async def test_the_root_answers_and_subjects_are_listed_by_their_prefix(shop):
    assert (await shop.get(f"{ROOT}/")).json() == {}
    assert (await shop.get(ROOT)).json() == {}
    await register(shop, "shop.orders", CLOSED)
    await register(shop, "users", CLOSED)
    for prefix, names in (("shop.", ["shop.orders"]), (":*:u", ["users"]), ("x", [])):
        answer = await shop.get(f"{ROOT}/subjects?subjectPrefix={prefix}")
        assert answer.json() == names
