"""Topics over HTTP."""

import pytest

from hermes_actors.config import ManagementConfig

START_S = 1_700_000_000.0
DEFAULTS = {
    "name": "shop.orders",
    "description": "what is ordered",
    "owner": {"source": "Plaintext", "id": "sales"},
    "contentType": "JSON",
    "retentionTime": {"duration": 1, "retentionUnit": "DAYS"},
    "ack": "LEADER",
    "maxMessageSize": 51200,
    "jsonToAvroDryRun": False,
    "migratedFromJsonType": False,
    "trackingEnabled": False,
    "fallbackToRemoteDatacenterEnabled": False,
    "chaos": {"mode": "DISABLED", "datacenterPolicies": {}},
    "auth": {"publishers": [], "enabled": False, "unauthenticatedAccessEnabled": True},
    "subscribingRestricted": False,
    "offlineStorage": {"enabled": False, "retentionTime": {"duration": 0, "infinite": False}},
    "createdAt": START_S,
    "modifiedAt": START_S,
}


async def shown(api, name="shop.orders"):
    return (await api.get(f"/topics/{name}")).json()


async def test_a_minimal_topic_is_shown_with_every_default(api):
    await api.with_topic()
    assert await shown(api) == DEFAULTS


async def test_every_field_given_is_kept(api):
    fields = {
        "retentionTime": {"duration": 36, "retentionUnit": "HOURS"},
        "ack": "ALL",
        "maxMessageSize": 2097152,
        "trackingEnabled": True,
        "fallbackToRemoteDatacenterEnabled": True,
        "chaos": {
            "mode": "DATACENTER",
            "globalPolicy": {
                "probability": 100,
                "delayFrom": 1,
                "delayTo": 2,
                "completeWithError": True,
            },
            "datacenterPolicies": {
                "dc1": {
                    "probability": 0,
                    "delayFrom": 3,
                    "delayTo": 3,
                    "completeWithError": False,
                }
            },
        },
        "auth": {"publishers": ["a"], "enabled": True, "unauthenticatedAccessEnabled": False},
        "subscribingRestricted": True,
        "offlineStorage": {"enabled": True, "retentionTime": {"duration": 9, "infinite": False}},
    }
    await api.with_topic(**fields, createdAt=5, labels=["ignored"])
    assert await shown(api) == {**DEFAULTS, **fields}


async def test_the_log_topic_is_there_when_the_creation_is_answered(api):
    await api.with_topic(retentionTime={"duration": 2, "retentionUnit": "HOURS"})
    settings = await api.log.topics.describe("shop.orders")
    assert (settings.partitions, settings.retention_ms) == (10, 7_200_000)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"name": None}, 400, "VALIDATION_ERROR"),
        ({"name": "orders"}, 400, "FORMAT_ERROR"),
        ({"name": "nobody.orders"}, 404, "GROUP_NOT_EXISTS"),
        ({"owner": {"source": "Ldap", "id": "x"}}, 400, "VALIDATION_ERROR"),
        ({"retentionTime": {"duration": 0, "retentionUnit": "SECONDS"}}, 400, "VALIDATION_ERROR"),
        ({"maxMessageSize": 1023}, 400, "VALIDATION_ERROR"),
        ({"migratedFromJsonType": True}, 400, "VALIDATION_ERROR"),
        ({"contentType": "AVRO"}, 400, "OTHER"),
        ({"contentType": "AVRO", "schema": " "}, 400, "OTHER"),
        ({"contentType": "AVRO", "schema": '{"type":"record"}'}, 400, "FORMAT_ERROR"),
        ({"jsonToAvroDryRun": True, "schema": "{}"}, 400, "FORMAT_ERROR"),
    ],
)
async def test_a_bad_topic_is_refused_and_leaves_nothing(api, fields, status, code):
    await api.post("/groups", {"groupName": "shop"})
    answer = await api.post("/topics", api.topic(**fields))
    assert api.refusal(answer) == (status, code)
    assert (await api.get("/topics")).json() == []
    assert [name for name in await api.log.topics.names() if not name.startswith("_hermes")] == []


async def test_a_topic_that_the_log_does_not_take_is_refused_with_its_reason(api):
    await api.post("/groups", {"groupName": "shop"})

    async def refuse(name, settings):
        raise ValueError(f"{name}: Kafka does not accept it: it collides with shop.a_b")

    api.log.topics.create = refuse
    answer = await api.post("/topics", api.topic())
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "collides with shop.a_b" in answer.json()["message"]
    assert (await api.get("/topics")).json() == []


async def test_an_avro_topic_without_a_schema_gets_the_text_that_tests_compare(api):
    await api.post("/groups", {"groupName": "shop"})
    answer = await api.post("/topics", api.topic(contentType="AVRO"))
    assert api.message(answer) == "Message schema cannot be empty"


async def test_topics_are_listed_by_group_and_tracking_in_order(api):
    await api.with_topic("shop.b", trackingEnabled=True)
    await api.with_topic("shop.a")
    await api.with_topic("shop.eu.c", trackingEnabled=True)
    assert (await api.get("/topics")).json() == ["shop.a", "shop.b", "shop.eu.c"]
    assert (await api.get("/topics?groupName=shop")).json() == ["shop.a", "shop.b"]
    assert (await api.get("/topics?tracked=true")).json() == ["shop.b", "shop.eu.c"]
    assert (await api.get("/topics?groupName=shop&tracked=true")).json() == ["shop.b"]
    answer = await api.get("/topics?groupName=nobody")
    assert api.refusal(answer) == (404, "GROUP_NOT_EXISTS")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/topics/shop.nothing"),
        ("PUT", "/topics/shop.nothing"),
        ("DELETE", "/topics/shop.nothing"),
        ("GET", "/topics/shop.nothing/clients"),
        ("GET", "/topics/shop.nothing/messages"),
        ("GET", "/topics/shop.nothing/subscriptions"),
        ("GET", "/roles/topics/shop.nothing"),
    ],
)
async def test_an_unknown_topic_is_not_found(api, method, path):
    body = {"json": {}} if method == "PUT" else {}
    answer = await api.client.request(method, path, **body)
    assert api.refusal(answer) == (404, "TOPIC_NOT_EXISTS")


async def test_a_patch_changes_one_nested_value_and_leaves_its_siblings(api):
    await api.with_topic(auth={"publishers": ["a"], "enabled": True})
    api.clock.ms += 5_500
    answer = await api.put("/topics/shop.orders", {"auth": {"publishers": ["b", "c"]}})
    assert (answer.status_code, answer.content) == (200, b"")
    after = await shown(api)
    assert after["auth"] == {
        "publishers": ["b", "c"],
        "enabled": True,
        "unauthenticatedAccessEnabled": False,
    }
    assert (after["createdAt"], after["modifiedAt"]) == (START_S, START_S + 5.5)


async def test_a_null_resets_a_field_and_an_equal_patch_is_no_change(api):
    await api.with_topic(maxMessageSize=2048, ack="ALL")
    before = api.metadata.catalog.topics["shop.orders"].stamp
    api.clock.ms += 1_000
    same = await api.put("/topics/shop.orders", {"maxMessageSize": 2048, "modifiedAt": 3})
    assert same.status_code == 200
    assert api.metadata.catalog.topics["shop.orders"].stamp == before
    await api.put("/topics/shop.orders", {"maxMessageSize": None, "ack": None})
    after = await shown(api)
    assert (after["maxMessageSize"], after["ack"]) == (51200, "LEADER")
    assert after["modifiedAt"] == START_S + 1


async def test_what_is_shown_can_be_put_back(api):
    await api.with_topic()
    stamp = api.metadata.catalog.topics["shop.orders"].stamp
    assert (await api.put("/topics/shop.orders", await shown(api))).status_code == 200
    assert api.metadata.catalog.topics["shop.orders"].stamp == stamp


@pytest.mark.parametrize(
    ("patch", "status", "code"),
    [
        ({"name": "shop.other"}, 400, "VALIDATION_ERROR"),
        ({"name": "nodot"}, 400, "FORMAT_ERROR"),
        ({"maxMessageSize": 1}, 400, "VALIDATION_ERROR"),
        ({"owner": {"source": "Ldap"}}, 400, "VALIDATION_ERROR"),
        ({"contentType": "AVRO"}, 400, "VALIDATION_ERROR"),
        ({"migratedFromJsonType": True}, 400, "VALIDATION_ERROR"),
        ({"contentType": "AVRO", "migratedFromJsonType": True}, 400, "VALIDATION_ERROR"),
        (
            {"contentType": "AVRO", "migratedFromJsonType": True, "schema": "{}"},
            400,
            "SCHEMA_BAD_REQUEST",
        ),
    ],
)
async def test_a_bad_patch_is_refused_and_changes_nothing(api, patch, status, code):
    await api.with_topic()
    assert api.refusal(await api.put("/topics/shop.orders", patch)) == (status, code)
    assert await shown(api) == DEFAULTS


async def test_a_topic_with_subscriptions_is_removed_only_if_all_agree(api):
    await api.with_topic()
    await api.with_subscription("billing")
    await api.with_subscription("audit", autoDeleteWithTopicEnabled=True)
    answer = await api.delete("/topics/shop.orders")
    assert api.refusal(answer) == (403, "TOPIC_NOT_EMPTY")
    assert (
        "it has 1 subscription without autoDeleteWithTopicEnabled, for example billing"
        in api.message(answer)
    )
    names = await api.get("/topics/shop.orders/subscriptions")
    assert names.json() == ["audit", "billing"]
    patch = {"autoDeleteWithTopicEnabled": True}
    await api.put("/topics/shop.orders/subscriptions/billing", patch)
    assert (await api.delete("/topics/shop.orders")).status_code == 200
    assert api.metadata.catalog.subscriptions == {}
    assert api.metadata.catalog.orphans == {}
    assert (await api.get("/topics")).json() == []


async def test_a_topic_created_again_is_a_new_life_with_a_log_topic_of_its_own(api):
    await api.with_topic()
    first = api.metadata.catalog.topics["shop.orders"]
    await api.delete("/topics/shop.orders")
    await api.with_topic()
    second = api.metadata.catalog.topics["shop.orders"]
    assert second.incarnation > first.incarnation
    assert second.log_topic != first.log_topic
    assert await api.log.topics.describe(second.log_topic) is not None


class TestWithRemovalDisabled:
    @pytest.fixture
    def settings(self):
        return ManagementConfig(allow_removal=False)

    async def test_nothing_is_removed_and_nothing_else_is_looked_at(self, api):
        await api.with_topic()
        await api.with_subscription(autoDeleteWithTopicEnabled=True)
        answer = await api.delete("/topics/shop.orders")
        assert api.refusal(answer) == (406, "OPERATION_DISABLED")
        assert list(api.metadata.catalog.subscriptions) == ["shop.orders$billing"]
        unknown = await api.delete("/topics/shop.nothing")
        assert api.refusal(unknown) == (406, "OPERATION_DISABLED")


async def test_topics_are_found_by_owner_and_name_their_clients_once(api):
    await api.with_topic("shop.b")
    await api.with_topic("shop.a")
    await api.with_topic("shop.c", owner={"source": "Plaintext", "id": "other"})
    found = (await api.get("/topics/owner/Plaintext/sales")).json()
    assert [topic["name"] for topic in found] == ["shop.a", "shop.b"]
    assert (await api.get("/topics/owner/Plaintext/nobody")).json() == []
    for name, owner in (("x", "beta"), ("y", "alpha"), ("z", "beta")):
        await api.with_subscription(name, "shop.a", owner={"source": "Plaintext", "id": owner})
    assert (await api.get("/topics/shop.a/clients")).json() == ["alpha", "beta"]


async def test_there_is_no_source_of_offline_clients(api):
    answer = await api.get("/topics/shop.orders/offline-clients-source")
    assert api.refusal(answer) == (404, "IMPLEMENTATION_ABSENT")
