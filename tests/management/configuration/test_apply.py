"""POST /apply: many items at once, and what a dry run says beforehand."""

from typing import Any

import pytest
import trio

from hermes_actors.management.configuration.apply import AT_ONCE
from hermes_actors.model.redaction import MASK
from tests.management.callers import ADMIN, SALES, STRANGER
from tests.management.conftest import Api

SECRET = "hunter2"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def provider(**fields: Any) -> dict[str, Any]:
    return {
        "name": "sso",
        "tokenEndpoint": "https://id.example.com/token",
        "clientId": "c",
        "clientSecret": SECRET,
        "tokenRequestInitialDelay": 100,
        "tokenRequestMaxDelay": 60_000,
        "requestTimeout": 1_000,
        **fields,
    }


def whole(api: Api, **fields: Any) -> dict[str, Any]:
    return {
        "oauthProviders": [provider()],
        "groups": [{"groupName": "shop", "labels": {"team": "sales"}}],
        "topics": [api.topic(labels={"team": "sales"}, schema=SCHEMA), api.topic("shop.carts")],
        "subscriptions": [
            api.subscription(
                endpoint="https://ada:hunter2@billing.example.com/", labels={"team": "sales"}
            )
        ],
        "workloadConstraints": [
            {"topicName": "shop.orders", "constraints": {"consumersNumber": 2}},
            {"subscriptionName": "shop.orders$billing", "constraints": {"consumersNumber": 3}},
        ],
        **fields,
    }


RESOURCES = [
    "oauth/providers/sso",
    "groups/shop",
    "topics/shop.orders",
    "topics/shop.carts",
    "topics/shop.orders/subscriptions/billing",
    "workload-constraints/topic/shop.orders",
    "workload-constraints/subscription/shop.orders/billing",
]


async def applied(
    api: Api, body: dict[str, Any], *, dry: bool = False, **kwargs: Any
) -> dict[str, Any]:
    path = "/apply?dryRun=true" if dry else "/apply"
    answer = await api.post(path, body, **kwargs)
    assert answer.status_code == 200, answer.text
    return {each["resource"]: each for each in answer.json()}


def actions(rows: dict[str, Any]) -> dict[str, str]:
    return {name: row.get("action", row.get("error")) for name, row in rows.items()}


async def test_all_kinds_are_created_with_their_parents_then_nothing_changes(api: Api) -> None:
    end = api.metadata.state.position
    rehearsed = await applied(api, whole(api), dry=True)
    assert actions(rehearsed) == dict.fromkeys(RESOURCES, "create")
    assert api.metadata.state.position == end
    assert "shop.orders" not in api.log.topics.by_name
    done = await applied(api, whole(api))
    assert actions(done) == dict.fromkeys(RESOURCES, "create")
    assert [*done] == RESOURCES
    assert SECRET not in str(rehearsed) + str(done)
    orders = (await api.get("/topics/shop.orders")).json()
    assert (orders["labels"], orders["schema"]) == (
        {"team": "sales"},
        '{"type":"object","properties":{"id":{"type":"integer"}}}',
    )
    end = api.metadata.state.position
    for dry in (True, False):
        assert actions(await applied(api, whole(api), dry=dry)) == dict.fromkeys(RESOURCES, "none")
    assert api.metadata.state.position == end


async def test_a_change_shows_the_fields_that_differ_secrets_masked(api: Api) -> None:
    await applied(api, whole(api))
    wider = {**SCHEMA, "title": "order"}
    body = {
        "oauthProviders": [provider(clientSecret="hunter3")],
        "topics": [{"name": "shop.orders", "ack": "ALL", "schema": wider}],
        "subscriptions": [
            {
                "topicName": "shop.orders",
                "name": "billing",
                "subscriptionPolicy": {"rate": 7},
                "labels": {"tier": "1"},
            }
        ],
    }
    rehearsed = await applied(api, body, dry=True)
    assert rehearsed == await applied(api, body)
    assert rehearsed["oauth/providers/sso"] == {
        "resource": "oauth/providers/sso",
        "action": "change",
        "before": {"clientSecret": MASK},
        "after": {"clientSecret": MASK},
    }
    orders = rehearsed["topics/shop.orders"]
    assert (orders["before"]["ack"], orders["after"]["ack"]) == ("LEADER", "ALL")
    assert "title" in orders["after"]["schema"]
    assert "title" not in orders["before"]["schema"]
    billing = rehearsed["topics/shop.orders/subscriptions/billing"]
    assert billing["before"] == {"subscriptionPolicy": {"rate": 400}, "labels": {"tier": None}}
    assert billing["after"] == {"subscriptionPolicy": {"rate": 7}, "labels": {"tier": "1"}}
    stored = (await api.get("/topics/shop.orders/subscriptions/billing")).json()
    assert stored["labels"] == {"team": "sales", "tier": "1"}


async def test_an_error_stops_only_what_is_below_it_and_names_the_field(api: Api) -> None:
    body = {
        "groups": [{"groupName": "shop"}, {"groupName": "a-b"}],
        "topics": [api.topic(akc="ALL"), api.topic("shop.carts"), api.topic("a-b.c")],
        "subscriptions": [
            api.subscription(),
            api.subscription(topic="shop.carts", endpoint="https://u:*****@b.example.com/"),
            api.subscription("audit", "shop.carts", deliveryType="BATCH", labels={"a.b": "c"}),
            api.subscription(
                "slow", "shop.carts", deliveryType="BATCH", subscriptionPolicy={"rate": 1}
            ),
        ],
    }
    for dry in (True, False):
        rows = await applied(api, body, dry=dry)
        told = {name: row["error"]["message"] for name, row in rows.items() if "error" in row}
        assert {name for name, row in rows.items() if "error" not in row} == {
            "groups/shop",
            "topics/shop.carts",
        }
        assert "akc is unknown; did you mean ack?" in told["topics/shop.orders"]
        assert told["topics/shop.orders/subscriptions/billing"] == (
            "Skipped, because topics/shop.orders failed"
        )
        assert told["topics/a-b.c"] == "Skipped, because groups/a-b failed"
        assert (
            "endpoint: asterisks are not the secret"
            in (told["topics/shop.carts/subscriptions/billing"])
        )
        assert "Subscription.labels[a.b]" in told["topics/shop.carts/subscriptions/audit"]
        assert "subscriptionPolicy.rate is unknown" in told["topics/shop.carts/subscriptions/slow"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"topic": []}, "topic is unknown; did you mean topics?"),
        ({"topics": [{"nmae": "a.b"}]}, "topics[0].name must be a name"),
        ({"groups": [{"groupName": "a"}, {"groupName": "a"}]}, "groups/a appears twice"),
        ({"topics": {}}, "topics must be a list"),
        ({"workloadConstraints": [{"subscriptionName": "a.b"}]}, "<group>.<topic>$<subscription>"),
        ({"delete": ["topics/a.b"]}, "Expected an object with the lists oauthProviders, groups"),
        ({"delete": {"topics": [{}]}}, "topics[0].name must be a name"),
    ],
)
async def test_a_malformed_configuration_is_refused_as_a_whole(api: Api, body, problem) -> None:
    body.setdefault("groups", []).append({"groupName": "fine"})
    answer = await api.post("/apply", body)
    assert answer.status_code == 400
    assert problem in api.message(answer)
    assert not api.metadata.catalog.groups


async def test_each_item_needs_the_rights_that_its_own_route_needs(api: Api) -> None:
    await applied(api, whole(api))
    body = {
        "groups": [{"groupName": "mine"}],
        "topics": [{"name": "shop.orders", "ack": "ALL"}],
        "delete": {"topics": [{"name": "shop.carts"}]},
    }
    for dry in (True, False):
        refused = await applied(api, body, headers=STRANGER, dry=dry)
        assert {row["error"]["code"] for row in refused.values()} == {"PERMISSION_DENIED", "OTHER"}
        assert len(refused) == 3
    owned = await applied(api, {"topics": body["topics"]}, headers=SALES)
    assert actions(owned) == {"topics/shop.orders": "change"}
    unchanged = {**whole(api), "subscriptions": [], "oauthProviders": []}
    unchanged["topics"] = [{**each, "ack": "ALL"} for each in unchanged["topics"][:1]]
    for dry in (True, False):
        same = await applied(api, unchanged, headers=STRANGER, dry=dry)
        assert len(same) > 1
        assert set(actions(same).values()) == {"none"}
    assert actions(await applied(api, body, headers=ADMIN)) == {
        "groups/mine": "create",
        "topics/shop.orders": "none",
        "topics/shop.carts": "delete",
    }


async def test_deletions_go_from_children_to_parents_and_refusals_are_told(api: Api) -> None:
    await applied(api, whole(api))
    body = {"delete": whole(api)}
    assert {*actions(await applied(api, body, dry=True)).values()} == {"delete"}
    await api.with_subscription("theirs", "shop.carts")
    for dry in (True, False):
        rows = await applied(api, body, dry=dry)
        codes = {name: row["error"]["code"] for name, row in rows.items() if "error" in row}
        assert codes == {"topics/shop.carts": "TOPIC_NOT_EMPTY", "groups/shop": "GROUP_NOT_EMPTY"}
    assert [*api.metadata.catalog.topics] == ["shop.carts"]
    assert not api.metadata.catalog.constraints


async def test_an_older_version_of_a_schema_is_told_instead_of_taken_for_the_newest(
    api: Api,
) -> None:
    await applied(api, whole(api))
    wider = {**SCHEMA, "title": "order"}
    await applied(api, {"topics": [{"name": "shop.orders", "schema": wider}]})
    rows = await applied(api, {"topics": [{"name": "shop.orders", "schema": SCHEMA}]}, dry=True)
    assert (
        "is version 1 of shop.orders; the newest is 2"
        in (rows["topics/shop.orders"]["error"]["message"])
    )


async def test_a_dry_run_of_many_items_lets_other_tasks_run(api: Api) -> None:
    body = {
        "groups": [{"groupName": "shop"}],
        "topics": [api.topic(f"shop.t{at}") for at in range(100)],
    }
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        rows = await applied(api, body, dry=True)
        nursery.cancel_scope.cancel()
    assert len(rows) == 101
    assert turns > 101 / AT_ONCE


async def test_labels_are_bounded_patched_and_queried(api: Api) -> None:
    await applied(api, whole(api))
    for path in ("/query/groups", "/query/topics", "/query/subscriptions"):
        found = (await api.post(path, {"query": {"labels.team": "sales"}})).json()
        assert len(found) == 1
    patch = {"labels": {"team": None, "tier": "1"}}
    for path in ("/groups/shop", "/topics/shop.orders", "/oauth/providers/sso"):
        await api.put(path, patch)
        assert (await api.get(path)).json()["labels"] == {"tier": "1"}
        many = await api.put(path, {"labels": {f"k{at}": "v" for at in range(16)}})
        long = await api.put(path, {"labels": {"k": "v" * 64}})
        assert api.refusal(many) == api.refusal(long) == (400, "VALIDATION_ERROR")
    # Hermes' topics had a list of labels once, which scripts may still send.
    assert (await api.put("/topics/shop.orders", {"labels": [{"value": "x"}]})).status_code == 200
    assert (await api.get("/topics/shop.orders")).json()["labels"] == {"tier": "1"}
    assert "labels" not in (await api.get("/topics/shop.carts")).json()


async def test_only_the_first_refusals_suggest_names(api: Api) -> None:
    groups = [{"groupName": f"g{number}", "onwer": None} for number in range(200)]
    rows = await applied(api, {"groups": groups})
    told = ["did you mean owner" in each["error"]["message"] for each in rows.values()]
    assert told[0]
    assert sum(told) <= 24
    assert all("onwer is unknown" in each["error"]["message"] for each in rows.values())
