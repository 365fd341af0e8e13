import threading
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_chaos.live.frames import (
    Api,
    Frames,
    NotKafka,
    answer,
    answer_header,
    request,
    request_header,
)
from hermes_chaos.live.proxy import Harm, Link, open_links, proxy_in_thread


class FakeBroker:
    """Takes framed requests, in order, and answers each; what it has taken is what it stored."""

    def __init__(self):
        self.taken = []
        self.changed = trio.Condition()

    async def serve(self, stream):
        frames = Frames()
        async with stream:
            try:
                while data := await stream.receive_some(1_000):
                    for frame in frames.feed(data):
                        self.taken.append(frame)
                        async with self.changed:
                            self.changed.notify_all()
                        await stream.send_all(answer(request_header(frame)[1], frame[12:]))
            except trio.BrokenResourceError:
                pass

    async def wait_taken(self, count):
        async with self.changed:
            while len(self.taken) < count:
                await self.changed.wait()


class Client:
    def __init__(self, stream):
        self._stream = stream
        self._frames = Frames()

    async def send(self, correlation, rest=b"", api=Api.PRODUCE):
        await self._stream.send_all(request(api, correlation, rest))

    async def receive(self, count=1):
        """At least so many answers' correlation ids; fewer at the end of the connection."""
        found = []
        while len(found) < count and (data := await self._stream.receive_some(1_000)):
            found += [answer_header(frame) for frame in self._frames.feed(data)]
        return found

    async def close(self):
        await self._stream.aclose()


@asynccontextmanager
async def connecting(link):
    async with AsyncExitStack() as clients:

        async def connect():
            stream = await trio.open_tcp_stream("127.0.0.1", link.port)
            return Client(await clients.enter_async_context(stream))

        with trio.fail_after(20):
            yield connect


@asynccontextmanager
async def proxied():
    broker = FakeBroker()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, broker.serve, 0, host="127.0.0.1"))
        link = Link(listeners[0].socket.getsockname()[:2])
        async with open_links([link]), connecting(link) as connect:
            yield broker, link, connect
        nursery.cancel_scope.cancel()


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_are_the_same_however_the_stream_was_cut(bodies, data):
    sent = [request(Api.FETCH, n, body) for n, body in enumerate(bodies)]
    stream = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames = Frames()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += frames.feed(stream[start:end])
    assert found == sent
    assert [request_header(frame) for frame in found] == [
        (Api.FETCH, n) for n in range(len(bodies))
    ]


@pytest.mark.parametrize("stream", [b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_kafka_is_refused(stream):
    with pytest.raises(NotKafka):
        Frames().feed(stream)


async def test_a_healthy_link_passes_requests_and_answers_on():
    async with proxied() as (broker, _, connect):
        client = await connect()
        await client.send(7, b"x" * 200_000)
        await client.send(8, b"y")
        assert await client.receive(2) == [7, 8]
        assert len(broker.taken) == 2


async def test_a_link_that_reads_no_frames_passes_any_bytes_and_the_end_of_the_stream():
    async def echo(stream):
        async with stream:
            while data := await stream.receive_some(1_000):
                await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, echo, 0, host="127.0.0.1"))
        link = Link(listeners[0].socket.getsockname()[:2], is_kafka=False)
        async with open_links([link]):
            stream = await trio.open_tcp_stream("127.0.0.1", link.port)
            async with stream:
                await stream.send_all(b"\xff\xff\xff\xffGET")
                await stream.send_eof()
                received = b"".join([data async for data in stream])
            assert received == b"\xff\xff\xff\xffGET"
        nursery.cancel_scope.cancel()


async def test_a_rule_strikes_only_its_api_and_what_holds_its_bytes():
    async with proxied() as (_, link, connect):
        rule = link.harm(Api.PRODUCE, Harm.DROP_ANSWER, holding=b"orders")
        client = await connect()
        await client.send(1, b"orders", api=Api.FETCH)
        await client.send(2, b"invoices")
        await client.send(3, b"orders")
        await client.send(4, b"orders")
        assert await client.receive(3) == [1, 2, 4]
        assert rule.struck == 1


def test_links_run_in_a_thread_of_their_own_too():
    started, stop = threading.Event(), threading.Event()
    ports = []

    async def serve():
        broker = FakeBroker()
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(trio.serve_tcp, broker.serve, 0, host="127.0.0.1")
            )
            ports.append(listeners[0].socket.getsockname()[1])
            started.set()
            await trio.to_thread.run_sync(stop.wait)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert started.wait(10)
    try:
        with proxy_in_thread(lambda: [Link(("127.0.0.1", ports[0]))]) as proxy:
            (link,) = proxy.links

            async def ask():
                async with connecting(link) as connect:
                    client = await connect()
                    await client.send(1)
                    return await client.receive()

            assert trio.run(ask) == [1]
            proxy.do(link.cut)
            with pytest.raises(OSError, match="attempts to connect"):
                trio.run(ask)
            proxy.heal()
            assert trio.run(ask) == [1]
    finally:
        stop.set()
        thread.join(10)
