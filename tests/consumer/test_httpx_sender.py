"""The httpx sender against hypercorn, which speaks HTTP/2 with prior knowledge, on trio."""

import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.trio import serve

from hermes_actors.consumer.endpoint import parse_endpoint
from hermes_actors.consumer.httpx_sender import open_httpx_sender
from hermes_actors.consumer.sender import Failure, Push


class Sink:
    def __init__(self):
        self.requests = []
        self.status = 200
        self.headers = []
        self.delay_s = 0.0
        self.answer_bytes = 2

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        self.requests.append((scope, body))
        await trio.sleep(self.delay_s)
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"x" * self.answer_bytes})


class Running:
    def __init__(self, sink, port, sender):
        self.sink = sink
        self.sender = sender
        self.route = parse_endpoint(f"http://127.0.0.1:{port}/in?a=b", "lane").resolve(b"")

    def start(self, done, timeout_ms=5_000):
        lines = b"Keep-Alive: true\r\nContent-Type: application/json\r\nA: 1\r\nA: 2\r\n"
        self.sender.send(Push(self.route, lines, b'{"a":1}', timeout_ms), done)

    async def push(self, timeout_ms=5_000):
        event, outcomes = trio.Event(), []
        self.start(lambda outcome: (outcomes.append(outcome), event.set()), timeout_ms)
        assert not outcomes
        await event.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert len(outcomes) == 1
        return outcomes[0]


async def run(test, **limits):
    sink = Sink()
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    stop = trio.Event()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def server(task_status):
                await serve(sink, config, shutdown_trigger=stop.wait, task_status=task_status)

            binds = await nursery.start(lambda task_status: server(task_status))
            port = int(binds[0].rsplit(":", 1)[1].rstrip("/"))
            async with open_httpx_sender(**limits) as sender:
                await test(Running(sink, port, sender))
            stop.set()


async def test_a_push_goes_out_as_http2_with_its_own_headers_only():
    async def test(running):
        assert (await running.push()).status == 200
        scope, body = running.sink.requests[0]
        assert (scope["http_version"], scope["path"], scope["query_string"]) == ("2", "/in", b"a=b")
        assert body == b'{"a":1}'
        headers = [(name, value) for name, value in scope["headers"] if not name.startswith(b":")]
        assert {name for name, _ in headers} <= {b"host", b"content-type", b"a", b"content-length"}
        assert [value for name, value in headers if name == b"a"] == [b"1", b"2"]

    await run(test)


async def test_status_and_retry_after_are_reported_and_redirects_are_not_followed():
    async def test(running):
        running.sink.status, running.sink.headers = 503, [(b"retry-after", b"7")]
        outcome = await running.push()
        assert (outcome.status, outcome.retry_after) == (503, "7")
        running.sink.status, running.sink.headers = 302, [(b"location", b"/other")]
        assert (await running.push()).status == 302
        assert len(running.sink.requests) == 2

    await run(test)


async def test_a_slow_answer_times_out_and_a_long_one_is_cut():
    async def test(running):
        running.sink.answer_bytes = 500_000
        assert (await running.push()).status == 200
        running.sink.delay_s = 1.0
        assert (await running.push(timeout_ms=150)).failure is Failure.TIMEOUT

    await run(test)


async def test_pushes_above_the_bound_are_refused_and_closing_ends_the_rest():
    outcomes = []

    async def test(running):
        running.sink.delay_s = 1.0
        for _ in range(3):
            running.start(outcomes.append)
        await trio.sleep(0.1)
        assert [outcome.failure for outcome in outcomes] == [Failure.OVERLOADED]

    await run(test, pushes_max=2)
    assert [outcome.failure for outcome in outcomes[1:]] == [Failure.CLOSED] * 2


async def test_nobody_listening_is_a_failure_to_connect():
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    async with open_httpx_sender() as sender:
        outcome = await Running(None, port, sender).push()
    assert outcome.failure is Failure.CONNECT
