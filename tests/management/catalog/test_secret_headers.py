"""Fixed headers that hold a secret: for owners and administrators, and never led elsewhere."""

import pytest

from hermes_actors.model.redaction import MASK, is_secret_header
from tests.management.callers import ADMIN, FINANCE, SALES, STRANGER

PATH = "/topics/shop.orders/subscriptions/billing"
NOBODY: dict[str, str] = {}
VALUE = "hunter2"


def headers_of(*pairs):
    return [{"name": name, "value": value} for name, value in pairs]


HEADERS = headers_of(("X-Team", "a"), ("Authorization", VALUE), ("x-api-key", VALUE))


def stored(api):
    live = api.metadata.catalog.subscriptions["shop.orders$billing"].subscription
    return [(each.name, each.value) for each in live.headers]


@pytest.fixture
async def billing(api):
    await api.with_topic()
    await api.with_subscription(headers=HEADERS)
    return api


@pytest.mark.parametrize("path", [PATH, "/subscriptions/owner/Plaintext/finance"])
@pytest.mark.parametrize("caller", [NOBODY, STRANGER])
async def test_they_are_masked_for_who_is_neither_owner_nor_administrator(billing, path, caller):
    answer = await billing.get(path, headers=caller)
    assert answer.status_code == 200
    assert VALUE not in answer.text
    shown = answer.json() if path == PATH else answer.json()[0]
    assert shown["headers"] == headers_of(
        ("X-Team", "a"), ("Authorization", MASK), ("x-api-key", MASK)
    )


@pytest.mark.parametrize("path", [PATH, "/subscriptions/owner/Plaintext/finance"])
@pytest.mark.parametrize("caller", [ADMIN, SALES, FINANCE])
async def test_owners_and_administrators_see_them(billing, path, caller):
    answer = (await billing.get(path, headers=caller)).json()
    assert (answer if path == PATH else answer[0])["headers"] == HEADERS


@pytest.mark.parametrize(
    "path",
    [
        f"{PATH}/{each}"
        for each in ("why", "health", "metrics", "metrics/persistent", "state", "lag")
    ]
    + ["/status/subscriptions", "/unhealthy", "/openapi.json", "/topics/shop.orders/subscriptions"],
)
async def test_no_other_page_shows_them_to_anybody(billing, path):
    assert VALUE not in (await billing.get(path, headers=ADMIN)).text


@pytest.mark.parametrize("caller", [NOBODY, FINANCE])
async def test_a_mask_sent_back_keeps_the_value_and_an_answer_changes_nothing(billing, caller):
    before = stored(billing)
    view = (await billing.get(PATH)).json()
    assert (await billing.put(PATH, view, headers=caller)).status_code == 200
    assert stored(billing) == before
    edited = headers_of(("authorization", MASK), ("X-New", "b"), ("X-Api-Key", "other"))
    assert (await billing.put(PATH, {"headers": edited}, headers=caller)).status_code == 200
    assert stored(billing) == [("authorization", VALUE), ("X-New", "b"), ("X-Api-Key", "other")]


async def test_headers_of_one_name_keep_their_values_in_their_order(api):
    await api.with_topic()
    await api.with_subscription(headers=headers_of(("Cookie", "a"), ("Cookie", "b")))
    masks = headers_of(("Cookie", MASK), ("Cookie", MASK))
    assert (await api.put(PATH, {"headers": masks})).status_code == 200
    assert stored(api) == [("Cookie", "a"), ("Cookie", "b")]


async def test_a_mask_without_a_value_behind_it_is_refused_by_its_field(billing):
    masks = headers_of(("X-Token", MASK))
    answer = await billing.put(PATH, {"headers": masks})
    assert billing.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "Subscription.headers[0].value" in billing.message(answer)
    body = billing.subscription("other", headers=masks)
    answer = await billing.post("/topics/shop.orders/subscriptions", body)
    assert billing.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "give the value" in billing.message(answer)


@pytest.mark.parametrize("kept", [{}, {"headers": headers_of(("Authorization", MASK))}])
@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example.com/orders", "http://billing.example.com/orders", "http://a/;http://b/"],
)
async def test_who_cannot_read_a_value_does_not_lead_it_elsewhere(billing, kept, elsewhere):
    answer = await billing.put(PATH, {"endpoint": elsewhere, **kept})
    assert billing.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "give the headers" in billing.message(answer)
    assert VALUE not in answer.text
    assert (await billing.put(PATH, {"endpoint": elsewhere, "headers": HEADERS})).status_code == 200


async def test_the_owner_leads_them_where_he_wants_and_anybody_changes_the_path(billing):
    path = {"endpoint": "https://billing.example.com/other"}
    assert (await billing.put(PATH, path)).status_code == 200
    elsewhere = {"endpoint": "https://other.example.com/"}
    assert (await billing.put(PATH, elsewhere, headers=FINANCE)).status_code == 200
    assert ("Authorization", VALUE) in stored(billing)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "proxy-authorization",
        "COOKIE",
        "X-Api-Key",
        "apikey",
        "X-Auth",
        "X-Auth-Token",
        "client_secret",
        "X-Password",
        "X-Session-Id",
        "X-Hub-Signature-256",
        "X-Amz-Credential",
    ],
)
def test_a_name_that_speaks_of_a_secret_is_one(name):
    assert is_secret_header(name)


@pytest.mark.parametrize(
    "name", ["X-Team", "Content-Type", "Accept", "X-Author", "ce-type", "X-Path", "Side"]
)
def test_other_names_are_none(name):
    assert not is_secret_header(name)
