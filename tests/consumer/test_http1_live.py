"""The HTTP/1.1 sender over real sockets: trio as the guest of each host loop, as in a node."""

import asyncio  # noqa: TID251 -- the server under the sender lives on the host loop
import random
import ssl
import threading
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
import trustme

from hermes_actors.config import EndpointsConfig, EndpointTlsConfig
from hermes_actors.consumer.endpoint import parse_endpoint
from hermes_actors.consumer.endpoint_tls import endpoint_tls
from hermes_actors.consumer.http1 import open_http1_sender
from hermes_actors.consumer.http1_pool import PoolLimits
from hermes_actors.consumer.resolving import Resolver
from hermes_actors.consumer.sender import Failure, Push
from hermes_actors.errors import StartupError
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
async def served(
    script,
    *,
    tls=None,
    close_after=None,
    client_tls=None,
    guard=LOCAL,
    names=None,
    host="localhost",
    **limits,
):
    """`names`: what the test's own name server says, host → addresses."""
    server = Server(script, close_after)
    await guest.call(server.start, tls)
    resolver = None
    if names is not None:
        loop = asyncio.get_running_loop()
        resolver = Resolver(loop.call_soon_threadsafe, loop.time, look_up=names)
    try:
        async with open_http1_sender(
            PoolLimits(**limits), guard=guard, tls=client_tls, resolver=resolver
        ) as sender:
            yield server, Client(sender, server.port, "https" if tls else "http", host)
    finally:
        await guest.call(server.stop)


class Client:
    def __init__(self, sender, port, scheme="http", host="localhost"):
        self.sender = sender
        self.route = parse_endpoint(f"{scheme}://{host}:{port}/in", "lane").resolve(b"")

    async def probe(self):
        event, failures = trio.Event(), []

        def done(failure):
            failures.append(failure)
            event.set()

        self.sender.probe(self.route, done)
        await event.wait()
        return failures[0]

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


def test_a_probe_leaves_a_connection_that_a_push_takes():
    async def main():
        async with served(lambda _n, _body: OK) as (server, client):
            assert await client.probe() is None
            assert (await client.push()).status == 200
            assert server.connections == 1
            port = server.port
        async with open_http1_sender(PoolLimits(), guard=LOCAL) as sender:
            assert await Client(sender, port).probe() is Failure.CONNECT

    run(main)


def test_a_name_that_leads_to_the_machine_itself_is_refused_after_the_look_up():
    async def main(addresses, word):
        guard = AddressGuard(EndpointsConfig())
        async with served(
            lambda _n, _body: OK, guard=guard, names=lambda _host: addresses, host="orders.example"
        ) as (server, client):
            outcome = await client.push()
            assert outcome.failure is Failure.FORBIDDEN
            assert outcome.detail.startswith(f"orders.example ({addresses[0]}) is {word}")
            assert await client.probe() is Failure.FORBIDDEN
            assert server.connections == 0

    run(lambda: main(["127.0.0.1"], "a loopback address"))
    run(lambda: main(["169.254.169.254"], "the metadata service of a cloud"))


def test_the_address_that_was_checked_is_the_one_that_is_connected_to():
    answers = [["127.0.0.1"], ["169.254.169.254"]]

    async def main():
        async with served(
            lambda _n, _body: OK, names=lambda _host: answers.pop(0), host="orders.example"
        ) as (server, client):
            assert (await client.push()).status == 200
            head = server.requests[0][0]
            assert f"Host: orders.example:{server.port}\r\n".encode() in head
            assert len(answers) == 1

    run(main)


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_the_next_address_is_taken_when_one_refuses_or_is_forbidden(host):
    async def main():
        async with served(
            lambda _n, _body: OK,
            names=lambda _host: ["169.254.169.254", "::1", "127.0.0.2", "127.0.0.1"],
            host="orders.example",
        ) as (server, client):
            assert (await client.push()).status == 200
            assert server.connections == 1

    run(main, host)


def test_addresses_that_all_refuse_are_a_failure_that_names_one():
    async def main():
        async with served(
            lambda _n, _body: OK, names=lambda _host: ["127.0.0.2", "127.0.0.3"], host="orders"
        ) as (_, client):
            outcome = await client.push()
            assert outcome.failure is Failure.CONNECT
            assert outcome.detail.endswith("Connection refused (127.0.0.2)")

    run(main)


def test_a_name_that_is_not_found_is_a_failure_to_connect():
    def nobody(_host):
        raise OSError("nobody knows")

    async def main():
        async with served(lambda _n, _body: OK, names=nobody, host="orders") as (_, client):
            outcome = await client.push()
            assert outcome.failure is Failure.CONNECT
            assert outcome.detail.endswith("nobody knows")

    run(main)


def test_a_name_server_that_does_not_answer_is_a_time_out_of_connecting():
    release = threading.Event()

    def dead(_host):
        release.wait(10)
        return ["127.0.0.1"]

    async def main():
        loop = asyncio.get_running_loop()
        resolver = Resolver(loop.call_soon_threadsafe, loop.time, look_up=dead)
        async with open_http1_sender(
            PoolLimits(), guard=LOCAL, resolver=resolver, connect_timeout_s=0.1
        ) as sender:
            outcome = await Client(sender, 9, host="orders").push()
            assert outcome.reason() == (
                "connect: http://orders:9: no address was found within 0.1 s"
            )
            release.set()

    run(main)


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_a_peer_that_does_not_read_costs_one_push_its_time_and_little_memory(host):
    async def main():
        async def never(_reader, writer):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            writer.close()

        server = await guest.call(partial(asyncio.start_server, never, "127.0.0.1", 0, limit=1))
        port = server.sockets[0].getsockname()[1]
        async with open_http1_sender(PoolLimits(), guard=LOCAL) as sender:
            # More than the kernels on both sides buffer.
            outcome = await Client(sender, port).push(b"x" * 40_000_000, timeout_ms=400)
            assert outcome.reason() == (
                "timeout: the endpoint had not taken the whole request within 400 ms"
            )
        server.close()

    run(main, host)


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_what_a_slow_reader_gets_is_whole(host):
    body = random.Random(1).randbytes(6_000_000)

    async def main():
        got = bytearray()

        async def slow(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Length: 6000000\r\n" in head
            while len(got) < len(body):
                got.extend(await reader.read(150_000))
                await asyncio.sleep(0.002)
            writer.write(OK)
            writer.close()

        server = await guest.call(partial(asyncio.start_server, slow, "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        async with open_http1_sender(PoolLimits(), guard=LOCAL) as sender:
            assert (await Client(sender, port).push(body)).status == 200
        assert got == body
        server.close()

    run(main, host)


class Certificates:
    """A server that asks for client certificates, and files for those who have one."""

    def __init__(self, folder):
        authority, others = trustme.CA(), trustme.CA()
        self.names = []
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("orders.example", "127.0.0.1").configure_cert(self.server)
        authority.configure_trust(self.server)
        self.server.verify_mode = ssl.CERT_REQUIRED
        self.server.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self.authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(self.authority)
        self.good = self._files(folder, "good", authority)
        self.bad = self._files(folder, "bad", others)

    def _files(self, folder, name, authority):
        issued = authority.issue_cert("hermes.example", common_name="hermes")
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        issued.private_key_pem.write_to_path(key)
        for pem in issued.cert_chain_pems:
            pem.write_to_path(certificate, append=True)
        return {"certificate_file": str(certificate), "key_file": str(key)}

    def client(self, **files):
        return endpoint_tls(EndpointTlsConfig(ca_file=str(self.authority), **files), "http/1.1")


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_a_client_certificate_is_shown_to_who_asks_and_the_name_is_sent(host, tmp_path):
    certificates = Certificates(tmp_path)

    async def main(client_tls, name):
        async with served(
            lambda _n, _body: OK,
            tls=certificates.server,
            client_tls=client_tls,
            names=lambda _host: ["127.0.0.1"],
            host=name,
        ) as (_, client):
            return await client.push(b"x" * 300_000)

    outcomes = []

    def push(client_tls, name="orders.example"):
        async def one():
            outcomes.append(await main(client_tls, name))

        run(one, host)
        return outcomes.pop()

    assert push(certificates.client(**certificates.good)).status == 200
    assert certificates.names == ["orders.example"]
    assert push(certificates.client(**certificates.good), "127.0.0.1").status == 200
    assert push(certificates.client(), "orders.example").failure is not None
    assert push(certificates.client(**certificates.bad)).failure is not None
    wrong_name = push(certificates.client(**certificates.good), "other.example")
    assert wrong_name.failure is Failure.CONNECT
    assert "other.example" in wrong_name.detail
    untrusted = push(endpoint_tls(EndpointTlsConfig()))
    assert untrusted.failure is Failure.CONNECT
    assert "certificate verify failed" in untrusted.detail


@pytest.mark.parametrize("name", ["ca_file", "certificate_file"])
def test_files_that_cannot_be_used_are_told_by_their_field(name, tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    files = {"ca_file": ""} | {name: str(wrong)}
    if name == "certificate_file":
        files["key_file"] = str(wrong)
    with pytest.raises(StartupError, match=rf"consumers\.tls\.{name}: .*wrong\.pem"):
        endpoint_tls(EndpointTlsConfig(**files))


def test_plain_text_to_a_port_that_speaks_tls_is_a_failure(tmp_path):
    certificates = Certificates(tmp_path)

    async def main():
        async with served(lambda _n, _body: OK, tls=certificates.server) as (server, client):
            client = Client(client.sender, server.port, "http")
            outcome = await client.push(timeout_ms=2_000)
            assert outcome.failure in (Failure.MALFORMED, Failure.RESET)

    run(main)
