import pytest
import trio

from hermes_actors.cli.connection.poster import (
    CannotConnect,
    NoAnswer,
    header_lines,
    open_poster,
    route_to,
)

pytestmark = pytest.mark.guest

CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
LAST = CREATED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.fixture
async def served(nursery):
    """Answers each request over loopback with the next of some bytes, "" ends the connection; gives
    the URL, and the first bytes of each request by its connection.
    """

    async def start(*answers):
        left = list(answers)
        made = []

        async def connection(stream):
            asked = []
            made.append(asked)
            async with stream:
                while data := await stream.receive_some():
                    asked.append(data)
                    reply = left.pop(0)
                    if reply:
                        await stream.send_all(reply)
                    if not reply or b"Connection: close" in reply:
                        return

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, connection, listeners)
        return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", made

    return start


async def test_a_request_has_the_path_below_the_base_and_its_headers(served):
    url, made = await served(CREATED)
    async with open_poster(1) as poster:
        lines = header_lines([("Trace-Id", "7"), ("Partition-Key", "ä")])
        answer = await poster.post(route_to(url + "/base/", "/topics/a.b"), lines, b"x", 5)
    assert (answer.status, answer.headers, answer.body) == (201, {b"content-length": b"0"}, b"")
    assert made == [
        [
            b"POST /base/topics/a.b HTTP/1.1\r\nHost: %b\r\nTrace-Id: 7\r\nPartition-Key: %b\r\n"
            b"Content-Length: 1\r\n\r\nx" % (url.removeprefix("http://").encode(), "ä".encode())
        ]
    ]


async def test_a_connection_is_kept_for_the_next_request_and_made_again_after_its_end(served):
    url, made = await served(CREATED, LAST, CREATED)
    async with open_poster(1) as poster:
        for _ in range(3):
            assert (await poster.post(route_to(url, "/"), b"", b"x", 5)).status == 201
    assert [len(asked) for asked in made] == [2, 1]


async def test_what_nobody_answered_is_not_sent_again_and_the_next_request_is(served):
    url, made = await served(CREATED, b"", CREATED)
    async with open_poster(1) as poster:
        await poster.post(route_to(url, "/"), b"", b"1", 5)
        with pytest.raises(NoAnswer, match=r"before an answer \(if this is a TLS port, write htt"):
            await poster.post(route_to(url, "/"), b"", b"2", 5)
        assert (await poster.post(route_to(url, "/"), b"", b"3", 5)).status == 201
    assert [[data[-1:] for data in asked] for asked in made] == [[b"1", b"2"], [b"3"]]


async def test_half_an_answer_in_time_is_none_and_never_meets_the_next_request(served):
    url, made = await served(b"HTTP/1.1 201 Created\r\n", CREATED.replace(b"201", b"202"))
    async with open_poster(1) as poster:
        with pytest.raises(NoAnswer, match="no answer within 100 ms"):
            await poster.post(route_to(url, "/"), b"", b"x", 0.1)
        assert (await poster.post(route_to(url, "/"), b"", b"x", 5)).status == 202
    assert len(made) == 2


async def test_an_answer_that_is_not_http_is_none(served):
    url, _ = await served(b"SSH-2.0-x\r\n", b"\x15\x03\x03\x00\x02\x02\x46")
    async with open_poster(1) as poster:
        with pytest.raises(NoAnswer, match=r"does not speak HTTP/1\.1 .* is it the right port"):
            await poster.post(route_to(url, "/"), b"", b"x", 5)
        with pytest.raises(NoAnswer, match="this port speaks TLS"):
            await poster.post(route_to(url, "/"), b"", b"x", 5)


async def test_a_long_answer_is_kept_whole(served):
    url, _ = await served(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500_000)
    async with open_poster(1) as poster:
        answer = await poster.post(route_to(url, "/"), b"", b"x", 5)
    assert answer.body == b"x" * 500_000


@pytest.mark.parametrize("closes", [True, False])
async def test_an_answer_before_the_end_of_a_large_request_is_shown(nursery, closes):
    async def refuse(stream):
        async with stream:
            await stream.receive_some(1_000)
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\ntoo large")
            if not closes:
                # It neither reads on nor ends the connection.
                await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, refuse, listeners)
    route = route_to(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", "/")
    async with open_poster(1) as poster:
        for _ in range(2):
            told = await poster.post(route, b"", b"x" * 30_000_000, 5)
            assert (told.status, told.body) == (400, b"too large")


async def test_nobody_listening_is_cannot_connect_in_the_systems_words():
    async with open_poster(1) as poster:
        with pytest.raises(CannotConnect, match=r"^Connection refused"):
            await poster.post(route_to("http://127.0.0.1:1", "/"), b"", b"", 5)
