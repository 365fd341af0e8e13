"""What GraphQL answers, changes and streams is what REST does."""

import logging

import httpx
import msgspec
from graphql import get_introspection_query

from hermes_actors.model.redaction import MASK
from tests.management.callers import ADMIN, FINANCE, SALES
from tests.management.conftest import subscription_of, topic_of
from tests.management.graphql.asking import ask, data, error, events
from tests.management.messages.test_messages import publish

BILLING = "/topics/shop.orders/subscriptions/billing"
HELD = 'topic: "shop.orders", name: "billing"'


def within(part, whole):
    """True if the whole has each value of the part; a null is in an object without the field."""
    if isinstance(part, dict):
        return all(within(each, whole.get(name)) for name, each in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(within, part, whole))
    return part == whole


async def shop(api):
    await api.with_topic(schema='{"type":"object"}', labels={"team": "a"})
    await api.with_topic("shop.refunds", durability="PERFORMANCE")
    await api.with_subscription(signing={"secrets": ["whsec_" + "MDEy" * 11]})
    await api.with_subscription("audit", deliveryType="BATCH")


async def test_the_answers_are_those_of_rest(api):
    await shop(api)
    found = await data(
        api,
        """{
          groups { groupName owner { id } labels }
          topics(query: {name: {like: "shop.*"}, not: {name: "x"}}) { name durability memoryFull }
          topic(name: "shop.orders") {
            name description contentType retentionTime { duration retentionUnit } ack labels schema
            auth { publishers } createdAt metrics
            subscriptions {
              topicName name endpoint state deliveryType subscriptionPolicy { rate batchSize }
              signing { secrets } owner { source id } filters { type }
              metrics deadLettersEnabled cloudEventsEnabled tombstones
              lag { state lag datacenters { datacenter lag isKnown reason
                partitions { partition position lag start end isSeekPending } } }
              why { state datacenters { datacenter isKnown isDelivering reason
                reasons { code params text } nodes { node } } }
            }
          }
        }""",
    )
    topic = found["topic"]
    assert found["groups"] == [{"groupName": "shop", "owner": None, "labels": None}]
    # REST leaves out the defaults of fields that Hermes does not have.
    assert [tuple(each.values()) for each in found["topics"]] == [
        ("shop.orders", "EVENTUAL", "DROP_OLDEST"),
        ("shop.refunds", "PERFORMANCE", "DROP_OLDEST"),
    ]
    assert topic.pop("metrics") == (await api.get("/topics/shop.orders/metrics")).json()
    subscriptions = topic.pop("subscriptions")
    assert within(topic, (await api.get("/topics/shop.orders")).json())
    assert [each["name"] for each in subscriptions] == ["audit", "billing"]
    for each in subscriptions:
        at = f"/topics/shop.orders/subscriptions/{each['name']}"
        unsent = ("deadLettersEnabled", "cloudEventsEnabled", "tombstones")
        assert [each.pop(name) for name in unsent] == [True, False, "deliver"]
        for part in ("metrics", "lag", "why"):
            assert within(each.pop(part), (await api.get(f"{at}/{part}")).json())
        assert within(each, (await api.get(at)).json())


async def test_lists_are_read_in_pages(api):
    await shop(api)
    query = "query($n: Int!, $after: String!) { subscriptions(limit: $n, after: $after) { name } }"
    first = await data(api, query, n=1, after="")
    assert first == {"subscriptions": [{"name": "audit"}]}
    rest = await data(api, query, n=500, after="shop.orders$audit")
    assert rest == {"subscriptions": [{"name": "billing"}]}
    wrong = await ask(api, query, n=501, after="")
    assert wrong["data"] == {"subscriptions": None}
    assert wrong["errors"][0]["message"] == "limit must be from 1 to 500"


async def test_one_field_that_fails_leaves_the_others(api):
    await shop(api)
    answer = await ask(api, '{ topic(name: "shop.no") { name } groups { groupName } }')
    assert answer["data"] == {"topic": None, "groups": [{"groupName": "shop"}]}
    (problem,) = answer["errors"]
    assert problem["path"] == ["topic"]
    assert problem["extensions"] == {"code": "TOPIC_NOT_EXISTS", "status": 404}


async def test_what_is_created_by_graphql_is_what_rest_creates(api):
    mutation = """mutation($group: GroupInput!, $topic: TopicInput!, $new: SubscriptionInput!) {
      createGroup(group: $group) { groupName }
      createTopic(topic: $topic) { name schema }
      createSubscription(subscription: $new) { name state }
    }"""
    policy = {"rate": 7, "retryOn": [409]}
    topic = topic_of(schema='{"type":"object"}', retentionTime={"duration": 2})
    created = await data(
        api,
        mutation,
        ADMIN,
        group={"groupName": "shop"},
        topic=topic,
        new=subscription_of(subscriptionPolicy=policy),
    )
    assert created["createTopic"] == {"name": "shop.orders", "schema": topic["schema"]}
    assert created["createSubscription"] == {"name": "billing", "state": "PENDING"}
    stored = (await api.get(BILLING)).json()
    assert within(policy, stored["subscriptionPolicy"])
    changes = (await api.get("/audit")).json()["changes"]
    assert {each["by"] for each in changes} == {"admin"}
    again = await ask(api, mutation, ADMIN, group={"groupName": "shop"}, topic=topic, new={})
    assert "SubscriptionInput" in again["errors"][0]["message"]
    twice = 'mutation { createGroup(group: {groupName: "shop"}) { groupName } }'
    assert await error(api, twice, ADMIN) == "GROUP_ALREADY_EXISTS"


async def test_a_subscription_is_suspended_activated_and_moved(api, monkeypatch):
    monkeypatch.setattr("hermes_actors.management.offsets.retransmission.TAKEN_UP_WITHIN_S", 0.01)
    await shop(api)
    headers = {**FINANCE, "Hermes-Change-Reason": "too slow"}
    suspend = f"mutation {{ suspend({HELD}) {{ state }} }}"
    assert await data(api, suspend, headers) == {"suspend": {"state": "SUSPENDED"}}
    change = (await api.get("/audit")).json()["changes"][0]
    assert (change["by"], change["reason"]) == ("fay", "too slow")
    await publish(api, b"{}", b"{}")
    move = 'mutation { retransmit(%s, target: {to: "end"}%s) { cluster partition offset } }'
    moved = (await data(api, move % (HELD, ", dryRun: true"), FINANCE))["retransmit"]
    assert moved[0] == {"cluster": "dc1", "partition": 0, "offset": 2}
    latest = (await api.get("/audit")).json()["changes"][0]["id"]
    assert latest == change["id"]
    # No consumer is there to take the new position.
    code = "UNABLE_TO_MOVE_OFFSETS_EXCEPTION"
    assert await error(api, move % (HELD, ""), FINANCE) == code
    assert (await api.get("/audit")).json()["changes"][0]["id"] != latest
    activate = f"mutation {{ activate({HELD}) {{ state }} }}"
    assert await data(api, activate, FINANCE) == {"activate": {"state": "PENDING"}}


async def test_a_message_is_published_with_the_checks_of_publishers(api):
    await shop(api)
    accepted = []

    async def published(*message):
        accepted.append(message[:3])
        return "m-1", 202

    api.administered_with(publish=published)
    query = """mutation($body: String, $base64: String, $headers: [HeaderInput!]) {
      publish(topic: "shop.orders", body: $body, bodyBase64: $base64, key: "k", headers: $headers) {
        id isSpooled
      }
    }"""
    header = {"name": "Trace-Id", "value": "t"}
    answer = await data(api, query, SALES, body="{}", headers=[header])
    assert answer == {"publish": {"id": "m-1", "isSpooled": True}}
    await data(api, query, SALES, base64="AAE=")
    headers = [("Trace-Id", "t"), ("Partition-Key", "k")]
    assert accepted[0] == ("shop.orders", headers, b"{}")
    assert accepted[1] == ("shop.orders", headers[1:], b"\0\1")
    line = {"name": "A", "value": "b\r\nX-Admin: yes"}
    for wrong in ({}, {"body": "", "base64": ""}, {"base64": "?"}, {"body": "", "headers": [line]}):
        assert await error(api, query, SALES, **wrong) == "VALIDATION_ERROR"
    assert len(accepted) == 2


async def test_a_subscription_streams_messages_and_ends(api):
    await shop(api)
    await publish(api, b'{"a":1}', key=b"k", propagated=(("Trace-Id", "t"),))
    await publish(api, b"\xff", partition=1)
    fields = "id partition offset timestamp key headers body bodyBase64 error"
    given = 'topic: "shop.orders", from: "beginning", follow: false'
    found = await events(api, f"subscription {{ messages({given}) {{ {fields} }} }}", SALES)
    shown = [each["data"]["messages"] for each in found]
    tail = (await api.get("/topics/shop.orders/messages")).text.splitlines()
    for one, line in zip(shown, tail, strict=True):
        assert within(one, msgspec.json.decode(line))
    assert shown[1]["bodyBase64"] == "/w=="
    # A stream that follows the topic ends after its limit.
    follow = 'topic: "shop.orders", from: "beginning", limit: 1'
    found = await events(api, f"subscription {{ m: messages({follow}) {{ body }} }}", SALES)
    assert found == [{"data": {"m": {"body": '{"a":1}'}}}]


async def test_a_subscription_waits_for_messages(api, monkeypatch):
    monkeypatch.setattr("hermes_actors.management.messages.tail.IDLE_LINE_S", 0.01)
    await api.with_topic()
    sent = []

    async def watched(scope, receive, send):
        async def seen(event):
            sent.append(event.get("body"))
            if sent.count(b": no message\n\n") == 1:
                await publish(api, b"late")
            await send(event)

        await api.app(scope, receive, seen)

    query = 'subscription { messages(topic: "shop.orders", limit: 1) { body } }'
    transport = httpx.ASGITransport(app=watched)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        headers = {"accept": "text/event-stream"}
        answer = await client.post("/graphql", json={"query": query}, headers=headers)
    assert '"body":"late"' in answer.text
    assert answer.text.endswith("event: complete\ndata:\n\n")


async def test_a_long_chunk_of_messages_is_shown_in_parts(api, monkeypatch):
    monkeypatch.setattr("hermes_actors.management.graphql.endpoint.LINES_BYTES_MAX", 100)
    await api.with_topic()
    await publish(api, *(b"%d" % at for at in range(30)))
    given = 'topic: "shop.orders", from: "beginning", follow: false'
    found = await events(api, f"subscription {{ messages({given}) {{ body }} }}")
    assert [each["data"]["messages"]["body"] for each in found] == [str(at) for at in range(30)]


async def test_events_also_bring_one_result_and_errors(api):
    await shop(api)
    assert await events(api, "{ groups { groupName } }") == [
        {"data": {"groups": [{"groupName": "shop"}]}}
    ]
    (unknown,) = await events(api, 'subscription { messages(topic: "shop.no") { id } }')
    assert unknown["errors"][0]["extensions"]["code"] == "TOPIC_NOT_EXISTS"
    (wrong,) = await events(api, "{ nothing }")
    assert "Cannot query field 'nothing'" in wrong["errors"][0]["message"]
    assert wrong["errors"][0]["extensions"] == {"code": "VALIDATION_ERROR", "status": 400}
    answer = await api.post(
        "/graphql", {"query": 'subscription { messages(topic: "shop.orders") { id } }'}
    )
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "Accept: text/event-stream" in api.message(answer)


async def test_secrets_are_never_shown(api):
    await api.with_topic()
    await api.with_subscription(
        endpoint="https://u:hunter2@billing.example.com/",
        headers=[{"name": "X-Api-Key", "value": "hunter3"}],
        signing={"secrets": ["whsec_" + "MDEy" * 11]},
    )
    fields = "endpoint headers { name value } signing { secrets }"
    one = f"subscription({HELD}) {{ {fields} }}"
    answer = await ask(api, f"{{ {one} subscriptions {{ {fields} }} topics {{ name }} }}")
    text = str(answer)
    assert "hunter" not in text
    assert "whsec_" not in text
    shown = answer["data"]["subscription"]
    assert shown["headers"] == [{"name": "X-Api-Key", "value": MASK}]
    owned = await data(api, f"{{ {one} }}", FINANCE)
    assert owned["subscription"]["headers"][0]["value"] == "hunter3"


async def test_a_bug_shows_its_type_only(api, monkeypatch, caplog):
    async def broken():
        raise RuntimeError("hunter2")

    monkeypatch.setattr(api.administration.groups, "get", lambda _: broken())
    with caplog.at_level(logging.ERROR):
        answer = await ask(api, '{ group(name: "a") { groupName } }')
    text = "Internal error (RuntimeError); the node's log has the details"
    assert answer["errors"][0]["message"] == text
    assert "hunter2" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        await ask(api, "{ nothing }")
    assert caplog.text == ""


async def test_requests_that_are_none(api):
    for body, code in (
        ({}, "VALIDATION_ERROR"),
        ({"query": ""}, "FORMAT_ERROR"),
        ({"query": "x" * 16_385}, "FORMAT_ERROR"),
        ({"query": "{ a }", "operationName": "b"}, "VALIDATION_ERROR"),
        ({"query": "fragment f on Query { __typename }"}, "VALIDATION_ERROR"),
        ({"query": "{ a }", "variables": []}, "FORMAT_ERROR"),
        ([], "FORMAT_ERROR"),
    ):
        assert api.refusal(await api.post("/graphql", body)) == (400, code), body
    text = {"content-type": "text/plain"}
    answer = await api.client.post("/graphql", content='{"query":"{ a }"}', headers=text)
    assert answer.status_code == 415
    assert (await api.get("/graphql?query={__typename}")).status_code == 405


async def test_the_usual_tools_can_read_the_schema(api):
    found = await data(api, get_introspection_query())
    assert found["__schema"]["subscriptionType"]["name"] == "Subscription"
