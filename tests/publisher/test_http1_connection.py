"""One HTTP/1.1 connection: the order of its answers, how it goes on, and how it ends."""

import json

import pytest
import trio

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.http1.heads import Heads
from hermes_actors.publisher.edges.http1.reader import RequestReader
from hermes_chaos.sim.environment.http_in import Line
from tests.publisher.in_process import answers_of, chunk

HEAD = b"POST /topics/shop.orders HTTP/1.1\r\nHost: x\r\n"
PUBLISH = HEAD + b"Content-Length: 2\r\n\r\n{}"
PAGE = b"GET /status/health HTTP/1.1\r\nHost: x\r\n\r\n"


def statuses(line: Line) -> list[int]:
    return [int(part.split(b" ")[0]) for part in bytes(line.answered).split(b"HTTP/1.1 ")[1:]]


async def test_requests_that_are_sent_ahead_are_begun_and_answered_one_after_the_other(
    world, autojump_clock
) -> None:
    line = world.connect()
    world.log.faults.delay_s = (0.010, 0.010)
    batch = HEAD.replace(b"orders", b"orders/batch") + b"Content-Type: application/x-ndjson\r\n"
    line.send(PUBLISH + PAGE + batch + b"Content-Length: 4\r\n\r\n1\n2\n" + PUBLISH * 100)
    line.send(PAGE * 2_000)
    assert world.frontend.drain.in_flight == 1
    assert not line.unread
    assert not line.answered
    line.send(PAGE)
    assert len(line.unread) == 1
    await trio.sleep(2)
    assert statuses(line) == [201, 200, 200] + [201] * 100 + [200] * 2_001
    assert line.answered.count(b'"status":201') == 2
    assert b"Connection: close" not in line.answered


async def test_what_one_read_brings_is_taken_in_several_turns_of_the_loop(
    world, autojump_clock
) -> None:
    line = world.connect()
    line.send(PAGE * 1_000)
    assert len(statuses(line)) == 32
    await trio.sleep(0.01)
    assert statuses(line) == [200] * 1_000
    body = chunk(b"x") * 20_000
    line.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + chunk(b"") + PUBLISH)
    assert len(statuses(line)) == 1_000
    await trio.sleep(0.01)
    assert statuses(line)[1_000:] == [400, 201]


@pytest.mark.parametrize("extension", [b"", b";a=b"])
def test_a_body_ends_with_its_last_chunk_wherever_it_is_cut(extension) -> None:
    # Data that look like the beginning and the end of chunks.
    bodies = [b"fffff\r\n" * 60, b"\r\n0\r\n\r\n" * 60, b"{}", b"\r\n" * 700, b"z"]
    last = chunk(bodies[-1]).replace(b"\r", extension + b"\r", 1)
    data = b"".join([*map(chunk, bodies[:-1]), last, chunk(b"")])
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + data + PUBLISH
    heads = Heads(FrontendConfig())
    for cuts in ([data[:at], data[at:]] for at in range(len(data))):
        reader, read = RequestReader(heads), b""
        for piece in cuts:
            reader.receive(piece)
            while (event := reader.next()) is not None:
                read += event if isinstance(event, bytes) else b"|"
        assert read == b"|%b||{}|" % b"".join(bodies)


@pytest.mark.slow
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_client_that_sends_faster_than_it_is_served_is_not_read_ahead(
    world, autojump_clock, is_chunked: bool
) -> None:
    line = world.connect()
    piece = PAGE * 1_000
    if is_chunked:
        line.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = chunk(b"x") * 40_000
    for _ in range(100):
        line.send(piece)
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    assert len(line.unread) >= 94
    await trio.sleep(1)
    assert not line.unread


async def test_a_head_in_single_bytes_is_a_request(world, autojump_clock) -> None:
    line = world.connect()
    for byte in PUBLISH:
        line.send(bytes([byte]))
    await trio.sleep(0.01)
    assert statuses(line) == [201]


async def test_a_body_is_asked_for_only_where_its_client_waits(world, autojump_clock) -> None:
    line = world.connect()
    line.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert line.answered == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.send(b"{}")
    await trio.sleep(0.01)
    assert statuses(line) == [100, 201]
    line.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}")
    await trio.sleep(0.01)
    assert statuses(line) == [100, 201, 201]


async def test_a_client_that_waits_and_is_refused_may_send_its_body_or_not(
    world, autojump_clock
) -> None:
    line = world.connect()
    head = HEAD.replace(b"orders", b"nothing")
    line.send(head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert statuses(line) == [404]
    assert b"Connection: close" in line.answered
    await trio.sleep(2)
    assert line.is_closed


async def test_the_body_of_a_refused_request_is_dropped_and_the_connection_goes_on(
    world, autojump_clock
) -> None:
    line = world.connect()
    line.send(HEAD.replace(b"orders", b"nothing") + b"Content-Length: 8\r\n\r\nHTTP")
    assert statuses(line) == [404]
    line.send(b"/1.1" + PUBLISH)
    await trio.sleep(0.01)
    assert statuses(line) == [404, 201]


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_upgrade_is_passed_over_and_the_body_is_not(
    world, autojump_clock, is_chunked: bool
) -> None:
    # Java's own client asks for h2c with each first request.
    line = world.connect()
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"
    rest = b"Content-Length: 2\r\n\r\n{}"
    if is_chunked:
        rest = b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"{}") + b"0\r\n\r\n"
    line.send(HEAD + upgrade + rest + PUBLISH)
    await trio.sleep(0.01)
    assert statuses(line) == [201, 201]
    assert [record.value for record in world.stored] == [b"{}", b"{}"]


async def test_who_sends_no_more_is_answered_first(world, autojump_clock) -> None:
    line = world.connect()
    line.send(PUBLISH * 2)
    line.connection.ended()
    await trio.sleep(0.01)
    assert statuses(line) == [201, 201]
    assert line.is_closed


async def test_nothing_is_begun_after_the_last_request(world, autojump_clock) -> None:
    line = world.connect()
    line.send(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}" + PUBLISH)
    await trio.sleep(0.01)
    assert statuses(line) == [201]
    assert b"Connection: close" in line.answered
    # To close with bytes unread may take the answer back.
    assert not line.is_closed
    await trio.sleep(2)
    assert line.is_closed
    assert len(world.stored) == 1


async def test_http_1_0_has_one_request_a_connection(world, autojump_clock) -> None:
    line = world.connect()
    line.send(PUBLISH.replace(b"HTTP/1.1", b"HTTP/1.0"))
    await trio.sleep(0.01)
    assert statuses(line) == [201]
    assert line.is_closed


async def test_broken_chunks_are_400_and_nothing_is_stored(world, autojump_clock) -> None:
    line = world.connect()
    line.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}!\r\n" + PUBLISH)
    assert statuses(line) == [400]
    await trio.sleep(2)
    assert line.is_closed
    assert world.stored == []
    assert world.frontend.drain.in_flight == 0


async def test_idle_connections_and_heads_that_do_not_end_are_closed(
    open_world, autojump_clock
) -> None:
    async with open_world(head_timeout_ms=1_000) as world:
        await world.add_topic("shop.orders")
        idle, slow = world.connect(), world.connect()
        slow.send(HEAD)
        await trio.sleep(0.9)
        assert not slow.is_closed
        await trio.sleep(0.6)
        assert slow.is_closed
        assert not idle.is_closed
        await trio.sleep(57)
        idle.send(PUBLISH)
        await trio.sleep(57)
        assert not idle.is_closed
        await trio.sleep(5)
        assert idle.is_closed
        assert statuses(slow) == []


async def test_who_does_not_read_is_not_read_and_loses_the_connection(
    world, autojump_clock
) -> None:
    line = world.connect()
    line.may_write = trio.Event()
    line.send(PUBLISH)
    await trio.sleep(0.01)
    line.send(PUBLISH)
    await trio.sleep(29)
    assert len(world.stored) == 1
    assert not line.is_closed
    await trio.sleep(3)
    assert line.is_closed


@pytest.mark.parametrize("reads", [True, False])
async def test_a_batch_whose_answers_are_read_slowly_goes_on(world, reads, autojump_clock) -> None:
    line = world.connect()
    line.may_write = trio.Event()
    head = HEAD.replace(b"orders", b"orders/batch") + b"Content-Type: application/x-ndjson\r\n"
    line.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"{}\n" * 100))
    for _ in range(60):
        await trio.sleep(1)
        if reads:
            line.answered += line._unsent[:50]
            del line._unsent[:50]
    assert line.is_closed is not reads
    if reads:
        line.read_on()
        line.send(chunk(b""))
        await trio.sleep(1)
        assert line.answered.count(b'{"status":201,') == 100
        assert line.answered.endswith(b"\r\n0\r\n\r\n")


async def test_each_time_that_a_client_does_not_read_is_a_time_of_its_own(
    world, autojump_clock
) -> None:
    line = world.connect()
    for _ in range(2):
        line.may_write = trio.Event()
        line.send(PUBLISH)
        await trio.sleep(20)
        assert not line.is_closed
        line.read_on()
    assert statuses(line) == [201, 201]


@pytest.mark.parametrize(
    ("head", "status", "said"),
    [
        (
            HEAD + b"".join(b"X-%d: 1\r\n" % number for number in range(22)),
            400,
            "has 24 headers; this server takes at most 20 (frontend.headers_max)",
        ),
        (
            HEAD.replace(b" HTTP", b"?" + b"q" * 9_000 + b" HTTP"),
            414,
            "path and query have 9019 bytes; this server takes at most 8192 (frontend.url",
        ),
        (
            HEAD + b"X-Long: " + b"x" * 16_500 + b"\r\n",
            431,
            "headers have 16526 bytes; this server takes at most 16384 (frontend.header_bytes_max)",
        ),
    ],
    ids=["headers", "url", "header bytes"],
)
async def test_a_head_above_a_limit_is_told_which_and_what_it_has(
    world, autojump_clock, caplog, head, status, said
) -> None:
    line = world.connect()
    line.send(head + b"Content-Length: 2\r\n\r\n{}")
    answers = await answers_of(line)
    assert answers.status == status
    error = json.loads(answers.body)
    assert (said in error["message"], error["code"]) == (True, "VALIDATION_ERROR")
    assert ("connection", "close") in answers.header_pairs().items()
    (record,) = caplog.records
    assert said in record.getMessage()


async def test_the_log_is_told_of_refused_heads_once_a_minute(
    world, autojump_clock, caplog
) -> None:
    many = HEAD + b"X: 1\r\n" * 20 + b"Content-Length: 2\r\n\r\n{}"
    for pause_s in (0.0, 1.0, 58.0, 2.0):
        await trio.sleep(pause_s)
        world.tick()
        world.connect().send(many)
    first, second = [record.getMessage() for record in caplog.records]
    assert "more were refused" not in first
    assert second.endswith("; 2 more were refused since the last such line")


async def test_a_request_that_is_on_its_way_when_the_listener_ends_is_answered(
    world, autojump_clock
) -> None:
    sent, idle, half = world.connect(), world.connect(), world.connect()
    sent.send(PUBLISH)
    half.send(PUBLISH[:20])
    await trio.sleep(0.01)
    for line in (sent, idle, half):
        line.connection.leave(trio.current_time())
    assert not any(line.is_closed for line in (sent, idle, half))
    sent.send(PUBLISH)
    half.send(PUBLISH[20:])
    await trio.sleep(0.01)
    assert statuses(sent) == [201, 201]
    assert statuses(half) == [201]
    for line in (sent, half):
        assert bytes(line.answered).count(b"Connection: close") == 1
        assert line.is_closed
    await trio.sleep(0.3)
    assert not idle.is_closed
    await trio.sleep(0.5)
    assert idle.is_closed
