"""Connections whose client does not read its answers are closed, over real sockets."""

import asyncio  # noqa: TID251 -- the edge lives on the host loop
import socket
from collections.abc import Awaitable, Callable

import h2.connection
import h2.settings
import pytest
from hyperframe.frame import DataFrame, Frame, GoAwayFrame

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.asgi import AsgiServer
from hermes_actors.runtime.clock import SystemClock

pytestmark = pytest.mark.live

UNREAD_S = 0.5
PAGE = b"x" * 1_000_000


class PageEdge:
    """Answers everything with one large page."""

    async def serve(self, scope, receive, send) -> None:
        headers = [(b"content-length", b"%d" % len(PAGE))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PAGE})


def serve(client: Callable[[int], Awaitable[None]]) -> None:
    """Run a client against a listener, then see that nothing of the listener is left."""

    async def main() -> None:
        server = AsgiServer(
            PageEdge().serve,
            FrontendConfig(port=0),
            SystemClock(),
            field="management.port",
            unread_s=UNREAD_S,
        )
        await server.start()
        try:
            await client(server.port)
        finally:
            await server.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


async def read_to_the_end(connection: socket.socket, pause_s: float = 0.0) -> int:
    """How many bytes came before the server closed."""
    loop = asyncio.get_running_loop()
    count = 0
    async with asyncio.timeout(10):
        while True:
            try:
                piece = await loop.sock_recv(connection, 65_536)
            except ConnectionError:
                return count
            if not piece:
                return count
            count += len(piece)
            await asyncio.sleep(pause_s)


def test_a_client_that_reads_nothing_loses_its_connection() -> None:
    async def client(port: int) -> None:
        with connect(port) as connection:
            request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(connection, request * 20)
            await asyncio.sleep(UNREAD_S * 3)
            assert await read_to_the_end(connection) < 20 * len(PAGE)

    serve(client)


def test_an_http2_client_that_gives_no_room_loses_its_connection() -> None:
    async def client(port: int) -> None:
        protocol = h2.connection.H2Connection()
        protocol.initiate_connection()
        protocol.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        for stream in (1, 3):
            headers = [
                (":method", "GET"),
                (":path", "/"),
                (":scheme", "http"),
                (":authority", "x"),
            ]
            protocol.send_headers(stream, headers, end_stream=True)
        with connect(port) as connection:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, protocol.data_to_send())
            assert await read_to_the_end(connection) < 1_000

    serve(client)


def test_an_http2_client_is_told_to_go_and_what_is_on_its_way_is_answered() -> None:
    async def main() -> None:
        server = AsgiServer(
            PageEdge().serve, FrontendConfig(port=0), SystemClock(), field="management.port"
        )
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        client = h2.connection.H2Connection()
        client.initiate_connection()
        client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2 * len(PAGE)})
        client.increment_flow_control_window(2 * len(PAGE))
        writer.write(client.data_to_send())
        await asyncio.sleep(0.05)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        # It has not heard yet that it is to go.
        headers = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
        client.send_headers(1, headers, end_stream=True)
        writer.write(client.data_to_send())
        async with asyncio.timeout(5):
            frames = frames_in(await reader.read())
        goodbyes = [each.last_stream_id for each in frames if isinstance(each, GoAwayFrame)]
        assert goodbyes == [2**31 - 1, 1]
        body = [each.data for each in frames if isinstance(each, DataFrame)]
        assert b"".join(body) == PAGE
        await stopping
        writer.close()

    asyncio.run(main())


def frames_in(data: bytes) -> list[Frame]:
    frames = []
    while data:
        frame, length = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + length]))
        frames.append(frame)
        data = data[9 + length :]
    return frames


def test_a_request_on_its_way_to_a_listener_that_ends_is_the_last_of_its_connection() -> None:
    async def main() -> None:
        server = AsgiServer(
            PageEdge().serve, FrontendConfig(port=0), SystemClock(), field="management.port"
        )
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.sleep(0.05)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"Connection: close" in answer
        assert answer.endswith(PAGE)
        await stopping
        writer.close()

    asyncio.run(main())
