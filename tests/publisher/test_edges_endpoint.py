"""A subscriber's endpoint: whole requests in, one answer at a time out."""

import json
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from hermes_actors.errors import StartupError
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges import endpoint
from hermes_actors.publisher.edges.endpoint import EndpointServer

pytestmark = pytest.mark.guest

PLAIN = b"POST /a?b=1 HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nde\r\n1;x=y\r\nf\r\n0\r\n\r\n"
)
LAST = b"GET /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def tell(request, body, reply):
    """Answers with what was asked."""
    told = [request.method, request.target, body.decode()]
    reply(Answer(200, body=json.dumps(told).encode() + b"\n"), 0)


class Keeper:
    """Keeps the replies for the test to make."""

    def __init__(self):
        self.replies = []

    def respond(self, request, body, reply):
        self.replies.append(reply)

    async def asked(self):
        while not self.replies:  # noqa: ASYNC110 -- the host's loop tells no event of trio's
            await trio.sleep(0.001)


@asynccontextmanager
async def talking(respond=tell):
    """A connection to a server; its 20 s are far above what any test takes."""
    server = EndpointServer(respond)
    with trio.fail_after(20):
        async with server.serving(1), await connected(server) as stream:
            yield stream


async def connected(server):
    return await trio.open_tcp_stream("127.0.0.1", server.port)


async def read_until(stream, end):
    data = b""
    while end not in data:
        more = await stream.receive_some()
        assert more, f"ended after {data!r}"
        data += more
    return data


async def read_all(stream):
    data = b""
    while more := await stream.receive_some():
        data += more
    return data


async def test_the_next_request_waits_for_the_answer_to_the_one_before():
    keeper = Keeper()
    async with talking(keeper.respond) as stream:
        await stream.send_all(PLAIN + LAST)
        await keeper.asked()
        first = keeper.replies.pop()
        assert keeper.replies == []
        first(Answer(204), 0.01)
        head = await read_until(stream, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 204 No Content\r\n")
        assert b"Content-Length" not in head
        await keeper.asked()
        keeper.replies.pop()(Answer(200), 0)
        assert b"Connection: close" in await read_all(stream)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 65_537 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n", 413),
        (CHUNKED.replace(b"2\r\nde\r\n", b"6\r\nabcdef\r\n"), 413),
    ],
)
async def test_what_cannot_be_taken_is_answered_and_ends_the_connection(monkeypatch, data, status):
    monkeypatch.setattr(endpoint, "BODY_BYTES_MAX", 5)
    async with talking() as stream:
        await stream.send_all(data)
        answered = await read_until(stream, b"Connection: close\r\n")
    assert answered.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.slow
async def test_at_the_end_what_is_under_way_is_answered_and_what_is_idle_is_closed():
    keeper = Keeper()
    server = EndpointServer(keeper.respond)

    async def reply_after_the_end_of(idle):
        assert await idle.receive_some() == b""
        keeper.replies[0](Answer(200), 0)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            async with server.serving():
                busy, idle = await connected(server), await connected(server)
                await busy.send_all(PLAIN)
                await keeper.asked()
                nursery.start_soon(reply_after_the_end_of, idle)
            assert (await read_all(busy)).startswith(b"HTTP/1.1 200 OK")
    await busy.aclose()
    await idle.aclose()


async def test_a_silent_connection_is_closed_by_the_sweep_and_a_waiting_one_is_not():
    keeper = Keeper()
    server = EndpointServer(keeper.respond)
    with trio.fail_after(20):
        async with server.serving(1), await connected(server) as busy:
            await busy.send_all(PLAIN)
            await keeper.asked()
            async with await connected(server) as idle:
                while len(server.connections) < 2:  # noqa: ASYNC110 -- as above
                    await trio.sleep(0.001)
                server.sweep(server._loop.time() + 121)
                with suppress(trio.BrokenResourceError):
                    assert await idle.receive_some() == b""
            keeper.replies[0](Answer(200), 0)
            assert b"200 OK" in await read_until(busy, b"\r\n\r\n")


async def test_an_address_that_is_taken_cannot_be_bound():
    first = EndpointServer(tell)
    async with first.serving(0):
        with pytest.raises(StartupError, match="another process does"):
            EndpointServer(tell, port=first.port)
