"""A group's owner: what he may do, and who may subscribe because of him."""

import pytest

from hermes_actors.config import ManagementConfig
from tests.management.callers import ADMIN, FINANCE, SALES, STRANGER

CRAWLER = {"x-user": "cid", "x-teams": "crawler"}
TOPIC = "/topics/shop.orders"
SUBSCRIPTIONS = f"{TOPIC}/subscriptions"
FORBIDDEN = (403, "OTHER")


def owner(owner_id: str) -> dict[str, str]:
    return {"source": "Plaintext", "id": owner_id}


@pytest.fixture
async def owned(api):
    """The group shop of sales, with a topic of finance."""
    group = {"groupName": "shop", "owner": owner("sales")}
    assert (await api.post("/groups", group, headers=ADMIN)).status_code == 201
    await api.with_topic(owner=owner("finance"))
    return api


async def test_a_group_shows_its_owner_only_if_it_has_one(api):
    await api.post("/groups", {"groupName": "plain"})
    assert (await api.get("/groups/plain")).json() == {"groupName": "plain"}
    await api.post("/groups", {"groupName": "shop", "owner": owner("sales"), "supportTeam": "x"})
    assert (await api.get("/groups/shop")).json() == {
        "groupName": "shop",
        "owner": owner("sales"),
    }


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"owner": {"source": "Ldap", "id": "x"}}, "VALIDATION_ERROR"),
        ({"owner": {"source": "Plaintext"}}, "FORMAT_ERROR"),
        ({"owner": "sales"}, "FORMAT_ERROR"),
        ({"subscribers": [{"source": "Ldap", "id": "x"}]}, "VALIDATION_ERROR"),
        ({"subscribers": "everybody"}, "FORMAT_ERROR"),
    ],
)
async def test_a_wrong_owner_is_refused(api, fields, code):
    answer = await api.post("/groups", {"groupName": "shop", **fields})
    assert api.refusal(answer) == (400, code)


async def test_the_owner_changes_the_group_and_keeps_it(owned):
    api = owned
    subscribers = {"subscribers": [owner("marketing")]}
    assert api.refusal(await api.put("/groups/shop", subscribers, headers=FINANCE)) == FORBIDDEN
    assert (await api.put("/groups/shop", subscribers, headers=SALES)).status_code == 204
    assert (await api.get("/groups/shop")).json() == {
        "groupName": "shop",
        "owner": owner("sales"),
        **subscribers,
    }
    answer = await api.put("/groups/shop", {"owner": owner("finance")}, headers=SALES)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    answer = await api.put("/groups/shop", {"groupName": "other"}, headers=SALES)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert (await api.put("/groups/shop", {"owner": None}, headers=ADMIN)).status_code == 204
    assert "owner" not in (await api.get("/groups/shop")).json()


async def test_only_the_owner_creates_topics_and_removes_the_group(owned):
    api = owned
    body = api.topic("shop.new", owner=owner("finance"))
    assert api.refusal(await api.post("/topics", body, headers=FINANCE)) == (
        403,
        "PERMISSION_DENIED",
    )
    body = api.topic("shop.new")
    assert (await api.post("/topics", body, headers=SALES)).status_code == 201
    for path in ("/topics/shop.new", TOPIC):
        assert (await api.delete(path, headers=SALES)).status_code == 200
    assert api.refusal(await api.delete("/groups/shop", headers=FINANCE)) == FORBIDDEN
    assert (await api.delete("/groups/shop", headers=SALES)).status_code == 200


async def test_the_owner_of_the_group_owns_its_topics_and_their_subscriptions(owned):
    api = owned
    assert (await api.get(f"/roles{TOPIC}", headers=SALES)).json() == ["any", "topicOwner"]
    patch = {"subscribingRestricted": True}
    assert (await api.put(TOPIC, patch, headers=SALES)).status_code == 200
    assert (await api.get(f"{TOPIC}/messages", headers=SALES)).status_code == 200
    mine = api.subscription(owner=owner("marketing"))
    assert (await api.post(SUBSCRIPTIONS, mine, headers=ADMIN)).status_code == 201
    path = f"{SUBSCRIPTIONS}/billing"
    assert (await api.put(f"{path}/state", "SUSPENDED", headers=SALES)).status_code == 200
    assert (await api.delete(path, headers=SALES)).status_code == 200
    assert api.refusal(await api.put(TOPIC, patch, headers=STRANGER)) == FORBIDDEN


async def test_the_owner_of_the_group_decides_who_may_subscribe(owned):
    api = owned
    await api.put(TOPIC, {"subscribingRestricted": True}, headers=SALES)
    wanted = api.subscription(owner=owner("marketing"))
    answer = await api.post(SUBSCRIPTIONS, wanted, headers=STRANGER)
    assert api.refusal(answer) == (403, "PERMISSION_DENIED")
    assert api.message(answer).startswith("Subscribing to this topic has been restricted.")
    await api.put("/groups/shop", {"subscribers": [owner("marketing")]}, headers=SALES)
    assert (await api.post(SUBSCRIPTIONS, wanted, headers=STRANGER)).status_code == 201
    # Who is let in is let in for himself.
    answer = await api.post(
        SUBSCRIPTIONS, api.subscription("more", owner=owner("crawler")), headers=CRAWLER
    )
    assert api.refusal(answer) == (403, "PERMISSION_DENIED")
    await api.put("/groups/shop", {"subscribers": []}, headers=SALES)
    moved = {"endpoint": "https://elsewhere.example.com/"}
    answer = await api.put(f"{SUBSCRIPTIONS}/billing", moved, headers=STRANGER)
    assert api.message(answer).endswith("to modify the endpoint of this subscription.")
    own = api.subscription("own", owner=owner("sales"))
    assert (await api.post(SUBSCRIPTIONS, own, headers=SALES)).status_code == 201


class TestPrivilegedSubscribers:
    @pytest.fixture
    def settings(self):
        return ManagementConfig(
            subscribers_with_access_to_any_topic=["Plaintext:crawler https", "Plaintext:other http"]
        )

    async def test_an_owner_with_access_to_any_topic_by_his_protocols(self, owned):
        api = owned
        await api.put(TOPIC, {"subscribingRestricted": True}, headers=SALES)
        plain = api.subscription(owner=owner("crawler"), endpoint="http://crawler.example.com/")
        answer = await api.post(SUBSCRIPTIONS, plain, headers=CRAWLER)
        assert api.refusal(answer) == (403, "PERMISSION_DENIED")
        secure = {**plain, "endpoint": "https://crawler.example.com/"}
        assert (await api.post(SUBSCRIPTIONS, secure, headers=CRAWLER)).status_code == 201
        path = f"{SUBSCRIPTIONS}/billing"
        answer = await api.put(path, {"endpoint": "http://crawler.example.com/"}, headers=CRAWLER)
        assert api.refusal(answer) == (403, "PERMISSION_DENIED")
        answer = await api.put(path, {"endpoint": "https://new.example.com/"}, headers=CRAWLER)
        assert answer.status_code == 200
