"""What callers who are no administrators may do."""

import pytest

from hermes_actors.config import ManagementConfig
from tests.management.callers import ADMIN, FINANCE, SALES, STRANGER

TOPIC = "/topics/shop.orders"
SUBSCRIPTION = f"{TOPIC}/subscriptions/billing"
NOT_YOURS = (
    "Provide an owner that includes you, you would not be able to manage this subscription later"
)


@pytest.mark.parametrize(
    ("headers", "path", "roles"),
    [
        ({}, "/roles", ["any", "admin"]),
        (ADMIN, f"/roles{TOPIC}", ["any", "admin", "topicOwner"]),
        (SALES, "/roles", ["any"]),
        (SALES, f"/roles{TOPIC}", ["any", "topicOwner"]),
        (SALES, f"/roles{SUBSCRIPTION}", ["any", "topicOwner"]),
        (FINANCE, f"/roles{TOPIC}", ["any"]),
        (FINANCE, f"/roles{SUBSCRIPTION}", ["any", "subscriptionOwner"]),
        ({}, f"/roles{SUBSCRIPTION}", ["any", "admin", "topicOwner", "subscriptionOwner"]),
    ],
)
async def test_the_roles_of_a_caller(api, headers, path, roles):
    await api.with_topic()
    await api.with_subscription()
    assert (await api.get(path, headers=headers)).json() == roles


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("PUT", "/groups/shop", {}, []),
        ("PUT", TOPIC, {"description": "new"}, [SALES]),
        ("DELETE", "/topics/shop.spare", None, [SALES]),
        ("GET", f"{TOPIC}/messages", None, [SALES]),
        ("PUT", SUBSCRIPTION, {"description": "new"}, [FINANCE]),
        ("PUT", f"{SUBSCRIPTION}/state", "SUSPENDED", [SALES, FINANCE]),
        ("DELETE", SUBSCRIPTION, None, [SALES, FINANCE]),
    ],
)
@pytest.mark.parametrize("caller", [SALES, FINANCE, STRANGER, ADMIN])
async def test_who_may_change_what(api, method, path, body, allowed, caller):
    await api.with_topic()
    await api.with_topic("shop.spare")
    await api.with_subscription()
    content = {} if body is None else {"json": body}
    answer = await api.client.request(method, path, headers=caller, **content)
    if caller is ADMIN or caller in allowed:
        assert answer.status_code in (200, 204), answer.text
    elif path == SUBSCRIPTION and caller is SALES:
        # The topic's owner may change it, but not leave it with an owner who is not himself.
        assert api.refusal(answer) == (400, "VALIDATION_ERROR")
        assert api.message(answer) == NOT_YOURS
    else:
        assert api.refusal(answer) == (403, "OTHER")


async def test_groups_are_the_administrators_to_create_and_anybodys_to_remove(api):
    answer = await api.post("/groups", {"groupName": "shop"}, headers=SALES)
    assert api.refusal(answer) == (403, "PERMISSION_DENIED")
    assert (await api.post("/groups", {"groupName": "shop"}, headers=ADMIN)).status_code == 201
    assert (await api.delete("/groups/shop", headers=STRANGER)).status_code == 200


class TestWithOpenGroupCreation:
    @pytest.fixture
    def settings(self):
        return ManagementConfig(non_admin_group_creation=True)

    async def test_anybody_may_create_a_group(self, api):
        answer = await api.post("/groups", {"groupName": "shop"}, headers=STRANGER)
        assert answer.status_code == 201


CHAOS = {"mode": "GLOBAL", "globalPolicy": {"probability": 1}}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"fallbackToRemoteDatacenterEnabled": True},
            "User is not allowed to set non-default fallback to remote datacenter for this topic",
        ),
        ({"chaos": CHAOS}, "User is not allowed to set chaos policy for this topic"),
        ({"retentionTime": {"duration": 3}}, None),
        ({"retentionTime": {"duration": 49, "retentionUnit": "HOURS"}}, None),
        ({"owner": {"source": "Plaintext", "id": "finance"}}, None),
    ],
)
async def test_a_topic_that_only_administrators_may_create(api, fields, text):
    await api.post("/groups", {"groupName": "shop"})
    answer = await api.post("/topics", api.topic(**fields), headers=SALES)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert text is None or api.message(answer) == text
    assert (await api.post("/topics", api.topic(**fields), headers=ADMIN)).status_code == 201


class TestWithFallbackByDefault:
    @pytest.fixture
    def settings(self):
        return ManagementConfig(default_fallback_to_remote_datacenter=True)

    async def test_a_topic_that_does_not_say_falls_back(self, api):
        await api.post("/groups", {"groupName": "shop"})
        flag = "fallbackToRemoteDatacenterEnabled"
        answer = await api.post("/topics", api.topic(**{flag: False}), headers=SALES)
        assert api.message(answer) == (
            "User is not allowed to set non-default fallback to remote datacenter for this topic"
        )
        for name, fields in (("shop.a", {}), ("shop.b", {flag: None}), ("shop.c", {flag: True})):
            answer = await api.post("/topics", api.topic(name, **fields), headers=SALES)
            assert answer.status_code == 201
            assert (await api.get(f"/topics/{name}")).json()[flag] is True
        assert (await api.put("/topics/shop.a", {flag: None}, headers=SALES)).status_code == 200
        assert (await api.get("/topics/shop.a")).json()[flag] is True
        answer = await api.post("/topics", api.topic("shop.d", **{flag: False}), headers=ADMIN)
        assert answer.status_code == 201
        assert (await api.put("/topics/shop.d", {"description": "x"})).status_code == 200
        assert (await api.get("/topics/shop.d")).json()[flag] is False


class TestWithOtherOwnerSources:
    @pytest.fixture
    def settings(self):
        return ManagementConfig(owner_sources=["Teams", "Plaintext"])

    async def test_owners_may_be_of_any_of_them(self, api):
        owner = {"source": "Teams", "id": "sales"}
        body = {"groupName": "shop", "owner": owner}
        assert (await api.post("/groups", body)).status_code == 201
        assert (await api.post("/topics", api.topic(owner=owner))).status_code == 201
        await api.with_subscription(owner=owner)
        unknown = {"owner": {"source": "Ldap", "id": "sales"}}
        for path in ("/groups/shop", "/topics/shop.orders"):
            answer = await api.put(path, unknown)
            assert api.refusal(answer) == (400, "VALIDATION_ERROR")
            assert "known are Teams, Plaintext" in api.message(answer)
        listed = (await api.get("/owners/sources")).json()
        assert [each["name"] for each in listed] == ["Teams", "Plaintext"]
        assert (await api.get("/owners/sources/Teams/sales")).status_code == 200


@pytest.mark.parametrize(
    ("before", "patch", "text"),
    [
        ({}, {"fallbackToRemoteDatacenterEnabled": True}, None),
        ({"fallbackToRemoteDatacenterEnabled": True}, {"description": "new"}, None),
        (
            {"fallbackToRemoteDatacenterEnabled": True},
            {"fallbackToRemoteDatacenterEnabled": False},
            "User is not allowed to disable fallback to remote datacenter for this topic",
        ),
        ({"chaos": CHAOS}, {"description": "new"}, None),
        (
            {"chaos": CHAOS},
            {"chaos": {"mode": "DISABLED"}},
            "User is not allowed to update chaos policy for this topic",
        ),
        (
            {},
            {"chaos": CHAOS},
            "User is not allowed to update chaos policy for this topic",
        ),
        ({"retentionTime": {"duration": 9}}, {"description": "new"}, None),
        (
            {"retentionTime": {"duration": 9}},
            {"retentionTime": {"duration": 8}},
            "Topic.retentionTime must be at most 2 days; only an administrator may set more",
        ),
        ({"retentionTime": {"duration": 9}}, {"retentionTime": {"duration": 2}}, None),
    ],
)
async def test_what_an_owner_may_change_of_his_topic(api, before, patch, text):
    await api.with_topic(**before)
    answer = await api.put(TOPIC, patch, headers=SALES)
    if text is None:
        assert answer.status_code == 200, answer.text
    else:
        assert api.refusal(answer) == (400, "VALIDATION_ERROR")
        assert api.message(answer) == text
        assert (await api.put(TOPIC, patch, headers=ADMIN)).status_code == 200


async def test_a_subscription_needs_an_owner_that_includes_the_caller(api):
    await api.with_topic()
    path = f"{TOPIC}/subscriptions"
    answer = await api.post(path, api.subscription(), headers=STRANGER)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert api.message(answer) == NOT_YOURS
    assert (await api.post(path, api.subscription(), headers=FINANCE)).status_code == 201


async def test_the_inflight_size_is_the_administrators(api):
    await api.with_topic()
    body = api.subscription(subscriptionPolicy={"inflightSize": 5})
    path = f"{TOPIC}/subscriptions"
    answer = await api.post(path, body, headers=FINANCE)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "inflightSize" in api.message(answer)
    assert (await api.post(path, body, headers=ADMIN)).status_code == 201
    kept = {"subscriptionPolicy": {"inflightSize": 5, "rate": 9}}
    assert (await api.put(SUBSCRIPTION, kept, headers=FINANCE)).status_code == 200
    for size in (6, None):
        patch = {"subscriptionPolicy": {"inflightSize": size}}
        answer = await api.put(SUBSCRIPTION, patch, headers=FINANCE)
        assert api.refusal(answer) == (400, "VALIDATION_ERROR")
        assert (await api.put(SUBSCRIPTION, patch, headers=ADMIN)).status_code == 200


async def test_subscribing_to_a_restricted_topic(api):
    await api.with_topic(subscribingRestricted=True)
    path = f"{TOPIC}/subscriptions"
    answer = await api.post(path, api.subscription(), headers=FINANCE)
    assert api.refusal(answer) == (403, "PERMISSION_DENIED")
    assert api.message(answer) == (
        "Subscribing to this topic has been restricted. Contact the topic owner to create a new "
        "subscription."
    )
    own = api.subscription("own", owner={"source": "Plaintext", "id": "sales"})
    assert (await api.post(path, own, headers=SALES)).status_code == 201
    assert (await api.post(path, api.subscription(), headers=ADMIN)).status_code == 201
    moved = {"endpoint": "https://elsewhere.example.com/"}
    answer = await api.put(SUBSCRIPTION, moved, headers=FINANCE)
    assert api.refusal(answer) == (403, "PERMISSION_DENIED")
    assert api.message(answer) == (
        "Subscribing to this topic has been restricted. Contact the topic owner to modify the "
        "endpoint of this subscription."
    )
    other = {"description": "new"}
    assert (await api.put(SUBSCRIPTION, other, headers=FINANCE)).status_code == 200
    assert (await api.put(SUBSCRIPTION, moved, headers=ADMIN)).status_code == 200
