"""The names of hypercorn that `edges/http2` uses, none of which its documentation has: a test each,
so that an upgrade says which one has changed.
"""

import inspect

import pytest
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import EndBody, InformationalResponse, Response, StreamClosed
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from priority.priority import PriorityTree

from hermes_actors.publisher.edges.http2.coroutines import Coroutines
from hermes_actors.publisher.edges.http2.protocol import Context, StreamQueue

HEAD = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x")]


class Group:
    """What hypercorn begins."""

    def __init__(self, coroutines):
        self.coroutines = coroutines
        self.put, self.asked, self.sent = [], [], []

    def spawn(self, function, *arguments):
        self.coroutines.add(function(*arguments))

    async def spawn_app(self, app, config, scope, send):
        self.asked.append((scope, send))

        async def put(event):
            self.put.append(event)

        return put

    async def send(self, event):
        self.sent.append(event)


class Server:
    """A protocol of hypercorn's, and h2 as its client."""

    def __init__(self):
        self.coroutines = Coroutines()
        self.group = Group(self.coroutines)
        config = Config()
        config.errorlog = None
        context = Context(self.coroutines.event)
        self.protocol = H2Protocol(
            None, config, context, self.group, {}, False, None, None, self.group.send
        )
        self.client = H2Connection()
        self.client.initiate_connection()
        self.run(self.protocol.initiate())
        self.ask()

    def run(self, coroutine):
        self.coroutines.add(coroutine)
        self.coroutines.run()

    def ask(self):
        self.client.send_headers(1, [*HEAD, (b":path", b"/a%20b?c=d"), (b"n", b"v")])
        self.client.send_data(1, b"body", end_stream=True)
        self.run(self.protocol.handle(RawData(self.client.data_to_send())))

    def answered(self):
        data = b"".join([each.data for each in self.group.sent if isinstance(each, RawData)])
        return self.client.receive_data(data)


@pytest.fixture
def server():
    return Server()


def test_a_request_goes_to_the_task_group_and_its_body_to_what_that_returned(server):
    ((scope, send),) = server.group.asked
    assert scope["method"] == "POST"
    assert (scope["raw_path"], scope["query_string"]) == (b"/a%20b", b"c=d")
    assert scope["headers"] == [(b"host", b"x"), (b"n", b"v")]
    assert send.__func__ is HTTPStream.app_send
    assert server.group.put == [
        {"type": "http.request", "body": b"body", "more_body": True},
        {"type": "http.request", "body": b"", "more_body": False},
    ]
    assert list(server.protocol.stream_buffers) == [1]


def test_an_answer_is_two_messages_and_the_protocol_hears_three_events(server, monkeypatch):
    heard = []
    stream_send = server.protocol.stream_send

    async def listen(event):
        heard.append(type(event))
        await stream_send(event)

    (stream,) = server.protocol.streams.values()
    stream.send = listen

    async def answer(send):
        await send({"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b""})

    server.run(answer(server.group.asked[0][1]))
    assert heard == [Response, EndBody, StreamClosed]
    assert server.group.put[-1] == {"type": "http.disconnect"}
    kinds = [type(each).__name__ for each in server.answered()]
    assert "ResponseReceived" in kinds
    assert "StreamEnded" in kinds


def test_more_body_leaves_the_stream_open_and_its_buffer_drains(server):
    drained = []

    async def answer(send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
        assert bytes(buffer.buffer) == b"x" * 100
        await buffer.drain()
        drained.append(len(buffer.buffer))

    buffer = server.protocol.stream_buffers[1]
    assert isinstance(buffer, StreamBuffer)
    server.run(answer(server.group.asked[0][1]))
    assert drained == [0]
    assert 1 in server.protocol.streams


def test_interim_answers_go_out_at_once(server):
    server.run(server.protocol.stream_send(InformationalResponse(1, [], 100)))
    assert "InformationalResponseReceived" in [type(each).__name__ for each in server.answered()]


def test_a_lost_connection_ends_its_streams_and_the_sending(server):
    server.run(server.protocol.handle(Closed()))
    assert server.group.put[-1] == {"type": "http.disconnect"}
    assert server.protocol.streams == {}


def test_bytes_that_are_no_frames_are_an_end(server):
    server.run(server.protocol.handle(RawData(b"\0" * 100)))
    assert any(isinstance(each, Closed) for each in server.group.sent)


def test_what_is_put_in_place_of_its_parts_has_their_methods():
    for name in ("insert_stream", "remove_stream", "block", "unblock", "__next__"):
        assert callable(getattr(PriorityTree, name))
        assert callable(getattr(StreamQueue, name))
    source = inspect.getsource(H2Protocol)
    assert {name for name in dir(PriorityTree) if f"self.priority.{name}(" in source} == {
        "insert_stream", "remove_stream", "block", "unblock", "reprioritize",
    }  # fmt: skip
    asked = {name for name in dir(H2Connection) if f"self.connection.{name}(" in source}
    replaced = {"receive_data", "data_to_send", "send_data", "acknowledge_received_data"}
    assert replaced | {"initiate_connection", "send_headers", "end_stream"} <= asked
    assert "stream_ended" in inspect.getsource(RequestReceived)


def test_the_configuration_has_what_is_set_there():
    config = Config()
    assert config.keep_alive_max_requests > 0
    assert config.accesslog is None
    assert config.errorlog == "-"
    assert [name for name, _ in config.response_headers("h2")] == [b"date", b"server"]


def test_hypercorn_itself_ends_an_empty_answer_with_a_frame_of_data(server):
    """Which is why `Protocol` overrides `stream_send`."""

    async def answer(send):
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server.run(answer(server.group.asked[0][1]))
    assert "DataReceived" in [type(each).__name__ for each in server.answered()]
