"""One token request over the network: what it sends, and what a provider may do wrong."""

from urllib.parse import parse_qs

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.oauth.request import (
    Grant,
    OAuthCredentials,
    TokenDenied,
    read_answer,
    request_token,
)
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy
from tests.consumer.http_doubles import STRICT, Sink, net_of, served, tcp

POLICY = OAuthPolicy(grant_type="clientCredentials", provider_name="sso")
PROVIDER = OAuthProvider(
    name="sso",
    token_endpoint="https://id.example.com/token",
    client_id="hermes",
    client_secret="hush",
    token_request_initial_delay=1_000,
    token_request_max_delay=8_000,
    request_timeout=1_000,
)


def answering(status, content):
    return Sink(answer=lambda _scope, _body: (status, content))


def saying(content):
    async def says(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(content)

    return says


async def asked_of(port, path="/token?tenant=1", guard=None, **fields):
    net = net_of() if guard is None else net_of(guard=guard)
    provider = msgspec.structs.replace(
        PROVIDER, token_endpoint=f"http://127.0.0.1:{port}{path}", **fields
    )
    async with open_httpx_sender(net, http2=False) as sender:
        try:
            return await request_token(sender, OAuthCredentials(provider, POLICY))
        except TokenDenied as error:
            return error


async def test_a_token_is_asked_for_by_a_form_over_http1():
    sink = answering(200, b'{"access_token":"abc","expires_in":60}')
    async with served(sink) as port:
        assert await asked_of(port) == Grant("abc", 60.0)
    scope, body = sink.requests[0]
    assert (scope["method"], scope["path"], scope["query_string"]) == (
        "POST",
        "/token",
        b"tenant=1",
    )
    assert scope["http_version"] == "1.1"
    assert sink.header(b"content-type") == b"application/x-www-form-urlencoded"
    assert body == b"grant_type=client_credentials&client_id=hermes&client_secret=hush"


async def denied(port, **arguments):
    error = await asked_of(port, **arguments)
    assert isinstance(error, TokenDenied)
    return str(error)


async def test_what_a_provider_may_do_wrong_is_a_denial():
    async def hangs_up(stream):
        await stream.receive_some()
        await stream.aclose()

    async def answers_nothing(stream):
        while await stream.receive_some():
            pass

    async with served(answering(200, b"x" * 70_000)) as port:
        assert "longer than" in await denied(port)
    async with served(answering(302, b"")) as port:
        assert await denied(port) == "HTTP 302 without a token in JSON"
        assert "loopback" in await denied(port, guard=STRICT)
    async with tcp(hangs_up) as port:
        await denied(port)
    await denied(port)
    for nonsense in (b"\x00" * 100, b"HTTP/1.1 x y\r\n\r\n", b"HTTP/1.1 200\r\n\xff: \r\n\r\n"):
        async with tcp(saying(nonsense)) as port:
            await denied(port)
    async with tcp(answers_nothing) as port:
        assert "no answer within 0.1 s" in await denied(port, request_timeout=100)
        assert "silent" in await denied(port, socket_timeout=50)


def fields(**policy):
    form = OAuthCredentials(PROVIDER, OAuthPolicy(provider_name="sso", **policy)).form
    return parse_qs(form.decode(), strict_parsing=True, keep_blank_values=True)


def test_each_grant_is_asked_for_with_its_own_fields():
    client = {"client_id": ["hermes"], "client_secret": ["hush"]}
    assert fields(grant_type="clientCredentials", scope="a b") == {
        "grant_type": ["client_credentials"],
        "scope": ["a b"],
        **client,
    }
    assert fields(grant_type="password", username="u", password="p&w") == {
        "grant_type": ["password"],
        "username": ["u"],
        "password": ["p&w"],
        **client,
    }


FOREVER = float("inf")


@pytest.mark.parametrize(
    ("said", "lifetime_s"),
    [
        (b"", FOREVER),
        (b',"expires_in":3600', 3_600.0),
        (b',"expires_in":"3600"', 3_600.0),
        (b',"expires_in":0', FOREVER),
        (b',"expires_in":-1', FOREVER),
        (b',"expires_in":null', FOREVER),
        (b',"expires_in":1e300', 1e9),
    ],
)
@pytest.mark.parametrize("status", [200, 201])
def test_a_token_and_its_life_are_read_as_providers_mean_them(said, lifetime_s, status):
    assert read_answer(status, b'{"access_token":"abc"%b}' % said) == Grant("abc", lifetime_s)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "without a token"),
        (200, b"[]", "without a token"),
        (200, b"[" * 100_000, "without a token"),
        (200, b'{"access_token":""}', "without an access_token"),
        (200, b'{"access_token":7}', "without an access_token"),
        (200, b'{"access_token":"a b"}', "cannot stand"),
        (200, b'{"access_token":"a\\r\\nX: 1"}', "cannot stand"),
        (200, b'{"access_token":"a","expires_in":"soon"}', "without a token"),
        (400, b'{"access_token":"abc"}', "HTTP 400"),
        (400, b'{"error":"invalid_client"}', "HTTP 400: invalid_client"),
        (401, b'{"error":["hush"]}', "HTTP 401"),
        (500, b"hush", "HTTP 500"),
    ],
)
def test_anything_else_is_no_token_and_says_why(status, body, words):
    with pytest.raises(TokenDenied, match=words) as denied:
        read_answer(status, body)
    assert "hush" not in str(denied.value)


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_answer_is_too_strange(status, body):
    with pytest.raises(TokenDenied):
        read_answer(status, body)


def test_no_secret_is_shown():
    policy = OAuthPolicy(grant_type="password", provider_name="sso", username="u", password="pass")
    shown = repr(OAuthCredentials(PROVIDER, policy)) + repr(Grant("tok"))
    assert not {each for each in ("hush", "pass'", "tok'") if each in shown}
