"""Subscriptions over HTTP."""

import pytest
import trio

from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.keys import activation_key

START_S = 1_700_000_000.0
BASE = "/topics/shop.orders/subscriptions"
PATH = f"{BASE}/billing"
SERIAL = {
    "rate": 400,
    "messageTtl": 3600,
    "messageBackoff": 100,
    "requestTimeout": 1000,
    "socketTimeout": 0,
    "sendingDelay": 0,
    "backoffMultiplier": 1.0,
    "backoffMaxIntervalInSec": 600,
    "backoffMaxIntervalMillis": 600000,
    "retryClientErrors": False,
}
BATCH = {
    "messageTtl": 60,
    "messageBackoff": 500,
    "requestTimeout": 30000,
    "batchSize": 100,
    "batchTime": 30000,
    "batchVolume": 64000,
    "retryClientErrors": False,
}
DEFAULTS = {
    "topicName": "shop.orders",
    "name": "billing",
    "endpoint": "https://billing.example.com/orders",
    "description": "sends the bill",
    "owner": {"source": "Plaintext", "id": "finance"},
    "state": "PENDING",
    "deliveryType": "SERIAL",
    "subscriptionPolicy": SERIAL,
    "mode": "ANYCAST",
    "contentType": "JSON",
    "trackingEnabled": False,
    "trackingMode": "trackingOff",
    "monitoringDetails": {"severity": "NON_IMPORTANT", "reaction": ""},
    "filters": [],
    "headers": [],
    "endpointAddressResolverMetadata": {},
    "http2Enabled": False,
    "profilingEnabled": False,
    "profilingThresholdMs": 0,
    "subscriptionIdentityHeadersEnabled": False,
    "autoDeleteWithTopicEnabled": False,
    "metricsConfig": {"messageProcessing": {"enabled": False, "thresholdsMilliseconds": []}},
    "createdAt": START_S,
    "modifiedAt": START_S,
}


async def shown(api):
    answer = await api.get(PATH)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def started_in(api, dc):
    """What a consumer does when it starts."""
    live = api.metadata.catalog.subscriptions["shop.orders$billing"]
    await api.metadata.change(put(activation_key(live.name, dc), activation_body(live.incarnation)))


async def test_a_minimal_subscription_is_shown_with_every_default(api):
    await api.with_topic()
    answer = await api.post(BASE, api.subscription())
    assert (answer.status_code, answer.content) == (201, b"")
    assert await shown(api) == DEFAULTS
    assert '"backoffMultiplier":1.0' in (await api.get(PATH)).text


async def test_a_batch_subscription_has_the_defaults_of_a_batch(api):
    await api.with_topic()
    await api.with_subscription(deliveryType="BATCH")
    assert await shown(api) == {
        **DEFAULTS,
        "deliveryType": "BATCH",
        "subscriptionPolicy": BATCH,
    }


async def test_every_field_given_is_kept_and_secrets_are_masked(api):
    fields = {
        "endpoint": "https://user:hunter2@host.example.com/{id}",
        "mode": "BROADCAST",
        "trackingMode": "discardedOnly",
        "monitoringDetails": {"severity": "CRITICAL", "reaction": "call"},
        "filters": [
            {"type": "jsonpath", "matcher": "a.*", "path": "$.a", "matchingStrategy": "any"},
            {"type": "header", "matcher": "b", "header": "X-B", "matchingStrategy": "all"},
        ],
        "headers": [{"name": "X-C", "value": "c"}],
        "endpointAddressResolverMetadata": {"a": {"b": None}},
        "oAuthPolicy": {
            "grantType": "password",
            "providerName": "p",
            "username": "u",
            "password": "hunter2",
        },
        "http2Enabled": True,
        "profilingEnabled": True,
        "profilingThresholdMs": 5,
        "subscriptionIdentityHeadersEnabled": True,
        "autoDeleteWithTopicEnabled": True,
        "metricsConfig": {"messageProcessing": {"enabled": True, "thresholdsMilliseconds": [1, 2]}},
    }
    await api.with_topic()
    await api.with_subscription(
        **fields, subscriptionPolicy={"rate": 7, "inflightSize": 3, "backoffMaxIntervalInSec": 2}
    )
    after = await shown(api)
    assert after["subscriptionPolicy"] == {
        **SERIAL,
        "rate": 7,
        "inflightSize": 3,
        "backoffMaxIntervalInSec": 2,
        "backoffMaxIntervalMillis": 2000,
    }
    assert after["endpoint"] == "https://user:*****@host.example.com/{id}"
    assert after["oAuthPolicy"] == {**fields["oAuthPolicy"], "password": "******"}
    assert after["trackingEnabled"] is True
    assert after["filters"][0] == {
        "type": "jsonpath",
        "matcher": "a.*",
        "path": "$.a",
        "matchingStrategy": "any",
    }
    for field in set(fields) - {"endpoint", "oAuthPolicy", "filters"}:
        assert after[field] == fields[field]
    owned = await api.get("/subscriptions/owner/Plaintext/finance")
    assert owned.json() == [after]
    assert "hunter2" not in owned.text
    live = api.metadata.catalog.subscriptions["shop.orders$billing"].subscription
    assert live.endpoint == fields["endpoint"]
    assert live.o_auth_policy.password == "hunter2"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topicName": "shop.other"}, "VALIDATION_ERROR"),
        ({"topicName": None}, "VALIDATION_ERROR"),
        ({"endpoint": "ftp://host/"}, "VALIDATION_ERROR"),
        ({"owner": {"source": "Ldap", "id": "x"}}, "VALIDATION_ERROR"),
        ({"subscriptionPolicy": {"rate": 0}}, "VALIDATION_ERROR"),
        ({"filters": [{"type": "avropath", "path": ".a", "matcher": "x"}]}, "VALIDATION_ERROR"),
        ({"filters": [{"type": "xpath", "path": ".a", "matcher": "x"}]}, "VALIDATION_ERROR"),
        ({"state": "ASLEEP"}, "FORMAT_ERROR"),
    ],
)
async def test_a_bad_subscription_is_refused_and_leaves_nothing(api, fields, code):
    await api.with_topic()
    answer = await api.post(BASE, api.subscription(**fields))
    assert api.refusal(answer) == (400, code)
    assert (await api.get(BASE)).json() == []


@pytest.mark.parametrize(
    ("method", "suffix"),
    [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/state"), ("PUT", "/state")],
)
@pytest.mark.parametrize("topic", ["shop.orders", "shop.nothing"])
async def test_an_unknown_subscription_is_400(api, method, suffix, topic):
    await api.with_topic()
    bodies = {("PUT", ""): {"json": {}}, ("PUT", "/state"): {"json": "ACTIVE"}}
    answer = await api.client.request(
        method, f"/topics/{topic}/subscriptions/x{suffix}", **bodies.get((method, suffix), {})
    )
    assert api.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")


async def test_subscriptions_are_listed_in_order_and_by_tracking(api):
    await api.with_topic()
    await api.with_subscription("c", trackingEnabled=True)
    await api.with_subscription("a", trackingEnabled=True, state="SUSPENDED")
    await api.with_subscription("b")
    assert (await api.get(BASE)).json() == ["a", "b", "c"]
    assert (await api.get(BASE + "?tracked=true")).json() == ["c"]


async def test_the_state_is_pending_then_active_then_suspended_then_active(api):
    await api.with_topic()
    await api.with_subscription(state="ACTIVE")
    assert (await api.get(PATH + "/state")).json() == "PENDING"
    await started_in(api, "dc2")
    assert (await api.get(PATH + "/state")).json() == "ACTIVE"
    assert (await shown(api))["state"] == "ACTIVE"
    answer = await api.put(PATH + "/state", "SUSPENDED")
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await api.get(PATH + "/state")).json() == "SUSPENDED"
    assert (await api.put(PATH + "/state", "PENDING")).status_code == 200
    assert (await api.get(PATH + "/state")).json() == "SUSPENDED"
    assert (await api.put(PATH + "/state", "ACTIVE")).status_code == 200
    assert (await api.get(PATH + "/state")).json() == "ACTIVE"


@pytest.mark.parametrize("state", ["ASLEEP", "active", 5, None, {"state": "ACTIVE"}])
async def test_another_state_is_refused(api, state):
    await api.with_topic()
    await api.with_subscription()
    answer = await api.put(PATH + "/state", state)
    assert api.refusal(answer) == (400, "FORMAT_ERROR")


@pytest.mark.parametrize(
    ("patch", "state"),
    [
        ({"state": "PENDING"}, "SUSPENDED"),
        ({"state": None}, "SUSPENDED"),
        ({"rate": 1}, "SUSPENDED"),
        ({"state": "ACTIVE"}, "PENDING"),
    ],
)
async def test_a_patch_of_the_state_follows_the_rules_of_the_state(api, patch, state):
    await api.with_topic()
    await api.with_subscription(state="SUSPENDED")
    await api.put(PATH, patch)
    assert (await shown(api))["state"] == state


async def test_an_endpoint_edited_as_it_is_shown_keeps_its_password(api):
    await api.with_topic()
    await api.with_subscription(endpoint="http://us:hunt%402@host:90/old")

    def stored():
        return api.metadata.catalog.subscriptions["shop.orders$billing"].subscription.endpoint

    assert (await api.put(PATH, {"endpoint": "http://us:*****@host:90/new"})).status_code == 200
    assert stored() == "http://us:hunt%402@host:90/new"
    assert (await api.put(PATH, {"endpoint": "http://us:other@host:90/new"})).status_code == 200
    assert stored() == "http://us:other@host:90/new"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "http://us:*****@evil:90/x",
        "http://us:*****@host:91/x",
        "http://them:*****@host:90/x",
        "https://us:*****@host:90/x",
        "http://us:*****@host:90@evil/x",
    ],
)
async def test_a_mask_never_takes_a_password_elsewhere(api, elsewhere):
    await api.with_topic()
    await api.with_subscription(endpoint="http://us:hunter2@host:90/old")
    answer = await api.put(PATH, {"endpoint": elsewhere})
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert "hunter2" not in answer.text
    live = api.metadata.catalog.subscriptions["shop.orders$billing"].subscription
    assert live.endpoint == "http://us:hunter2@host:90/old"


async def test_who_changes_the_hosts_of_a_template_gives_its_password_again(api):
    await api.with_topic()
    hosts = {"hosts": ["*.orders.svc"]}
    endpoint = "https://us:hunter2@{host}/in"
    await api.with_subscription(endpoint=endpoint, endpointAddressResolverMetadata=hosts)
    other = {"endpointAddressResolverMetadata": {"hosts": ["evil.example"]}}
    for patch in (other, {**other, "endpoint": "https://us:*****@{host}/in"}):
        answer = await api.put(PATH, patch)
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        assert "hunter2" not in answer.text
    known = await api.put(PATH, {**other, "endpoint": endpoint})
    same = {"endpointAddressResolverMetadata": {**hosts, "further": 1}}
    assert (known.status_code, (await api.put(PATH, other)).status_code) == (200, 200)
    assert (await api.put(PATH, {**same, "endpoint": endpoint})).status_code == 200
    assert (await api.put(PATH, {"endpointAddressResolverMetadata": {"a": 2}})).status_code == 200


@pytest.mark.parametrize(
    "masked",
    [
        {"endpoint": "http://us:*****@host:90/x"},
        {"endpoint": "https://:*****@{host}/"},
        {"oAuthPolicy": {"grantType": "password", "providerName": "p", "password": "******"}},
    ],
)
async def test_a_new_password_is_never_a_mask(api, masked):
    await api.with_topic()
    body = api.subscription(**masked)
    answer = await api.post("/topics/shop.orders/subscriptions", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert "give the password" in api.message(answer)
    await api.with_subscription()
    answer = await api.put(PATH, masked)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")


async def test_what_is_shown_can_be_put_back_and_changes_nothing(api):
    await api.with_topic()
    policy = {"grantType": "password", "providerName": "p", "password": "hunter2"}
    await api.with_subscription(endpoint="http://u:hunter2@host/", oAuthPolicy=policy)
    await started_in(api, "dc1")
    before = api.metadata.catalog.subscriptions["shop.orders$billing"]
    assert (await api.put(PATH, await shown(api))).status_code == 200
    assert api.metadata.catalog.subscriptions["shop.orders$billing"] == before


async def test_a_patch_changes_what_it_names(api):
    await api.with_topic()
    await api.with_subscription(
        subscriptionPolicy={"rate": 9, "messageTtl": 5}, headers=[{"name": "A", "value": "a"}]
    )
    api.clock.ms += 2_000
    await api.put(
        PATH,
        {
            "endpoint": "http://other:8080/",
            "subscriptionPolicy": {"rate": 10, "messageTtl": None},
            "headers": [{"name": "B", "value": "b"}],
            "monitoringDetails": {"reaction": "call"},
        },
    )
    after = await shown(api)
    assert after == {
        **DEFAULTS,
        "endpoint": "http://other:8080/",
        "subscriptionPolicy": {**SERIAL, "rate": 10},
        "headers": [{"name": "B", "value": "b"}],
        "monitoringDetails": {"severity": "NON_IMPORTANT", "reaction": "call"},
        "modifiedAt": START_S + 2,
    }


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ("trackingOff", {"trackingEnabled": True}, "trackingAll"),
        ("discardedOnly", {"trackingEnabled": True}, "discardedOnly"),
        ("discardedOnly", {"trackingEnabled": False}, "trackingOff"),
        ("trackingAll", {"trackingMode": "discardedOnly"}, "discardedOnly"),
        ("trackingAll", {"trackingMode": "trackingOff"}, "trackingOff"),
    ],
)
async def test_a_patch_of_the_tracking_flag_is_heard(api, before, patch, after):
    await api.with_topic()
    await api.with_subscription(trackingMode=before)
    await api.put(PATH, patch)
    subscription = await shown(api)
    assert subscription["trackingMode"] == after
    assert subscription["trackingEnabled"] is (after != "trackingOff")


@pytest.mark.parametrize(
    "patch",
    [
        {"name": "other"},
        {"topicName": "shop.other"},
        {"endpoint": None},
        {"owner": {"source": "Ldap"}},
        {"filters": [{"type": "avropath", "path": ".a", "matcher": "x"}]},
    ],
)
async def test_a_bad_patch_is_refused_and_changes_nothing(api, patch):
    await api.with_topic()
    await api.with_subscription()
    answer = await api.put(PATH, patch)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert await shown(api) == DEFAULTS


async def test_a_removed_subscription_is_gone_and_may_be_created_anew(api):
    await api.with_topic()
    await api.with_subscription()
    await started_in(api, "dc1")
    answer = await api.delete(PATH)
    assert (answer.status_code, answer.content) == (200, b"")
    assert (await api.get(BASE)).json() == []
    api.clock.ms += 1_000
    await api.with_subscription()
    after = await shown(api)
    assert (after["state"], after["createdAt"]) == ("PENDING", START_S + 1)


@pytest.mark.parametrize("kind", ["subscriptions", "topics"])
async def test_while_an_owner_of_many_is_shown_what_he_has_others_have_turns(api, nursery, kind):
    busy = {"source": "Plaintext", "id": "busy"}
    await api.with_topic()
    for number in range(250):
        if kind == "topics":
            await api.with_topic(f"shop.t{number}", owner=busy)
        else:
            await api.with_subscription(f"s{number}", owner=busy)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(others)

    async def turns_for(owner: str) -> int:
        before = turns
        answer = await api.get(f"/{kind}/owner/Plaintext/{owner}")
        assert len(answer.json()) == (250 if owner == "busy" else 0)
        return turns - before

    assert await turns_for("busy") >= await turns_for("idle") + 2
