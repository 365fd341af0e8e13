"""Providers of OAuth tokens: the wire's rules, and secrets that are never shown."""

import pytest

from tests.management.callers import ADMIN

PROVIDERS = "/oauth/providers"
SSO = f"{PROVIDERS}/sso"
SECRET = "hush-hush"


def provider(**fields):
    return {
        "name": "sso",
        "tokenEndpoint": "https://id.example.com/token",
        "clientId": "hermes",
        "clientSecret": SECRET,
        "tokenRequestInitialDelay": 100,
        "tokenRequestMaxDelay": 10_000,
        "requestTimeout": 1_000,
        **fields,
    }


def stored(api):
    return api.metadata.catalog.oauth_providers["sso"].provider


@pytest.fixture
async def sso(api):
    assert (await api.post(PROVIDERS, provider(), headers=ADMIN)).status_code == 201
    return api


async def test_a_provider_is_created_listed_and_shown_without_its_secret(sso):
    assert (await sso.get(PROVIDERS)).json() == ["sso"]
    answer = await sso.get(SSO)
    assert answer.status_code == 200
    assert answer.json() == provider(clientSecret="******", socketTimeout=0)
    assert stored(sso).client_secret == SECRET


async def test_creating_one_that_exists_is_refused_and_the_existing_one_stays(sso):
    answer = await sso.post(PROVIDERS, provider(clientSecret="other"), headers=ADMIN)
    assert sso.refusal(answer) == (400, "OAUTH_PROVIDER_ALREADY_EXISTS")
    assert (await sso.get(PROVIDERS)).json() == ["sso"]
    assert stored(sso).client_secret == SECRET


async def test_a_put_changes_what_it_names_and_the_mask_keeps_the_secret(sso):
    body = {"clientSecret": "******", "requestTimeout": 2_000}
    assert (await sso.put(SSO, body, headers=ADMIN)).status_code == 200
    assert (stored(sso).client_secret, stored(sso).request_timeout) == (SECRET, 2_000)
    assert stored(sso).client_id == "hermes"
    assert (await sso.put(SSO, {"clientSecret": "new"}, headers=ADMIN)).status_code == 200
    assert stored(sso).client_secret == "new"


@pytest.mark.parametrize("kept", [{}, {"clientSecret": "******"}, {"clientSecret": None}])
async def test_who_changes_where_the_secret_is_sent_gives_it_again(sso, kept):
    elsewhere = "https://evil.example.com/token"
    answer = await sso.put(SSO, {"tokenEndpoint": elsewhere, **kept}, headers=ADMIN)
    assert sso.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "clientSecret" in sso.message(answer)
    assert stored(sso).token_endpoint == "https://id.example.com/token"
    known = {"tokenEndpoint": elsewhere, "clientSecret": SECRET}
    assert (await sso.put(SSO, known, headers=ADMIN)).status_code == 200
    assert stored(sso).token_endpoint == elsewhere


async def test_a_provider_that_is_not_there_is_not_found(api):
    for answer in (
        await api.get(SSO),
        await api.put(SSO, {"requestTimeout": 500}, headers=ADMIN),
        await api.delete(SSO, headers=ADMIN),
    ):
        assert api.refusal(answer) == (404, "OAUTH_PROVIDER_NOT_EXISTS")


async def test_a_provider_in_use_is_not_removed(sso):
    await sso.with_topic()
    policy = {"grantType": "clientCredentials", "providerName": "sso"}
    await sso.with_subscription(oAuthPolicy=policy)
    answer = await sso.delete(SSO, headers=ADMIN)
    assert sso.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "shop.orders$billing" in sso.message(answer)
    await sso.delete("/topics/shop.orders/subscriptions/billing")
    assert (await sso.delete(SSO, headers=ADMIN)).status_code == 200
    assert (await sso.get(PROVIDERS)).json() == []
    assert (await sso.post(PROVIDERS, provider(), headers=ADMIN)).status_code == 201


WRONG = [
    ({"name": "a b"}, "name"),
    ({"clientId": ""}, "clientId"),
    ({"clientId": None}, "clientId"),
    ({"tokenRequestInitialDelay": -1}, "tokenRequestInitialDelay"),
    ({"tokenRequestMaxDelay": 3_600_001}, "tokenRequestMaxDelay"),
    ({"tokenRequestMaxDelay": None}, "tokenRequestMaxDelay"),
    ({"requestTimeout": 99}, "requestTimeout"),
    ({"requestTimeout": 60_001}, "requestTimeout"),
    ({"socketTimeout": 60_001}, "socketTimeout"),
    ({"tokenEndpoint": "ftp://id.example.com/"}, "tokenEndpoint"),
    ({"tokenEndpoint": "https://u:hunter2@id.example.com/"}, "tokenEndpoint"),
    ({"tokenEndpoint": "https://hunter2:port/"}, "tokenEndpoint"),
    ({"tokenEndpoint": "http://169.254.169.254/token"}, "metadata service"),
    ({"tokenEndpoint": "http://localhost/token"}, "tokenEndpoint"),
]


@pytest.mark.parametrize(("fields", "word"), WRONG)
async def test_what_is_out_of_range_is_refused_by_name(sso, fields, word):
    created = await sso.post(PROVIDERS, provider(**{"name": "new", **fields}), headers=ADMIN)
    assert created.status_code == 400
    assert word in sso.message(created)
    assert "hunter2" not in created.text
    assert SECRET not in created.text
    assert (await sso.get(PROVIDERS)).json() == ["sso"]
