"""The load's connections tell each message's fate once, however its answer is cut into pieces."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishing import batch
from publishing.batch import BatchConnection
from publishing.http1 import Http1Connection
from publishing.http2 import STREAMS, Http2Connection, frame
from publishing.wire import Connection

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)
GOOD = b'{"status":201,"id":"8e03978e-40d5-43dd-bc93-6894a57f9324"}\n'
BAD = b'{"status":503,"message":"try again"}\n'


class Wire:
    """Both ends of a connection: its sink and its transport."""

    def __init__(self) -> None:
        self.answers: list[tuple[float, int, Counter[str]]] = []
        self.free = 0
        self.is_lost = False
        self.sent = b""
        self.is_closed = False

    def answered(self, due_s: float, good: int, bad: Counter[str]) -> None:
        self.answers.append((due_s, good, bad))

    def ready(self, connection: Connection) -> None:
        self.free += 1

    def lost(self, connection: Connection) -> None:
        self.is_lost = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def good(self) -> int:
        return sum(good for _, good, _ in self.answers)

    def bad(self) -> Counter[str]:
        return sum((bad for _, _, bad in self.answers), Counter[str]())


def batch_connection(chunk: int) -> tuple[Wire, BatchConnection]:
    wire = Wire()
    connection = BatchConnection(wire)
    connection.messages_each = chunk
    connection.connection_made(wire)
    return wire, connection


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@given(
    st.lists(st.sampled_from([GOOD, BAD]), min_size=12, max_size=12),
    st.lists(st.integers(1, 60), min_size=1),
)
def test_each_line_of_a_batch_is_one_messages_answer_in_order(
    lines: list[bytes], sizes: list[int]
) -> None:
    wire, connection = batch_connection(4)
    for due_s in (1.0, 2.0, 3.0):
        connection.send(b"chunk", due_s)
    free = wire.free
    connection.data_received(HEAD)
    body, at = b"".join(lines), 0
    while at < len(body):
        for size in sizes:
            if body[at : at + size]:
                connection.data_received(chunked(body[at : at + size]))
            at += size
    assert wire.good() == lines.count(GOOD)
    assert wire.bad() == Counter({"503": lines.count(BAD)}) - Counter()
    dues = [due_s for due_s, good, bad in wire.answers for _ in range(good + bad.total())]
    assert dues == [1.0] * 4 + [2.0] * 4 + [3.0] * 4
    assert wire.free == free + 3
    assert connection.under_way() == []


def test_a_batch_ends_before_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_MESSAGES", 4)
    wire, connection = batch_connection(2)
    for due_s in (1.0, 2.0, 3.0):
        connection.send(b"chunk", due_s)
    assert wire.sent.count(b"POST ") == 1
    assert wire.sent.endswith(b"chunk0\r\n\r\n")
    free = wire.free
    connection.data_received(HEAD + chunked(GOOD * 4))
    assert wire.free == free
    connection.data_received(b"0\r\n\r\n")
    assert wire.free == free + 2
    assert wire.sent.count(b"POST ") == 2
    assert connection.under_way() == [(3.0, 2)]


def test_a_batch_that_is_refused_as_a_whole_is_refused_for_each_message() -> None:
    wire, connection = batch_connection(4)
    connection.send(b"chunk", 1.0)
    connection.data_received(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
    assert wire.bad() == Counter({"404": 4})
    assert wire.is_closed


def test_messages_without_an_answer_line_are_no_success() -> None:
    wire, connection = batch_connection(4)
    connection.send(b"chunk", 1.0)
    connection.data_received(HEAD + chunked(GOOD * 3) + b"0\r\n\r\n")
    assert (wire.good(), wire.bad()) == (3, Counter({"no answer line": 1}))


@pytest.mark.parametrize("kind", [Http1Connection, Http2Connection, BatchConnection])
def test_what_is_under_way_on_a_lost_connection_is_told(kind: type[Connection]) -> None:
    wire = Wire()
    connection = kind(wire)
    connection.connection_made(wire)
    connection.send(kind.requests([b"{}"], 1)[0], 1.0)
    connection.connection_lost(None)
    assert wire.bad() == Counter({"connection lost": 1})
    assert wire.is_lost


def test_an_http1_connection_takes_the_next_message_after_its_answer() -> None:
    wire = Wire()
    connection = Http1Connection(wire)
    connection.connection_made(wire)
    connection.send(b"request", 1.0)
    assert wire.free == 1
    connection.data_received(b"HTTP/1.1 201 Created\r\nContent-Le")
    connection.data_received(b"ngth: 0\r\n\r\n")
    assert (wire.good(), wire.free) == (1, 2)
    connection.send(b"request", 2.0)
    connection.data_received(
        b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    assert wire.bad() == Counter({"503": 1})
    assert wire.is_closed


def http2_connection() -> tuple[Wire, Http2Connection]:
    wire = Wire()
    connection = Http2Connection(wire)
    connection.connection_made(wire)
    wire.sent = b""
    return wire, connection


@given(st.lists(st.integers(1, 20), min_size=1))
def test_http2_answers_are_told_by_their_stream(sizes: list[int]) -> None:
    wire, connection = http2_connection()
    (request,) = connection.requests([b"{}"], 1)
    for due_s in (1.0, 2.0, 3.0):
        connection.send(request, due_s)
    created, unavailable = b"\x48\x03201", b"\x48\x03503"
    answers = (
        frame(4, 0, 0, b"")
        + frame(1, 5, 5, created)
        + frame(1, 4, 1, unavailable)
        + frame(0, 1, 1, b"try again")
        + frame(3, 0, 3, b"\0\0\0\x07")
    )
    at = 0
    while at < len(answers):
        for size in sizes:
            connection.data_received(answers[at : at + size])
            at += size
    assert wire.answers == [
        (3.0, 1, Counter()),
        (1.0, 0, Counter({"503": 1})),
        (2.0, 0, Counter({"stream reset": 1})),
    ]
    assert wire.free == STREAMS + 3


def test_http2_keeps_to_the_servers_window() -> None:
    wire, connection = http2_connection()
    (request,) = connection.requests([b"x" * 16_000], 1)
    for _ in range(6):
        connection.send(request, 1.0)
    assert wire.sent.count(b"x" * 16_000) == 4
    connection.data_received(frame(8, 0, 0, (40_000).to_bytes(4)))
    assert wire.sent.count(b"x" * 16_000) == 6
