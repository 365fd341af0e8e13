"""The HTTP/1.1 sender over real sockets: trio as the guest of each host loop, as in a node."""

import asyncio  # noqa: TID251 -- the server under the sender lives on the host loop
import random
import socket
import threading
from contextlib import ExitStack, suppress
from functools import partial

import pytest
import trio

from hermes_actors.config import EndpointsConfig
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.consumer.senders.sender import Failure, Push
from hermes_actors.runtime import guest
from hermes_actors.security.address_guard import AddressGuard
from tests.consumer.http1_exchange import OK, Client, run, served
from tests.consumer.http_doubles import LOCAL

pytestmark = pytest.mark.live


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


def test_an_address_that_is_denied_is_not_tried_beside_one_that_is_allowed():
    guard = AddressGuard(EndpointsConfig(allow_loopback=True, denied_networks=["127.0.0.1"]))

    async def main():
        async with served(
            lambda _n, _body: OK,
            guard=guard,
            names=lambda _host: ["127.0.0.1", "127.0.0.2"],
            host="orders.example",
        ) as (server, client):
            outcome = await client.push()
            assert outcome.detail.endswith("Connection refused (127.0.0.2)")
            assert server.connections == 0

    run(main)


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_an_address_that_does_not_answer_costs_a_quarter_of_a_second(host):
    async def main():
        async with served(
            lambda _n, _body: OK, names=lambda _host: ["127.0.0.2", "127.0.0.1"], host="orders"
        ) as (server, client):
            with ExitStack() as sockets:
                # A listener whose backlog is full drops what else would connect.
                full = sockets.enter_context(socket.socket())
                full.bind(("127.0.0.2", server.port))
                full.listen(0)
                for _ in range(3):
                    filling = sockets.enter_context(socket.socket())
                    filling.setblocking(False)
                    filling.connect_ex(("127.0.0.2", server.port))
                before_s = trio.current_time()
                assert (await client.push()).status == 200
                assert 0.2 <= trio.current_time() - before_s <= 3

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
