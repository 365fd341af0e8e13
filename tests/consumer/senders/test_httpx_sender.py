"""The sender over httpx' transport, against hypercorn with HTTP/2 and behind a proxy, on trio."""

import ssl

import pytest
import trio
import trio.testing
import trustme

from hermes_actors.config import EndpointTlsConfig
from hermes_actors.consumer.opening import endpoint_tls
from hermes_actors.consumer.recipients.endpoint import at_address, parse_endpoint
from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.proxying import Proxy
from hermes_actors.consumer.senders.sender import Failure, Push
from tests.consumer.http_doubles import (
    LINES,
    STRICT,
    Sink,
    TunnelProxy,
    net_of,
    pushed,
    served,
    tcp,
)


def route_to(port, scheme="http", host="127.0.0.1", lane="lane"):
    return parse_endpoint(f"{scheme}://{host}:{port}/in?a=b", lane).resolve(b"")


async def test_a_push_goes_out_as_http2_with_its_own_headers_only():
    sink = Sink()
    async with served(sink) as port, open_httpx_sender(net_of()) as sender:
        assert (await pushed(sender, route_to(port))).status == 200
    scope, body = sink.requests[0]
    assert (scope["http_version"], scope["path"], scope["query_string"]) == ("2", "/in", b"a=b")
    assert body == b'{"a":1}'
    headers = [(name, value) for name, value in scope["headers"] if not name.startswith(b":")]
    assert {name for name, _ in headers} <= {b"host", b"content-type", b"a", b"content-length"}
    assert [value for name, value in headers if name == b"a"] == [b"1", b"2"]


async def test_status_and_retry_after_are_reported_and_redirects_are_not_followed():
    sink = Sink()
    async with served(sink) as port, open_httpx_sender(net_of()) as sender:
        sink.status, sink.headers = 503, [(b"retry-after", b"7")]
        outcome = await pushed(sender, route_to(port))
        assert (outcome.status, outcome.retry_after) == (503, "7")
        sink.status, sink.headers = 302, [(b"location", b"/other")]
        assert (await pushed(sender, route_to(port))).status == 302
        assert len(sink.requests) == 2


async def test_a_slow_answer_times_out_and_a_long_one_is_cut():
    sink = Sink()
    async with served(sink) as port, open_httpx_sender(net_of()) as sender:
        sink.answer_bytes = 500_000
        assert (await pushed(sender, route_to(port))).status == 200
        sink.delay_s, sink.answer_bytes = 1.0, 2
        assert (await pushed(sender, route_to(port), 150)).failure is Failure.TIMEOUT
        silent = await pushed(sender, route_to(port), 5_000, socket_ms=100)
        assert silent.failure is Failure.IDLE
        sink.delay_s = 0.0
        assert (await pushed(sender, route_to(port))).status == 200


async def test_pushes_above_the_bound_are_refused_and_closing_ends_the_rest():
    sink, outcomes = Sink(), []
    sink.delay_s = 1.0
    async with served(sink) as port:
        async with open_httpx_sender(net_of(), pushes_max=2) as sender:
            for _ in range(3):
                sender.send(Push(route_to(port), LINES, b"{}", 5_000), outcomes.append)
            await trio.sleep(0.05)
            assert [outcome.failure for outcome in outcomes] == [Failure.OVERLOADED]
        assert [outcome.failure for outcome in outcomes[1:]] == [Failure.CLOSED] * 2
        sender.send(Push(route_to(port), LINES, b"{}", 5_000), outcomes.append)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes[3].failure is Failure.CLOSED


async def test_a_forgotten_lanes_pushes_end_and_the_lane_goes_on():
    sink, outcomes = Sink(), []
    sink.delay_s = 60.0
    async with served(sink) as port, open_httpx_sender(net_of()) as sender:
        for lane in ("a", "a", "b"):
            route = route_to(port, lane=lane)
            sender.send(Push(route, LINES, b"{}", 60_000), lambda each: outcomes.append(each))
        await trio.testing.wait_all_tasks_blocked(0.05)
        sender.forget("a")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [outcome.failure for outcome in outcomes] == [Failure.CLOSED] * 2
        sink.delay_s = 0.0
        assert (await pushed(sender, route_to(port, lane="a"))).status == 200
        assert len(outcomes) == 2


async def closed_port():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    return port


async def test_nobody_listening_is_a_failure_to_connect():
    async with open_httpx_sender(net_of()) as sender:
        outcome = await pushed(sender, route_to(await closed_port()))
        assert outcome.failure is Failure.CONNECT


async def test_a_frame_without_sense_is_malformed_and_who_hangs_up_resets():
    async def speaks_nonsense(stream):
        async with stream:
            await stream.receive_some()
            # Settings of one byte.
            await stream.send_all(b"\x00\x00\x01\x04\x00\x00\x00\x00\x00\x00")
            while await stream.receive_some():
                pass

    async def hangs_up(stream):
        await stream.receive_some()
        await stream.aclose()

    async with open_httpx_sender(net_of()) as sender:
        async with tcp(speaks_nonsense) as port:
            assert (await pushed(sender, route_to(port))).failure is Failure.MALFORMED
        async with tcp(hangs_up) as port:
            assert (await pushed(sender, route_to(port))).failure is Failure.RESET


async def test_a_slow_lane_takes_no_streams_of_another():
    sink = Sink()
    sink.delay_s = 60.0
    async with (
        served(sink, h2_max_concurrent_streams=2) as port,
        open_httpx_sender(net_of()) as sender,
    ):
        slow = []
        for _ in range(4):
            push = Push(route_to(port, lane="slow"), LINES, b"{}", 60_000)
            sender.send(push, slow.append)
        while len(sink.requests) < 2:  # noqa: ASYNC110 -- a server tells no event
            await trio.sleep(0.01)
        sink.delay_s = 0.0
        assert (await pushed(sender, route_to(port, lane="quick"), 30_000)).status == 200
        assert slow == []


@pytest.mark.parametrize("answer_bytes", [2, 200_000])
async def test_streams_left_without_an_end_do_not_use_the_connection_up(answer_bytes):
    sink = Sink()
    sink.delay_s, sink.answer_bytes = (60.0 if answer_bytes == 2 else 0.0), answer_bytes
    async with (
        served(sink, h2_max_concurrent_streams=10) as port,
        open_httpx_sender(net_of(response_bytes_max=1_000)) as sender,
    ):
        outcomes = []
        for _ in range(30):
            push = Push(route_to(port), LINES, b"{}", 200)
            sender.send(push, outcomes.append)
        with trio.fail_after(30):
            while len(outcomes) < 30:  # noqa: ASYNC110 -- a sender tells no event
                await trio.sleep(0.01)
        assert {each.failure for each in outcomes} <= {None, Failure.TIMEOUT, Failure.OVERLOADED}
        sink.delay_s = 0.0
        for _ in range(20):
            assert (await pushed(sender, route_to(port))).status == 200


async def test_a_push_that_found_no_free_connection_is_no_failure_of_the_endpoints():
    sink = Sink()
    sink.delay_s = 60.0
    async with (
        served(sink) as port,
        open_httpx_sender(net_of(), http2=False) as sender,
    ):
        outcomes = []
        for _ in range(10):
            sender.send(Push(route_to(port), LINES, b"{}", 5_000), outcomes.append)
        await trio.sleep(0.1)
        assert (await pushed(sender, route_to(port), 100)).failure is Failure.OVERLOADED
        assert outcomes == []


async def test_a_route_to_one_address_of_a_host_keeps_the_hosts_name():
    sink = Sink()
    async with served(sink) as port, open_httpx_sender(net_of(names={})) as sender:
        route = at_address(route_to(port, host="many.example.com"), "127.0.0.1")
        assert (await pushed(sender, route)).status == 200
        forbidden = at_address(route_to(port, host="many.example.com"), "169.254.169.254")
        assert (await pushed(sender, forbidden)).failure is Failure.FORBIDDEN
    scope, _ = sink.requests[0]
    assert dict(scope["headers"])[b"host"] == b"many.example.com:%d" % port


async def test_connections_that_nobody_uses_are_closed():
    ended = trio.Event()

    async def answers_once(stream):
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        while await stream.receive_some():
            pass
        ended.set()
        await stream.aclose()

    async with (
        tcp(answers_once) as port,
        open_httpx_sender(net_of(idle_s=0.05), http2=False) as sender,
    ):
        assert (await pushed(sender, route_to(port))).status == 200
        with trio.fail_after(5):
            await ended.wait()


# Where pushes may go.


async def test_the_address_that_is_checked_is_the_one_that_is_connected_to():
    asked = []

    def names(host):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    class Rebinding(dict):
        def __contains__(self, host):
            return True

        def __getitem__(self, host):
            return names(host)

    sink = Sink()
    async with served(sink) as port, open_httpx_sender(net_of(names=Rebinding())) as sender:
        route = route_to(port, host="rebinding.example.com")
        assert (await pushed(sender, route)).status == 200
        assert asked == ["rebinding.example.com"]
        assert sink.requests[0][0]["headers"]


@pytest.mark.parametrize("names", [["127.0.0.1"], ["169.254.169.254", "::1"]])
async def test_a_forbidden_address_is_not_connected_to(names):
    sink = Sink()
    net = net_of(guard=STRICT, names={"evil.example.com": names})
    async with served(sink) as port, open_httpx_sender(net) as sender:
        route = route_to(port, host="evil.example.com")
        outcome = await pushed(sender, route)
        assert outcome.failure is Failure.FORBIDDEN
        assert "evil.example.com" in outcome.detail
        assert (await pushed(sender, route_to(port))).failure is Failure.FORBIDDEN
    assert sink.requests == []


async def test_an_address_that_does_not_answer_is_passed_over():
    sink = Sink()
    # A network that RFC 6890 keeps for documentation: nothing is there.
    async with served(sink) as port:
        net = net_of(names={"two.example.com": ["127.0.0.2", "127.0.0.1"]})
        async with open_httpx_sender(net) as sender:
            outcome = await pushed(sender, route_to(port, host="two.example.com"))
            assert outcome.status == 200


async def test_a_name_without_an_address_is_a_failure_to_connect():
    async with open_httpx_sender(net_of(names={})) as sender:
        outcome = await pushed(sender, route_to(80, host="nowhere.example.com"))
    assert outcome.failure is Failure.CONNECT
    assert "nowhere.example.com is not known" in outcome.detail


# TLS.


class Files:
    """Certificates of one authority, and of another that nobody trusts."""

    def __init__(self, folder):
        self.authority, self.strange = trustme.CA(), trustme.CA()
        self.ca = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        self.server = self._issue(folder, "server", self.authority, "localhost")
        self.client = self._issue(folder, "client", self.authority, "hermes.example.com")
        self.stranger = self._issue(folder, "stranger", self.strange, "hermes.example.com")

    def _issue(self, folder, name, authority, identity):
        issued = authority.issue_cert(identity)
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        for at, pem in enumerate(issued.cert_chain_pems):
            pem.write_to_path(str(certificate), append=at > 0)
        issued.private_key_pem.write_to_path(str(key))
        return str(certificate), str(key)

    def settings(self, *, wants_certificate=False):
        certificate, key = self.server
        settings = {"certfile": certificate, "keyfile": key}
        if wants_certificate:
            settings |= {"ca_certs": self.ca, "verify_mode": ssl.CERT_REQUIRED}
        return settings

    def tls(self, pair=("", "")):
        return endpoint_tls(EndpointTlsConfig(self.ca, *pair))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls"))


async def test_https_agrees_on_http2_and_shows_the_nodes_certificate(files):
    sink = Sink()
    async with (
        served(sink, **files.settings(wants_certificate=True)) as port,
        open_httpx_sender(net_of(tls=files.tls(files.client))) as sender,
    ):
        route = route_to(port, "https", "localhost")
        outcome = await pushed(sender, route)
        assert outcome.status == 200, outcome.detail
        assert sink.requests[0][0]["http_version"] == "2"


@pytest.mark.parametrize("who", ["nobody", "stranger"])
async def test_a_server_that_wants_a_certificate_takes_no_other(files, who):
    pair = files.stranger if who == "stranger" else ("", "")
    sink = Sink()
    async with (
        served(sink, **files.settings(wants_certificate=True)) as port,
        open_httpx_sender(net_of(tls=files.tls(pair))) as sender,
    ):
        outcome = await pushed(sender, route_to(port, "https", "localhost"))
    assert outcome.failure in (Failure.CONNECT, Failure.RESET)
    assert sink.requests == []


async def test_a_certificate_of_another_name_or_authority_is_refused_with_the_reason(files):
    async with served(Sink(), **files.settings()) as port:
        net = net_of(tls=files.tls(), names={"other.example.com": ["127.0.0.1"]})
        async with open_httpx_sender(net) as sender:
            outcome = await pushed(sender, route_to(port, "https", "other.example.com"))
            assert outcome.failure is Failure.CONNECT
            assert "other.example.com" in outcome.detail
        async with open_httpx_sender(net_of(tls=ssl.create_default_context())) as sender:
            route = route_to(port, "https", "localhost")
            outcome = await pushed(sender, route)
            assert outcome.failure is Failure.CONNECT
            assert "certificate" in outcome.detail.lower()


# Proxies.


def proxy_at(port, credentials="", no_proxy=()):
    url = f"http://127.0.0.1:{port}"
    return Proxy(url, credentials, no_proxy, ssl.create_default_context())


async def test_plain_http_goes_through_the_proxy_as_http1_with_its_credentials():
    sink, proxy = Sink(), TunnelProxy()
    async with served(sink) as port, tcp(proxy) as at:
        net = net_of(guard=STRICT, proxy=proxy_at(at, "hermes:hush"))
        async with open_httpx_sender(net, http2=False) as sender:
            route = route_to(port, host="inside.example.com")
            assert (await pushed(sender, route)).status == 200
    head = proxy.heads[0]
    assert head.startswith(b"POST http://inside.example.com:")
    assert b"Proxy-Authorization: Basic aGVybWVzOmh1c2g=\r\n" in head
    scope, body = sink.requests[0]
    assert (scope["http_version"], body) == ("1.1", b'{"a":1}')
    assert sink.header(b"keep-alive") == b"true"


@pytest.mark.parametrize("http2", [True, False])
async def test_https_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it(files, http2):
    sink, proxy = Sink(), TunnelProxy()
    async with served(sink, **files.settings()) as port, tcp(proxy) as at:
        net = net_of(tls=files.tls(), proxy=proxy_at(at, "hermes:hush"))
        async with open_httpx_sender(net, http2=http2) as sender:
            outcome = await pushed(sender, route_to(port, "https", "localhost"))
            assert outcome.status == 200, outcome.detail
    assert proxy.heads[0].startswith(b"CONNECT localhost:")
    assert sink.requests[0][0]["http_version"] == ("2" if http2 else "1.1")
    assert sink.header(b"proxy-authorization") is None


async def test_the_guard_looks_at_literal_targets_behind_a_proxy():
    proxy = TunnelProxy()
    async with tcp(proxy) as at:
        net = net_of(guard=STRICT, proxy=proxy_at(at))
        async with open_httpx_sender(net, http2=False) as sender:
            for host in ("127.0.0.1", "localhost", "169.254.169.254", "0x7f.1"):
                outcome = await pushed(sender, route_to(9, host=host))
                assert outcome.failure is Failure.FORBIDDEN, host
    assert proxy.heads == []


async def test_a_proxy_that_refuses_gives_no_message_up():
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    proxy = TunnelProxy(refusal)
    async with tcp(proxy) as at:
        net = net_of(guard=STRICT, tls=ssl.create_default_context(), proxy=proxy_at(at))
        async with open_httpx_sender(net, http2=False) as sender:
            for scheme in ("http", "https"):
                outcome = await pushed(sender, route_to(80, scheme, "some.example.com"))
                assert (outcome.status, outcome.failure) == (0, Failure.CONNECT)
                assert "407" in outcome.detail


async def test_hosts_that_need_no_proxy_are_reached_without_it():
    sink, proxy = Sink(), TunnelProxy()
    async with served(sink) as port, tcp(proxy) as at:
        net = net_of(
            names={"a.inside.example.com": ["127.0.0.1"]},
            proxy=proxy_at(at, no_proxy=["*.inside.example.com", "127.0.0.0/8"]),
        )
        async with open_httpx_sender(net, http2=False) as sender:
            for host in ("a.inside.example.com", "127.0.0.1"):
                assert (await pushed(sender, route_to(port, host=host))).status == 200
    assert proxy.heads == []
