"""No connection outlives its answer: hostile bytes over real sockets, and every descriptor back."""

import asyncio  # noqa: TID251 -- the edge lives on the host loop
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import h2.connection
import h2.events
import pytest

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges import server as http_server
from hermes_actors.publisher.edges.asgi import AsgiServer
from hermes_actors.publisher.edges.http1 import connection
from hermes_actors.runtime.clock import SystemClock

pytestmark = pytest.mark.live

FLOOD = b"1\r\na\r\n" * 200_000
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CONFIG = FrontendConfig(port=0, head_timeout_ms=300, connections_max=50)


class TimeoutEdge:
    """Answers 408 when the first of a body has come, and reads no more."""

    async def serve(self, scope, receive, send) -> None:
        if scope["method"] == "POST":
            await receive()
        headers = [(b"content-length", b"2")]
        if scope["path"] == "/fails":
            raise RuntimeError("a defect")
        await send({"type": "http.response.start", "status": 408, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- a count, not paths


def serve(client: Callable[[int], Awaitable[None]], config: FrontendConfig = CONFIG) -> None:
    """Run a client; when it has gone nothing of its connections is left."""

    async def main() -> None:
        server = AsgiServer(
            TimeoutEdge().serve, config, SystemClock(), field="management.port", idle_s=0.5
        )
        await server.start()
        before = descriptors()
        try:
            async with asyncio.timeout(10):
                await client(server.port)
                while descriptors() > before:  # noqa: ASYNC110 -- the system tells nobody
                    await asyncio.sleep(0.02)
        finally:
            await server.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


async def answer_to(port: int, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """All that comes until the server closes; what is sent may be more than it reads."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        for part in parts:
            try:
                writer.write(part)
                await writer.drain()
            except ConnectionError:
                return
            await asyncio.sleep(pause_s)

    sending = asyncio.create_task(send())
    try:
        return await reader.read()
    except ConnectionError:
        return b"reset"
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        writer.close()


def test_a_flood_that_nobody_reads_gets_its_answer_and_leaves_nothing() -> None:
    async def client(port: int) -> None:
        async with asyncio.TaskGroup() as floods:
            for _ in range(4):
                floods.create_task(flood(port))

    async def flood(port: int) -> None:
        assert (await answer_to(port, CHUNKED, FLOOD)).startswith(b"HTTP/1.1 408")

    serve(client)


def test_a_client_that_goes_after_its_answer_leaves_nothing() -> None:
    async def client(port: int) -> None:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CHUNKED + FLOOD)
            # A server that has waited long enough for the rest of the flood resets the connection.
            with suppress(ConnectionResetError):
                assert (await reader.read(12)) == b"HTTP/1.1 408"
            writer.transport.abort()

    serve(client)


@pytest.mark.parametrize("sends_on", [True, False])
def test_a_client_that_stays_after_its_answer_is_cut_off(monkeypatch, sends_on) -> None:
    monkeypatch.setattr(connection, "_LINGER_S", 0.3)

    async def client(port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as held:
            held.setblocking(False)
            await loop.sock_sendall(held, CHUNKED + b"1\r\na\r\n")
            assert (await loop.sock_recv(held, 12)) == b"HTTP/1.1 408"
            both = descriptors()
            started_s = loop.time()
            while descriptors() == both:
                if sends_on:
                    await loop.sock_sendall(held, b"1\r\na\r\n")
                await asyncio.sleep(0.02)
            assert 0.2 < loop.time() - started_s < 3

    serve(client)


def test_an_app_that_fails_before_it_has_read_leaves_nothing() -> None:
    async def client(port: int) -> None:
        request = CHUNKED.replace(b"POST / ", b"POST /fails ")
        logging.getLogger(http_server.__name__).disabled = True
        try:
            assert (await answer_to(port, request, FLOOD)).startswith(b"HTTP/1.1 500")
        finally:
            logging.getLogger(http_server.__name__).disabled = False

    serve(client)


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize(
    "request_",
    [
        WEBSOCKET,
        WEBSOCKET.replace(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b""),
        WEBSOCKET.replace(b"websocket", b"WebSocket").replace(
            b": Upgrade", b": keep-alive, upgrade"
        ),
        WEBSOCKET + b"\x81\x85" + b"x" * 10_000,
    ],
)
def test_a_websocket_is_answered_426_and_closed_without_a_fault(request_, caplog) -> None:
    async def client(port: int) -> None:
        answer = await answer_to(port, request_)
        assert answer.startswith(b"HTTP/1.1 426")
        assert b"connection: close" in answer.lower()

    serve(client)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_websocket_over_http2_is_refused_and_the_connection_goes_on(caplog) -> None:
    async def client(port: int) -> None:
        protocol = h2.connection.H2Connection()
        protocol.initiate_connection()
        plain = [(":scheme", "http"), (":path", "/"), (":authority", "x")]
        upgrade = [("sec-websocket-version", "13")]
        connect = [(":method", "CONNECT"), (":protocol", "websocket"), *plain, *upgrade]
        protocol.send_headers(1, connect)
        protocol.send_headers(3, [(":method", "GET"), *plain], end_stream=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(protocol.data_to_send())
        statuses: dict[int, bytes] = {}
        while len(statuses) < 2:
            for event in protocol.receive_data(await reader.read(65_536)):
                if isinstance(event, h2.events.ResponseReceived):
                    statuses[event.stream_id] = dict(event.headers)[b":status"]
        assert statuses == {1: b"501", 3: b"408"}
        writer.close()

    serve(client)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
