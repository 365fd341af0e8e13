"""The names of hypercorn that `edges/http2` uses, none of which its documentation has: a test each,
so that an upgrade says which one has changed.
"""

import inspect
from types import SimpleNamespace

import pytest
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Body, EndBody, StreamClosed
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.utils import filter_pseudo_headers
from priority.priority import PriorityTree

from hermes_actors.publisher.edges.http2.coroutines import Coroutines
from hermes_actors.publisher.edges.http2.protocol import StreamQueue

HEAD = [
    (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"), (b":path", b"/"),
]  # fmt: skip


class Stream:
    """A request, in place of hypercorn's own streams."""

    def __init__(self):
        self.heard = []

    async def handle(self, event):
        self.heard.append(event)


class Server:
    """A protocol of hypercorn's, and h2 as its client."""

    def __init__(self):
        self.coroutines = Coroutines()
        self.sent, self.stream = [], Stream()
        context = SimpleNamespace(event_class=self.coroutines.event)
        self.protocol = H2Protocol(
            None, Config(), context, self, {}, False, None, None, self.send
        )  # fmt: skip
        self.client = H2Connection()
        self.client.initiate_connection()
        self.run(self.protocol.initiate())
        self.run(self.protocol.handle(RawData(self.client.data_to_send())))
        receive_data = self.protocol.connection.receive_data
        self.protocol.connection.receive_data = lambda data: self.filtered(receive_data(data))
        self.protocol.streams[1] = self.stream
        self.buffer = self.protocol.stream_buffers[1] = StreamBuffer(context.event_class)
        self.protocol.priority.insert_stream(1)
        self.client.send_headers(1, HEAD)
        self.client.send_data(1, b"body", end_stream=True)
        self.run(self.protocol.handle(RawData(self.client.data_to_send())))

    def filtered(self, events):
        return (each for each in events if not isinstance(each, RequestReceived))

    def spawn(self, function, *arguments):
        self.coroutines.add(function(*arguments))

    async def send(self, event):
        self.sent.append(event)

    def run(self, coroutine):
        self.coroutines.add(coroutine)
        self.coroutines.run()

    def answered(self):
        data = b"".join([each.data for each in self.sent if isinstance(each, RawData)])
        return self.client.receive_data(data)


@pytest.fixture
def server():
    return Server()


def test_the_body_of_a_request_goes_to_its_stream_whoever_began_it(server):
    assert server.stream.heard == [Body(1, b"body"), EndBody(1)]


def test_an_answer_that_another_began_is_sent_and_its_buffer_drains(server):
    drained = []

    async def answer():
        server.protocol.connection.send_headers(1, [(":status", "200")])
        await server.protocol.stream_send(Body(1, b"x" * 100))
        assert bytes(server.buffer.buffer) == b"x" * 100
        await server.buffer.drain()
        drained.append(len(server.buffer.buffer))
        await server.protocol.stream_send(EndBody(1))
        drained.append(server.protocol.stream_buffers)

    server.run(answer())
    assert drained == [0, {}]
    assert {"ResponseReceived", "DataReceived", "StreamEnded"} <= {
        type(each).__name__ for each in server.answered()
    }


def test_a_stream_hears_that_its_client_has_taken_it_back(server):
    server.client.reset_stream(1)
    server.run(server.protocol.handle(RawData(server.client.data_to_send())))
    assert server.stream.heard[-1] == StreamClosed(1)
    assert server.protocol.streams == {}


def test_a_lost_connection_ends_its_streams_and_the_sending(server):
    server.run(server.protocol.handle(Closed()))
    assert server.stream.heard[-1] == StreamClosed(1)
    assert server.protocol.streams == {}


def test_bytes_that_are_no_frames_are_an_end(server):
    server.run(server.protocol.handle(RawData(b"\0" * 100)))
    assert any(isinstance(each, Closed) for each in server.sent)


def test_what_is_put_in_place_of_its_parts_has_their_methods():
    source = inspect.getsource(H2Protocol)
    for name in ("remove_stream", "block", "unblock", "__next__"):
        assert callable(getattr(PriorityTree, name))
        assert callable(getattr(StreamQueue, name))
    assert {name for name in dir(PriorityTree) if f"self.priority.{name}(" in source} == {
        "insert_stream", "remove_stream", "block", "unblock", "reprioritize",
    }  # fmt: skip
    asked = {name for name in dir(H2Connection) if f"self.connection.{name}(" in source}
    replaced = {"receive_data", "data_to_send", "send_data", "acknowledge_received_data"}
    assert replaced | {"initiate_connection", "send_headers", "end_stream"} <= asked
    assert "stream_ended" in inspect.getsource(RequestReceived)


def test_the_authority_of_a_request_becomes_its_host():
    assert filter_pseudo_headers([*HEAD, (b"n", b"v")]) == [(b"host", b"x"), (b"n", b"v")]
