"""Bearer tokens over time: remembered, expired, keys that come and go, a URL that is away."""

import json

import httpx
import pytest
import trio

from hermes_actors.errors import Unavailable
from hermes_actors.security import bearer as module
from hermes_actors.security.account import BadCredentials, Credentials
from hermes_actors.security.bearer import BearerMechanism
from hermes_actors.security.keyset import NO_KEYS, KeySet, parse_key_set
from hermes_actors.security.tokens import TokenRules
from hermes_actors.security.watched import Watched, watched_files, watched_url

EPOCH_S = 1_700_000_000
RULES = TokenRules(
    algorithms=frozenset({"RS256", "ES256", "EdDSA"}),
    issuer="https://id.example.com",
    audiences=frozenset({"hermes"}),
    leeway_s=30,
)


class Provider:
    """The URL of a key set; a test says what it answers."""

    def __init__(self, content: bytes) -> None:
        self.answer = httpx.Response(200, content=content)
        self.is_away = False
        self.delay_s = 0.0
        self.requests = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        await trio.sleep(self.delay_s)
        if self.is_away:
            raise httpx.ConnectError("connection refused")
        return httpx.Response(self.answer.status_code, content=self.answer.content)

    def gives(self, content: bytes, status: int = 200) -> None:
        self.answer = httpx.Response(status, content=content)


def url_keys(provider: Provider, clock) -> Watched[KeySet]:
    url = "https://hermes:hunter2@id.example.com/jwks?key=hunter3"
    transport = httpx.MockTransport(provider)
    return watched_url("jwks_url", url, parse_key_set, NO_KEYS, clock, 300, transport=transport)


def bearer(keys, clock) -> BearerMechanism:
    return BearerMechanism("hermes", keys, RULES, clock, b"random")


def shown(token: str) -> Credentials:
    return Credentials(f"Bearer {token}")


@pytest.fixture
def provider(signer) -> Provider:
    return Provider(signer.key_set("ec"))


@pytest.fixture
async def keys(provider, clock, nursery) -> Watched[KeySet]:
    keys = url_keys(provider, clock)
    nursery.start_soon(keys.run)
    await trio.sleep(0.1)
    return keys


async def test_a_token_is_known_until_it_expires(signer, keys, autojump_clock, clock):
    mechanism = bearer(keys, clock)
    token = shown(signer.token(exp=EPOCH_S + 60))
    account = await mechanism.identify(token)
    assert account is not None
    assert account.name == "shop-app"
    await trio.sleep(80)
    assert await mechanism.identify(token) == account
    await trio.sleep(20)
    with pytest.raises(BadCredentials, match="expired"):
        await mechanism.identify(token)


async def test_other_schemes_are_not_for_tokens(keys, autojump_clock, clock):
    mechanism = bearer(keys, clock)
    assert await mechanism.identify(Credentials()) is None
    assert await mechanism.identify(Credentials("Basic abc")) is None
    assert mechanism.challenge == 'Bearer realm="hermes"'


@pytest.mark.parametrize("token", ["", "abc", "a.b.c", "ä.ö.ü", "." * 50])
async def test_what_is_no_token_is_bad(keys, autojump_clock, clock, token):
    with pytest.raises(BadCredentials):
        await bearer(keys, clock).identify(shown(token))


async def test_what_is_remembered_is_bounded(signer, keys, autojump_clock, clock, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_MAX", 3)
    mechanism = bearer(keys, clock)
    for number in range(10):
        assert await mechanism.identify(shown(signer.token(sub=f"app-{number}"))) is not None
    assert len(mechanism._remembered) == 3


async def test_a_new_key_is_fetched_early_and_that_is_rate_limited(
    signer, provider, keys, autojump_clock, clock
):
    mechanism = bearer(keys, clock)
    assert provider.requests == 1
    with pytest.raises(BadCredentials, match="unknown key"):
        await mechanism.identify(shown(signer.token("rsa")))
    assert provider.requests == 2
    provider.gives(signer.key_set("ec", "rsa"))
    for _ in range(5):
        with pytest.raises(BadCredentials, match="unknown key"):
            await mechanism.identify(shown(signer.token("rsa")))
    assert provider.requests == 2
    await trio.sleep(11)
    assert await mechanism.identify(shown(signer.token("rsa"))) is not None
    assert provider.requests == 3


async def test_many_tokens_of_a_new_key_wait_for_one_fetch(
    signer, provider, keys, autojump_clock, clock
):
    provider.gives(signer.key_set("ec", "rsa"))
    provider.delay_s = 1
    mechanism = bearer(keys, clock)
    names = []

    async def one(number: int) -> None:
        account = await mechanism.identify(shown(signer.token("rsa", sub=f"app-{number}")))
        names.append(None if account is None else account.name)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(one, number)
    assert sorted(names) == [f"app-{number}" for number in range(10)]
    assert provider.requests == 2


async def test_a_key_that_is_withdrawn_takes_its_tokens_along(
    signer, provider, keys, autojump_clock, clock
):
    mechanism = bearer(keys, clock)
    token = shown(signer.token("ec", exp=EPOCH_S + 3_600))
    assert await mechanism.identify(token) is not None
    provider.gives(signer.key_set("rsa"))
    await trio.sleep(301)
    with pytest.raises(BadCredentials, match="unknown key"):
        await mechanism.identify(token)


@pytest.mark.parametrize("failure", ["away", "status", "nonsense", "huge", "slow"])
async def test_the_last_good_keys_stay_while_the_url_fails(
    signer, provider, keys, autojump_clock, clock, failure, caplog
):
    provider.is_away = failure == "away"
    if failure == "status":
        provider.gives(b"{}", 503)
    elif failure == "nonsense":
        provider.gives(b"<html>")
    elif failure == "huge":
        provider.gives(b" " * 5_000_000)
    elif failure == "slow":
        provider.delay_s = 60
    await trio.sleep(3_000)
    assert provider.requests > 5
    assert len(keys.value) == 1
    mechanism = bearer(keys, clock)
    assert await mechanism.identify(shown(signer.token(exp=EPOCH_S + 9_999))) is not None
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == 1
    assert "https://id.example.com/jwks" in told[0]
    assert "stays in force" in told[0]
    assert "hunter" not in told[0]


async def test_no_key_at_all_yet_is_unavailable_and_mends_itself(
    signer, provider, clock, autojump_clock, nursery
):
    provider.is_away = True
    keys = url_keys(provider, clock)
    nursery.start_soon(keys.run)
    mechanism = bearer(keys, clock)
    await trio.sleep(1)
    with pytest.raises(Unavailable):
        await mechanism.identify(shown(signer.token()))
    provider.is_away = False
    await trio.sleep(61)
    assert await mechanism.identify(shown(signer.token())) is not None


async def test_keys_of_a_file_follow_it(signer, tmp_path, clock, mock_clock):
    path = tmp_path / "jwks.json"
    path.write_bytes(signer.key_set("ec"))
    file = watched_files("jwks_file", [str(path)], parse_key_set, NO_KEYS, clock, 1.0)
    await file.load()
    mechanism = bearer(file, clock)
    token = shown(signer.token("ec"))
    assert await mechanism.identify(token) is not None
    path.write_bytes(signer.key_set("rsa"))
    await file.check()
    assert await mechanism.identify(shown(signer.token("rsa"))) is not None


async def test_no_token_is_shown_or_logged(signer, keys, autojump_clock, clock, caplog):
    token = signer.token("ec", sub="ada", exp=EPOCH_S - 999)
    credentials = shown(token)
    with pytest.raises(BadCredentials) as refused:
        await bearer(keys, clock).identify(credentials)
    seen = f"{refused.value!r}{refused.value.__cause__!r}{credentials!r}{caplog.text}"
    assert token.split(".")[2] not in seen
    assert json.dumps(token) not in seen
