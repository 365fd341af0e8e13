"""Queries and search over HTTP, as Hermes' scripts and its console ask them."""

from itertools import count

import pytest

from hermes_actors.errors import Refused
from hermes_actors.management.queries.conditions import Query


@pytest.fixture
async def shop(api):
    """Three topics of two groups, and two subscriptions."""
    await api.with_topic("shop.orders", trackingEnabled=True)
    await api.with_topic("shop.returns", owner={"source": "Plaintext", "id": "Returns"})
    await api.with_topic("money.invoices", maxMessageSize=2_048)
    await api.with_subscription("billing")
    await api.with_subscription(
        "archive", "shop.returns", endpoint="https://user:secret@archive.example.com/all"
    )
    return api


async def names(api, path, conditions):
    answer = await api.post(path, {"query": conditions})
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()]


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, ["money.invoices", "shop.orders", "shop.returns"]),
        ({"name": "shop.orders"}, ["shop.orders"]),
        ({"name": {"eq": "shop.orders"}}, ["shop.orders"]),
        ({"name": {"NE": "shop.orders"}}, ["money.invoices", "shop.returns"]),
        ({"owner.id": {"in": ["Returns", "nobody"]}}, ["shop.returns"]),
        ({"name": {"like": "shop"}}, []),
        ({"name": {"like": "shop.*"}, "trackingEnabled": False}, ["shop.returns"]),
        ({"owner.id": {"like": "(?i).*returns.*"}}, ["shop.returns"]),
        ({"maxMessageSize": "2048"}, ["money.invoices"]),
        ({"maxMessageSize": {"gt": 2048}}, ["shop.orders", "shop.returns"]),
        ({"maxMessageSize": {"lt": 2049}}, ["money.invoices"]),
        ({"trackingEnabled": "true"}, ["shop.orders"]),
        ({"description": None}, []),
        ({"not": {"name": {"like": "shop.*"}}}, ["money.invoices"]),
        (
            {"or": [{"name": "shop.orders"}, {"owner.id": "Returns"}]},
            ["shop.orders", "shop.returns"],
        ),
        ({"and": [{"name": {"like": "shop.*"}}, {"trackingEnabled": True}]}, ["shop.orders"]),
        ({"no.such.field": 1}, []),
        ({"not": {"noSuchField": 1}}, []),
    ],
)
async def test_a_query_finds_the_topics_that_fulfil_its_conditions(shop, conditions, found):
    assert await names(shop, "/query/topics", conditions) == found


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "query must be an object"),
        ({"query": []}, "query must be an object"),
        ({"query": {"name": {"eq": "a", "ne": "b"}}}, "name must have one operator, it has 2"),
        (
            {"query": {"name": {"is": "a"}}},
            "'is' is not an operator; use eq, ne, in, like, gt or lt",
        ),
        ({"query": {"name": {"in": "a"}}}, "name.in must be a list"),
        ({"query": {"name": {"like": "("}}}, "name.like must be a regular expression"),
        ({"query": {"name": {"like": "a{1000}"}}}, "too large"),
        ({"query": {"or": {"name": "a"}}}, "or must be a list"),
        ({"query": {"or": [{"name": {"like": f"(a|b)*{n}"}} for n in range(1_000)]}}, "8192"),
        ({"query": {"name": {"in": ["a" * 100] * 1_000}}}, "8192"),
    ],
)
async def test_a_malformed_query_is_refused_with_its_field_and_reason(shop, body, problem):
    answer = await shop.post("/query/topics", body)
    assert shop.refusal(answer) == (400, "FORMAT_ERROR")
    assert problem in shop.message(answer)


async def test_a_bound_that_is_no_number_is_refused_as_in_hermes(shop):
    answer = await shop.post("/query/topics", {"query": {"maxMessageSize": {"gt": "much"}}})
    assert shop.refusal(answer) == (400, "OTHER")


async def test_a_pattern_that_backtracks_for_ever_is_refused(shop):
    await shop.with_topic("shop.long", description="a" * 40)
    pattern = {"description": {"like": "(a|aa)+(a|aa)+b"}}
    answer = await shop.post("/query/topics", {"query": pattern})
    assert shop.refusal(answer) == (400, "FORMAT_ERROR")
    assert "takes too long" in shop.message(answer)


def test_a_query_whose_comparisons_take_too_long_together_is_refused():
    seconds = count()
    query = Query({"query": {"name": "a"}}, lambda: next(seconds) * 0.1)
    with pytest.raises(Refused, match="takes too long"):
        for _ in range(100):
            query.takes({"name": "b"})


async def test_subscriptions_and_groups_are_queried_by_post_and_by_put(shop):
    answer = await shop.put("/query/subscriptions", {"query": {"owner.id": "finance"}})
    assert [each["name"] for each in answer.json()] == ["billing", "archive"]
    answer = await shop.put("/query/groups", {"query": {"groupName": {"like": "m.*"}}})
    assert answer.json() == [{"groupName": "money"}]


async def test_secrets_can_neither_be_seen_nor_guessed_by_a_query(shop):
    by_secret = {"endpoint": {"like": ".*secret.*"}}
    assert await names(shop, "/query/subscriptions", by_secret) == []
    assert (await shop.get("/search/query", params={"q": "secret"})).json()["totalCount"] == 0


async def test_metrics_are_queried_with_names_and_an_unavailable_rate_is_beyond_any_bound(shop):
    busy = {"rate": {"gt": 100}, "name": {"like": "shop.*"}}
    assert await names(shop, "/query/topics/metrics", busy) == ["shop.orders", "shop.returns"]
    answer = await shop.post("/query/subscriptions/metrics", {"query": {"lag": {"gt": "-2"}}})
    assert [(each["topicName"], each["name"]) for each in answer.json()] == [
        ("shop.orders", "billing"),
        ("shop.returns", "archive"),
    ]


async def test_queries_below_topics_answer_with_names(shop):
    by_name = {"query": {"name": {"like": ".*o.*"}}}
    answer = await shop.post("/topics/query", by_name, params={"groupName": "shop"})
    assert answer.json() == ["shop.orders", "shop.returns"]
    answer = await shop.post("/topics/shop.orders/subscriptions/query", {"query": {}})
    assert answer.json() == ["billing"]
    answer = await shop.post("/topics/shop.gone/subscriptions/query", {"query": {}})
    assert shop.refusal(answer) == (404, "TOPIC_NOT_EXISTS")


async def test_no_subscription_is_called_query_whose_path_could_not_be_told_from_a_querys(shop):
    answer = await shop.post("/topics/shop.orders/subscriptions", shop.subscription("query"))
    assert shop.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "Subscription.name must not be 'query'" in shop.message(answer)


async def test_search_finds_names_owners_and_endpoints_in_any_letter_case(shop):
    async def found(text):
        return (await shop.get("/search/query", params={"q": text})).json()

    assert (await found("ORDERS.")) == {"results": [], "totalCount": 0}
    assert await found("returns") == {
        "results": [
            {
                "type": "TOPIC",
                "name": "shop.returns",
                "topic": {"groupName": "shop", "owner": {"id": "Returns"}},
            }
        ],
        "totalCount": 1,
    }
    assert await found("ARCHIVE.example") == {
        "results": [
            {
                "type": "SUBSCRIPTION",
                "name": "archive",
                "subscription": {
                    "endpoint": "https://user:*****@archive.example.com/all",
                    "topic": {
                        "name": "returns",
                        "qualifiedName": "shop.returns",
                        "groupName": "shop",
                    },
                },
            }
        ],
        "totalCount": 1,
    }
    assert await found(" ") == {"results": [], "totalCount": 0}
