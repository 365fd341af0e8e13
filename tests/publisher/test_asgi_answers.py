"""What an app answers is the same over HTTP/1.1 and HTTP/2, over real sockets."""

import asyncio  # noqa: TID251 -- the edge lives on the host loop
import logging
from collections.abc import Awaitable, Callable

import h2.connection
import h2.events
import pytest

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges import server as http_server
from hermes_actors.publisher.edges.asgi import AsgiServer
from hermes_actors.runtime.clock import SystemClock

pytestmark = pytest.mark.live


class Answering:
    """Answers with the status that the path names, and a body; `/late` fails after its answer."""

    def __init__(self) -> None:
        self.begun = 0
        self.changed = asyncio.Event()
        self.waits = asyncio.Event()

    async def serve(self, scope, receive, send) -> None:
        self.begun += 1
        self.changed.set()
        path = scope["path"]
        if path == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 100_000})
            return
        if path == "/wait":
            await self.waits.wait()
        status = int(path[1:]) if path[1:].isdigit() else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"body", "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        if path == "/late":
            await asyncio.sleep(0)
            raise RuntimeError("a defect")

    async def has_begun(self, count: int) -> None:
        while self.begun < count:
            self.changed.clear()
            await self.changed.wait()


def serve(
    client: Callable[[int, Answering], Awaitable[None]],
    config: FrontendConfig | None = None,
    **times_s: float,
) -> None:
    async def main() -> None:
        app = Answering()
        config_ = config or FrontendConfig(port=0)
        server = AsgiServer(app.serve, config_, SystemClock(), field="management.port", **times_s)
        await server.start()
        try:
            async with asyncio.timeout(10):
                await client(server.port, app)
        finally:
            app.waits.set()
            await server.stop()

    asyncio.run(main())


async def over_1(port: int, *requests: str) -> bytes:
    """All answers to requests that one connection sends ahead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    last = "Connection: close\r\n"
    for number, each in enumerate(requests, 1):
        close = last if number == len(requests) else ""
        writer.write(f"{each} HTTP/1.1\r\nHost: x\r\n{close}\r\n".encode())
    answers = await reader.read()
    writer.close()
    return answers


async def over_2(port: int, *requests: str) -> list[tuple[int, bytes]]:
    """The answers to requests that one connection sends together."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    frames = h2.connection.H2Connection()
    frames.initiate_connection()
    for number, each in enumerate(requests):
        method, path = each.split(" ")
        pairs = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
        frames.send_headers(2 * number + 1, pairs, end_stream=True)
    writer.write(frames.data_to_send())
    statuses, bodies, ended = {}, dict.fromkeys(range(1, 2 * len(requests), 2), b""), 0
    while ended < len(requests):
        for event in frames.receive_data(await reader.read(65_536)):
            if isinstance(event, h2.events.ResponseReceived):
                statuses[event.stream_id] = int(dict(event.headers)[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id] += event.data
            elif isinstance(event, h2.events.StreamEnded):
                ended += 1
    writer.close()
    return [(statuses[each], bodies[each]) for each in sorted(statuses)]


@pytest.mark.parametrize("request_", ["HEAD /200", "GET /204", "GET /304"])
def test_an_answer_that_has_no_body_has_none_whatever_the_app_sends(request_) -> None:
    async def client(port: int, _app: Answering) -> None:
        status = int(request_[-3:])
        answers = await over_1(port, request_, "GET /404")
        first, _, rest = answers.partition(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 %d " % status)
        assert rest.startswith(b"HTTP/1.1 404 ")
        assert await over_2(port, request_, "GET /404") == [(status, b""), (404, b"body")]

    serve(client)


def test_an_app_that_fails_after_its_answer_leaves_its_connection_to_others(monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger(http_server.__name__), "disabled", True)

    async def client(port: int, app: Answering) -> None:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(over_1(port, "GET /late", "GET /wait"))
            second = tasks.create_task(over_2(port, "GET /late", "GET /wait"))
            await app.has_begun(4)
            await asyncio.sleep(0.05)
            app.waits.set()
        assert first.result().count(b"HTTP/1.1 200 ") == 2
        assert second.result() == [(200, b"body")] * 2

    serve(client)


def test_requests_that_were_taken_back_count_until_the_app_is_done_with_them() -> None:
    async def client(port: int, app: Answering) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        frames = h2.connection.H2Connection()
        frames.initiate_connection()
        pairs = [(":method", "GET"), (":path", "/wait"), (":scheme", "http"), (":authority", "x")]
        for stream in range(1, 401, 2):
            frames.send_headers(stream, pairs, end_stream=True)
            frames.reset_stream(stream)
        writer.write(frames.data_to_send())
        await app.has_begun(20)
        await asyncio.sleep(0.2)
        assert app.begun == 20
        assert (await over_1(port, "GET /200")).startswith(b"HTTP/1.1 503 ")
        app.waits.set()
        await asyncio.sleep(0.05)
        assert (await over_1(port, "GET /200")).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serve(client, FrontendConfig(port=0, connections_max=20))


def test_answers_that_nobody_has_read_count_until_they_are_read() -> None:
    async def client(port: int, app: Answering) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        frames = h2.connection.H2Connection()
        frames.initiate_connection()
        pairs = [(":method", "GET"), (":path", "/large"), (":scheme", "http"), (":authority", "x")]
        for stream in range(1, 101, 2):
            frames.send_headers(stream, pairs, end_stream=True)
            writer.write(frames.data_to_send())
            await asyncio.sleep(0.005)
        assert app.begun == 20
        statuses, ended = [], 0
        while ended < 50:
            for event in frames.receive_data(await reader.read(65_536)):
                if isinstance(event, h2.events.ResponseReceived):
                    statuses.append(int(dict(event.headers)[b":status"]))
                elif isinstance(event, h2.events.DataReceived):
                    size = event.flow_controlled_length
                    frames.acknowledge_received_data(size, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    ended += 1
            writer.write(frames.data_to_send())
        assert sorted(statuses) == [200] * 20 + [503] * 30
        assert (await over_1(port, "GET /200")).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serve(client, FrontendConfig(port=0, connections_max=20))


def test_an_answer_that_nobody_reads_gives_its_place_back_though_others_are_read() -> None:
    async def client(port: int, app: Answering) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        frames = h2.connection.H2Connection()
        frames.initiate_connection()
        frames.increment_flow_control_window(1_000_000)
        pairs = [(":method", "GET"), (":path", "/large"), (":scheme", "http"), (":authority", "x")]
        frames.send_headers(1, pairs, end_stream=True)
        reset: list[int] = []
        stream = 3
        while not reset:
            frames.send_headers(
                stream, [*pairs[:1], (":path", "/200"), *pairs[2:]], end_stream=True
            )
            stream += 2
            writer.write(frames.data_to_send())
            events = frames.receive_data(await reader.read(65_536))
            reset = [each.stream_id for each in events if isinstance(each, h2.events.StreamReset)]
            await asyncio.sleep(0.02)
        assert reset == [1]
        writer.close()

    serve(client, unread_s=0.5)
