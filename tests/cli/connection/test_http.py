import itertools
import random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.connection.http_client import (
    AnswerReader,
    CannotConnect,
    Connection,
    ConnectionLost,
    Origin,
)
from hermes_actors.cli.connection.http_server import (
    HttpServer,
    RequestReader,
    RequestRefused,
    answer,
)
from hermes_actors.cli.publishing.publisher import backoff_ms, percentile

PLAIN = b"POST /a?b=1 HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nde\r\n1;x=y\r\nf\r\n0\r\n\r\n"
)
EMPTY = b"GET /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def reader(**bounds):
    return RequestReader(**({"header_bytes_max": 1_000, "body_bytes_max": 1_000} | bounds))


@given(st.lists(st.integers(0, len(PLAIN + CHUNKED + EMPTY)), max_size=6))
def test_requests_cut_anywhere_are_read_whole(cuts):
    data = PLAIN + CHUNKED + EMPTY
    edges = [0, *sorted(cuts), len(data)]
    read = reader()
    requests = []
    for start, end in itertools.pairwise(edges):
        requests += read.feed(data[start:end])
    assert [(r.method, r.path, r.body, r.keeps_alive) for r in requests] == [
        ("POST", "/a?b=1", b"abc", True),
        ("POST", "/c", b"def", True),
        ("GET", "/e", b"", False),
    ]
    assert requests[0].headers[b"x-y"] == b"z"


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_request_is_a_400(data):
    with pytest.raises(RequestRefused) as caught:
        reader().feed(data)
    assert caught.value.status == 400


def test_a_body_beyond_the_bound_is_a_413_also_when_it_comes_in_pieces():
    read = reader(body_bytes_max=5)
    read.feed(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
    with pytest.raises(RequestRefused) as caught:
        read.feed(b"defgh")
    assert caught.value.status == 413


def test_headers_beyond_the_bound_are_a_431():
    with pytest.raises(RequestRefused) as caught:
        reader(header_bytes_max=100).feed(b"GET / HTTP/1.1\r\nA: " + b"x" * 101 + b"\r\n\r\n")
    assert caught.value.status == 431


async def respond_with_path_and_length(request):
    return answer(200, f"{request.path} {len(request.body)}".encode())


@pytest.fixture
async def talk(nursery):
    """Connects to a server over a stream in memory."""

    def connect(respond=respond_with_path_and_length, **options):
        server = HttpServer(respond, **options)
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(server.serve_stream, theirs)
        return server, ours

    return connect


async def read_until(stream, end):
    data = b""
    while not data.endswith(end):
        more = await stream.receive_some()
        assert more, f"ended after {data!r}"
        data += more
    return data


async def test_a_connection_serves_one_request_after_the_other(talk):
    _, stream = talk()
    for _ in range(3):
        await stream.send_all(PLAIN)
        assert (await read_until(stream, b"/a?b=1 3")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_pipelined_requests_are_answered_in_order_and_close_ends_it(talk):
    _, stream = talk()
    await stream.send_all(PLAIN + CHUNKED + EMPTY)
    data = await read_until(stream, b"/e 0")
    assert data.index(b"/a?b=1 3") < data.index(b"/c 3") < data.index(b"/e 0")
    assert await stream.receive_some() == b""


async def test_an_expected_100_continue_is_sent_before_the_body_comes(talk):
    _, stream = talk()
    head, body = PLAIN[:-3].replace(b"X-Y: z", b"Expect: 100-continue"), PLAIN[-3:]
    await stream.send_all(head)
    assert await read_until(stream, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await stream.send_all(body)
    assert b"200 OK" in await read_until(stream, b"/a?b=1 3")


async def test_a_broken_request_is_answered_with_400_and_the_end(talk):
    _, stream = talk()
    await stream.send_all(b"nonsense\r\n\r\n")
    assert (await stream.receive_some()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert await stream.receive_some() == b""


async def test_an_idle_connection_is_closed(talk, autojump_clock):
    _, stream = talk(idle_timeout_s=60)
    began = trio.current_time()
    assert await stream.receive_some() == b""
    assert trio.current_time() - began == pytest.approx(60)


async def test_connections_beyond_the_bound_are_closed_at_once(nursery):
    server = HttpServer(respond_with_path_and_length, connections_max=1)
    first, first_end = trio.testing.memory_stream_pair()
    second, second_end = trio.testing.memory_stream_pair()
    nursery.start_soon(server.serve_stream, first_end)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(server.serve_stream, second_end)
    assert await second.receive_some() == b""
    await first.send_all(PLAIN)
    assert b"200 OK" in await read_until(first, b"/a?b=1 3")


async def test_a_drain_answers_what_is_under_way_and_ends_what_is_idle():
    taken = trio.Event()

    async def slow(request):
        taken.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        return answer(200, b"late")

    server = HttpServer(slow)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, listeners)
        busy = await trio.testing.open_stream_to_socket_listener(listeners[0])
        idle = await trio.testing.open_stream_to_socket_listener(listeners[0])
        async with busy, idle:
            await busy.send_all(PLAIN)
            await taken.wait()
            server.drain()
            assert await idle.receive_some() == b""
            assert (await read_until(busy, b"late")).startswith(b"HTTP/1.1 200 OK")
            assert await busy.receive_some() == b""


def test_a_204_announces_no_length():
    assert answer(204) == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "origin", "host_header"),
    [
        ("http://a:81/x/", Origin(False, "a", 81, "/x"), "a:81"),
        ("http://a", Origin(False, "a", 80, ""), "a"),
        ("https://a", Origin(True, "a", 443, ""), "a"),
        ("http://[::1]:8080", Origin(False, "::1", 8080, ""), "[::1]:8080"),
    ],
)
def test_an_origin_is_read_from_a_url(url, origin, host_header):
    assert Origin.parse(url) == origin
    assert origin.host_header == host_header


def test_an_announcement_before_the_answer_is_not_the_answer():
    read = AnswerReader()
    first = b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
    done = read.feed(first + b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nC: d\r\n\r\n")
    assert done is not None
    assert (done.status, done.headers[b"c"]) == (201, b"d")
    assert b"a" not in done.headers


def test_an_answer_that_is_not_http_is_a_lost_connection():
    with pytest.raises(ConnectionLost, match=r"does not speak HTTP/1\.1 .* is it the right port"):
        AnswerReader().feed(b"SSH-2.0-x\r\n")
    with pytest.raises(ConnectionLost, match="this port speaks TLS"):
        AnswerReader().feed(b"\x15\x03\x03\x00\x02\x02\x46")


@pytest.fixture
async def served(nursery):
    """Serves answers from a list over loopback, and counts the connections made."""

    async def start(*answers):
        left = list(answers)
        made = []

        async def connection(stream):
            made.append(stream)
            async with stream:
                read = reader()
                while data := await stream.receive_some():
                    for _ in read.feed(data):
                        reply = left.pop(0)
                        if not reply:
                            return
                        await stream.send_all(reply)
                        if b"Connection: close" in reply:
                            return

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, connection, listeners)
        port = listeners[0].socket.getsockname()[1]
        return Connection(Origin.parse(f"http://127.0.0.1:{port}")), made

    return start


async def test_a_connection_is_kept_for_the_next_request(served):
    link, made = await served(answer(201), answer(201))
    assert (await link.post("/", [], b"x", 5)).status == 201
    assert (await link.post("/", [], b"x", 5)).status == 201
    assert len(made) == 1
    await link.aclose()


async def test_a_connection_that_the_server_ends_is_made_anew(served):
    link, made = await served(answer(201, keeps_alive=False), answer(201))
    await link.post("/", [], b"x", 5)
    await link.post("/", [], b"x", 5)
    assert len(made) == 2
    await link.aclose()


async def test_no_answer_is_a_lost_connection_and_the_next_request_a_new_one(served):
    link, made = await served(b"", answer(201))
    with pytest.raises(ConnectionLost, match="without an answer"):
        await link.post("/", [], b"x", 5)
    assert (await link.post("/", [], b"x", 5)).status == 201
    assert len(made) == 2
    await link.aclose()


async def test_half_an_answer_in_time_is_too_slow_and_never_meets_the_next_request(served):
    link, made = await served(b"HTTP/1.1 201 Created\r\n", answer(202))
    with pytest.raises(trio.TooSlowError):
        await link.post("/", [], b"x", 0.05)
    assert (await link.post("/", [], b"x", 5)).status == 202
    assert len(made) == 2
    await link.aclose()


@pytest.mark.parametrize("closes", [True, False])
async def test_an_answer_before_the_end_of_a_large_request_is_shown(nursery, closes):
    async def refuse(stream):
        async with stream:
            await stream.receive_some(1_000)
            await stream.send_all(answer(400, b"too large", keeps_alive=not closes))
            if not closes:
                # It neither reads on nor ends the connection.
                await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, refuse, listeners)
    link = Connection(Origin.parse(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"))
    for _ in range(2):
        told = await link.post("/", [], b"x" * 30_000_000, 5)
        assert (told.status, told.body) == (400, b"too large")


async def test_a_large_request_is_sent_whole_over_a_kept_connection(nursery):
    server = HttpServer(respond_with_path_and_length, body_bytes_max=10_000_000)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(server.serve, listeners)
    link = Connection(Origin.parse(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"))
    for _ in range(2):
        assert (await link.post("/a", [], b"x" * 3_000_000, 5)).body == b"/a 3000000"
    await link.aclose()


async def test_a_large_request_without_an_answer_is_a_lost_connection(nursery):
    async def leave(stream):
        async with stream:
            await stream.receive_some(1_000)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, leave, listeners)
    link = Connection(Origin.parse(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"))
    with pytest.raises(ConnectionLost):
        await link.post("/", [], b"x" * 30_000_000, 5)


async def test_nobody_listening_is_cannot_connect_in_the_systems_words():
    link = Connection(Origin.parse("http://127.0.0.1:1"))
    with pytest.raises(CannotConnect, match="Connection refused"):
        await link.post("/", [], b"", 5)


@given(st.integers(1, 60), st.integers())
def test_a_back_off_doubles_within_its_bounds(attempt, seed):
    full = min(50 * 2 ** (attempt - 1), 5_000)
    assert full / 2 <= backoff_ms(attempt, random.Random(seed)) <= full


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([1, 50, 99, 99.9, 100]))
def test_a_percentile_is_a_value_with_that_share_at_or_below_it(values, percent):
    ascending = sorted(values)
    value = percentile(ascending, percent)
    at_or_below = sum(each <= value for each in ascending)
    below = sum(each < value for each in ascending)
    assert at_or_below >= len(values) * percent / 100
    assert below < len(values) * percent / 100 + 1e-9
