"""The HTTP/1.1 sender over real sockets: trio as the guest of each host loop, as in a node."""

import asyncio  # noqa: TID251 -- the server under the sender lives on the host loop
import ssl
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from hermes_actors.config import EndpointsConfig
from hermes_actors.consumer.endpoint import parse_endpoint
from hermes_actors.consumer.http1 import open_http1_sender
from hermes_actors.consumer.http1_pool import PoolLimits
from hermes_actors.consumer.sender import Failure, Push
from hermes_actors.runtime import guest
from hermes_actors.security.address_guard import AddressGuard

pytestmark = pytest.mark.live

LOCAL = AddressGuard(EndpointsConfig(allow_loopback=True))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """A TCP server that answers the n-th request of a connection as `script(n, request)` says:
    bytes, or None to close. `close_after` closes when that many were answered.
    """

    def __init__(self, script, close_after=None):
        self.script = script
        self.close_after = close_after
        self.requests = []
        self.connections = 0

    async def _serve(self, reader, writer):
        self.connections += 1
        number = 0
        try:
            while self.close_after is None or number < self.close_after:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append((head, body))
                answer = self.script(number, body)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                number += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def start(self, tls=None):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self):
        self._server.close()


def run(main, host="asyncio"):
    async def with_limit():
        with trio.fail_after(20):
            await main()
        # Transports that were closed report it to the loop once more.
        await guest.call(asyncio.sleep, 0.05)

    guest.run(with_limit, host=host)


@asynccontextmanager
async def served(script, *, tls=None, close_after=None, client_tls=None, **limits):
    server = Server(script, close_after)
    await guest.call(server.start, tls)
    try:
        async with open_http1_sender(PoolLimits(**limits), guard=LOCAL, tls=client_tls) as sender:
            yield server, Client(sender, server.port, "https" if tls else "http")
    finally:
        await guest.call(server.stop)


class Client:
    def __init__(self, sender, port, scheme="http"):
        self.sender = sender
        self.route = parse_endpoint(f"{scheme}://localhost:{port}/in", "lane").resolve(b"")

    async def push(self, body=b"hello", timeout_ms=5_000):
        event, outcomes = trio.Event(), []

        def done(outcome):
            outcomes.append(outcome)
            event.set()

        self.sender.send(Push(self.route, b"A: b\r\n", body, timeout_ms), done)
        await event.wait()
        assert len(outcomes) == 1
        return outcomes[0]


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_a_push_arrives_whole_and_the_connection_is_kept(host):
    async def main():
        async with served(lambda _n, _body: OK) as (server, client):
            for size in (0, 5, 2_000_000):
                assert (await client.push(b"x" * size)).status == 200
            assert [len(body) for _, body in server.requests] == [0, 5, 2_000_000]
            head = server.requests[0][0]
            assert head.startswith(b"POST /in HTTP/1.1\r\nHost: localhost:")
            assert b"\r\nA: b\r\n" in head
            assert server.connections == 1

    run(main, host)


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_a_server_that_closes_idle_connections_costs_no_failure(host):
    async def main():
        async with served(lambda _n, _body: OK, close_after=1) as (server, client):
            outcomes = [await client.push() for _ in range(20)]
            assert {outcome.status for outcome in outcomes} == {200}
            assert server.connections == 20

    run(main, host)


def test_a_hundred_pushes_at_once_share_the_allowed_connections():
    async def main():
        async with (
            served(lambda _n, _body: OK, connections_max=5) as (server, client),
            trio.open_nursery() as nursery,
        ):
            outcomes = []

            async def one():
                outcomes.append(await client.push())

            for _ in range(100):
                nursery.start_soon(one)
            while len(outcomes) < 100:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert {outcome.status for outcome in outcomes} == {200}
            assert server.connections == 5

    run(main)


ANSWERS = [
    ("chunked", b"HTTP/1.1 202 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 202),
    ("interim first", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200),
    ("close-delimited", b"HTTP/1.1 200 x\r\nConnection: close\r\n\r\nbody", 200),
    ("too long", b"HTTP/1.1 200 x\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 200_000, 200),
    ("redirect", b"HTTP/1.1 302 x\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", 302),
    ("rubbish", b"\x16\x03\x01rubbish\r\n\r\n", Failure.MALFORMED),
    ("closed", None, Failure.RESET),
    ("silent", b"", Failure.TIMEOUT),
]


@pytest.mark.parametrize(
    ("answer", "expected"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS]
)
def test_each_kind_of_answer_has_its_outcome(answer, expected):
    async def main():
        closes = 1 if answer is not None and b"Connection: close" in answer else None
        async with served(lambda _n, _body: answer, close_after=closes) as (_, client):
            outcome = await client.push(timeout_ms=300)
            assert (outcome.failure or outcome.status) == expected

    run(main)


def test_nobody_listening_is_a_failure_to_connect_that_names_the_address():
    async def main():
        async with served(lambda _n, _body: OK) as (server, _):
            port = server.port
        async with open_http1_sender(PoolLimits(), guard=LOCAL) as sender:
            outcome = await Client(sender, port).push()
            assert outcome.failure is Failure.CONNECT
            assert f"localhost:{port}" in outcome.detail
            outcome = await Client(sender, port, "https").push()
            assert outcome.failure is Failure.CONNECT

    run(main)


def test_https_verifies_the_certificate_against_the_host_name():
    authority = trustme.CA()

    def contexts(name):
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(server_tls)
        client_tls = ssl.create_default_context()
        authority.configure_trust(client_tls)
        return server_tls, client_tls

    async def main(name, expected):
        server_tls, client_tls = contexts(name)
        async with served(lambda _n, _body: OK, tls=server_tls, client_tls=client_tls) as (
            _,
            client,
        ):
            outcome = await client.push()
            assert (outcome.failure or outcome.status) == expected

    run(lambda: main("localhost", 200))
    run(lambda: main("other.example", Failure.CONNECT))


def test_closing_the_sender_ends_what_is_in_flight():
    async def main():
        outcomes = []
        async with served(lambda _n, _body: b"") as (server, client):
            client.sender.send(Push(client.route, b"", b"x", 60_000), outcomes.append)
            while not server.requests:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert [outcome.failure for outcome in outcomes] == [Failure.CLOSED]

    run(main)
