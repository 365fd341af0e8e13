"""The HTTP/1.1 sender over real sockets: trio as the guest of each host loop, as in a node."""

import asyncio  # noqa: TID251 -- the server under the sender lives on the host loop
import threading
from contextlib import suppress
from functools import partial

import pytest

from hermes_actors.config import EndpointsConfig
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.consumer.senders.sender import Failure
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
