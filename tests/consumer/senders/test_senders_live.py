"""All senders as a node opens them, over real sockets: tokens, HTTP/2, certificates, a proxy."""

import asyncio  # noqa: TID251 -- the plain sender lives on the host loop
import ssl

import msgspec
import pytest
import trio
import trustme

from hermes_actors.config import (
    ConsumersConfig,
    EndpointsConfig,
    EndpointTlsConfig,
    ProxyConfig,
)
from hermes_actors.consumer.opening import open_senders
from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.sender import Failure
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy
from hermes_actors.runtime import guest
from hermes_actors.telemetry.metrics import Metrics
from tests.consumer.http_doubles import Sink, TunnelProxy, pushed, served, tcp
from tests.values import a_subscription

pytestmark = pytest.mark.live

OAUTH = OAuthPolicy(grant_type="password", provider_name="sso", username="u", password="p")
LINES = b"Content-Type: application/json\r\n"


def live_of(port, scheme="http", **fields):
    subscription = a_subscription(endpoint=f"{scheme}://localhost:{port}/in", **fields)
    return LiveSubscription(SubscriptionName.parse("shop.orders$push"), subscription, 0, 1, 1)


def route_of(live):
    return parse_endpoint(live.subscription.endpoint, str(live.name)).resolve(b"")


def provider_at(port):
    return OAuthProvider(
        name="sso",
        token_endpoint=f"http://127.0.0.1:{port}/token",
        client_id="hermes",
        client_secret="hush",
        token_request_initial_delay=100,
        token_request_max_delay=1_000,
        request_timeout=1_000,
    )


def config_of(**fields):
    return ConsumersConfig(endpoints=EndpointsConfig(allow_loopback=True), **fields)


def run(main, host="asyncio"):
    async def with_limit():
        with trio.fail_after(20):
            await main()
        # Transports that were closed report it to the loop once more.
        await guest.call(asyncio.sleep, 0.05)

    guest.run(with_limit, host=host)


class Authority:
    """Gives tokens 1, 2, 3…; an endpoint takes the last one only."""

    def __init__(self):
        self.given = 0
        self.identity = Sink(answer=self._give)
        self.endpoint = Sink(answer=self._check)

    def _give(self, _scope, body):
        assert b"grant_type=password&" in body
        self.given += 1
        return 200, msgspec.json.encode({"access_token": f"t{self.given}", "expires_in": 3_600})

    def _check(self, scope, _body):
        shown = dict(scope["headers"]).get(b"authorization")
        return (200 if shown == b"Bearer t%d" % self.given else 401), b""


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
@pytest.mark.parametrize("http2", [False, True])
def test_a_revoked_token_costs_no_push_over_either_sender(host, http2):
    async def main():
        authority = Authority()
        async with served(authority.identity) as identity, served(authority.endpoint) as port:
            providers = {"sso": provider_at(identity)}
            metrics = Metrics("hermes_consumers")
            async with open_senders(config_of(), providers.get, metrics) as sender_of:
                live = live_of(port, o_auth_policy=OAUTH, http2_enabled=http2)
                sender, route = sender_of(live), route_of(live)
                for _ in range(3):
                    assert (await pushed(sender, route, lines=LINES)).status == 200
                assert authority.given == 1
                # Revoked, and another one issued to somebody else.
                authority.given = 7
                await trio.sleep(0.1)
                assert (await pushed(sender, route, lines=LINES)).status == 200
        assert authority.given == 8
        versions = {scope["http_version"] for scope, _ in authority.endpoint.requests}
        assert versions == {"2" if http2 else "1.1"}

    run(main, host)


def test_a_token_endpoint_that_is_down_is_a_failure_of_our_own():
    async def main():
        async with served(Sink()) as port:
            providers = {"sso": provider_at(1)}
            async with open_senders(config_of(), providers.get, Metrics("x")) as sender_of:
                live = live_of(port, o_auth_policy=OAUTH)
                outcome = await pushed(sender_of(live), route_of(live), 300, lines=LINES)
                assert outcome.failure is Failure.TOKENLESS
                assert "127.0.0.1:1" in outcome.detail
                assert "hush" not in repr(outcome)

    run(main)


def test_both_senders_show_the_nodes_certificate(tmp_path):
    authority = trustme.CA()
    files = {}
    for name, identity in (("server", "localhost"), ("client", "hermes.example.com")):
        issued = authority.issue_cert(identity)
        files[name] = (str(tmp_path / f"{name}.pem"), str(tmp_path / f"{name}.key"))
        issued.cert_chain_pems[0].write_to_path(files[name][0])
        issued.private_key_pem.write_to_path(files[name][1])
    ca = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    settings = dict(zip(("certfile", "keyfile"), files["server"], strict=True))
    settings |= {"ca_certs": ca, "verify_mode": ssl.CERT_REQUIRED}

    async def main():
        sink = Sink()
        async with served(sink, **settings) as port:
            for pair, statuses in ((files["client"], [200, 200]), (("", ""), [0, 0])):
                config = config_of(tls=EndpointTlsConfig(ca, *pair))
                async with open_senders(config, {}.get, Metrics("x")) as sender_of:
                    lives = [live_of(port, "https", http2_enabled=each) for each in (False, True)]
                    found = [await pushed(sender_of(each), route_of(each)) for each in lives]
                    assert [each.status for each in found] == statuses
        assert [scope["http_version"] for scope, _ in sink.requests] == ["1.1", "2"]

    run(main)


def test_a_proxy_carries_pushes_and_token_requests_and_passes_over_no_proxy(tmp_path):
    credentials = tmp_path / "proxy"
    credentials.write_text("hermes:hush\n")

    async def main():
        authority, proxy = Authority(), TunnelProxy()
        async with (
            served(authority.identity) as identity,
            served(authority.endpoint) as port,
            served(Sink()) as direct,
            tcp(proxy) as at,
        ):
            url = f"http://127.0.0.1:{at}"
            config = config_of(
                proxy=ProxyConfig(url=url, credentials_file=str(credentials), no_proxy=["::1"])
            )
            providers = {"sso": provider_at(identity)}
            async with open_senders(config, providers.get, Metrics("x")) as sender_of:
                live = live_of(port, o_auth_policy=OAUTH)
                assert (await pushed(sender_of(live), route_of(live), lines=LINES)).status == 200
                assert [head.split(b"/")[3].split(b" ")[0] for head in proxy.heads] == [
                    b"token",
                    b"in",
                ]
                assert all(b"\r\nProxy-Authorization: Basic " in head for head in proxy.heads)
            by_name = msgspec.structs.replace(config.proxy, no_proxy=["localhost"])
            config = msgspec.structs.replace(config, proxy=by_name)
            async with open_senders(config, {}.get, Metrics("x")) as sender_of:
                live = live_of(direct)
                assert (await pushed(sender_of(live), route_of(live))).status == 200
            assert len(proxy.heads) == 2

    run(main)


def test_a_provider_of_senders_that_fails_takes_nobody_down(tmp_path, monkeypatch, caplog):
    (tmp_path / "broken_queues.py").write_text(
        "class Broken:\n"
        "    def __init__(self, context): pass\n"
        "    def sender_of(self, live): return self\n"
        "    async def run(self): raise KeyError('queue')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    async def main():
        config = config_of(senders=["jms=broken_queues:Broken"])
        async with served(Sink()) as port, open_senders(config, {}.get, Metrics("x")) as sender_of:
            await trio.sleep(0.1)
            live = live_of(port)
            assert (await pushed(sender_of(live), route_of(live))).status == 200

    run(main)
    assert "sender of jms failed and restarts" in caplog.text
