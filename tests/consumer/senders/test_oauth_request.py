"""One token request over the network: what it sends, and what a provider may do wrong."""

import msgspec

from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.oauth.request import ask_for_token
from hermes_actors.consumer.senders.oauth.wire import Denied, Granted, OAuthCredentials
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy
from tests.consumer.http_doubles import STRICT, Sink, net_of, served, tcp

ROUTE = parse_endpoint("http://sink/in", "lane").resolve(b"")
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
        return await ask_for_token(sender, OAuthCredentials(provider, POLICY))


async def test_a_token_is_asked_for_by_a_form_over_http1():
    sink = answering(200, b'{"access_token":"abc","expires_in":60}')
    async with served(sink) as port:
        assert await asked_of(port) == Granted("abc", 60.0)
    scope, body = sink.requests[0]
    assert (scope["method"], scope["path"], scope["query_string"]) == (
        "POST",
        "/token",
        b"tenant=1",
    )
    assert scope["http_version"] == "1.1"
    assert sink.header(b"content-type") == b"application/x-www-form-urlencoded"
    assert body == b"grant_type=client_credentials&client_id=hermes&client_secret=hush"


async def test_what_a_provider_may_do_wrong_is_a_denial():
    async def hangs_up(stream):
        await stream.receive_some()
        await stream.aclose()

    async def answers_nothing(stream):
        while await stream.receive_some():
            pass

    async with served(answering(200, b"x" * 70_000)) as port:
        assert "longer than" in (await asked_of(port)).problem
    async with served(answering(302, b"")) as port:
        assert (await asked_of(port)).problem == "HTTP 302"
        refused = await asked_of(port, guard=STRICT)
        assert "loopback" in refused.problem
    async with tcp(hangs_up) as port:
        assert isinstance(await asked_of(port), Denied)
    assert isinstance(await asked_of(port), Denied)
    for nonsense in (b"\x00" * 100, b"HTTP/1.1 x y\r\n\r\n", b"HTTP/1.1 200\r\n\xff: \r\n\r\n"):
        async with tcp(saying(nonsense)) as port:
            assert isinstance(await asked_of(port), Denied)
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n" + b"x" * 10
    async with tcp(saying(long)) as port:
        assert isinstance(await asked_of(port), Denied)
    async with tcp(answers_nothing) as port:
        assert "no answer within 0.1 s" in (await asked_of(port, request_timeout=100)).problem
        assert "silent" in (await asked_of(port, socket_timeout=50)).problem
