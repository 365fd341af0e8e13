"""Servers, a proxy and a net for tests of senders, all in this process and on trio."""

from contextlib import asynccontextmanager

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from hermes_actors.config import EndpointsConfig
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.httpx.net import HttpxNet
from hermes_actors.consumer.senders.sender import Push
from hermes_actors.security.address_guard import AddressGuard

LOCAL = AddressGuard(EndpointsConfig(allow_loopback=True))
STRICT = AddressGuard(EndpointsConfig())


class Sink:
    """An ASGI app that keeps its requests and answers as configured."""

    def __init__(self, answer=None):
        self.requests = []
        self.status = 200
        self.headers = []
        self.delay_s = 0.0
        self.answer_bytes = 2
        self.answer = answer

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
        status, content = self.status, b"x" * self.answer_bytes
        if self.answer is not None:
            status, content = self.answer(scope, body)
        await trio.sleep(self.delay_s)
        await send({"type": "http.response.start", "status": status, "headers": self.headers})
        await send({"type": "http.response.body", "body": content})

    def header(self, name, at=-1):
        found = [value for key, value in self.requests[at][0]["headers"] if key == name]
        return found[0] if found else None


@asynccontextmanager
async def served(app, **settings):
    """The port of a hypercorn with this app, for the duration of the block."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.graceful_timeout = 0.05
    config.accesslog = config.errorlog = None
    for name, value in settings.items():
        setattr(config, name, value)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:

        async def server(task_status):
            await serve(app, config, shutdown_trigger=stop.wait, task_status=task_status)

        binds = await nursery.start(lambda task_status: server(task_status))
        try:
            yield int(binds[0].rsplit(":", 1)[1].rstrip("/"))
        finally:
            stop.set()


@asynccontextmanager
async def tcp(handler):
    """The port of a plain TCP server."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handler, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


class TunnelProxy:
    """A proxy that forwards plain http and tunnels CONNECT, always to loopback."""

    def __init__(self, refuses=b""):
        self.heads = []
        self.refuses = refuses

    async def __call__(self, stream):
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = await stream.receive_some()
                if not piece:
                    return
                head += piece
            self.heads.append(head)
            if self.refuses:
                await stream.send_all(self.refuses)
                return
            verb, target, _ = head.split(b" ", 2)
            if verb == b"CONNECT":
                port, first = int(target.rpartition(b":")[2]), b""
            else:
                port = int(target.split(b"/")[2].rpartition(b":")[2])
                first = head
            async with await trio.open_tcp_stream("127.0.0.1", port) as origin:
                if verb == b"CONNECT":
                    await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    await origin.send_all(first)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pump, origin, stream, nursery.cancel_scope)
                    nursery.start_soon(pump, stream, origin, nursery.cancel_scope)


async def pump(source, sink, both):
    try:
        while piece := await source.receive_some():
            await sink.send_all(piece)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    both.cancel()


def resolver_of(names=None):
    """A resolver that knows only these names; None: the machine's."""
    token = trio.lowlevel.current_trio_token()

    def look_up(host):
        if host not in names:
            raise OSError(f"{host} is not known")
        return names[host]

    further = {} if names is None else {"look_up": look_up}
    return Resolver(token.run_sync_soon, trio.current_time, **further)


def net_of(
    *,
    guard=LOCAL,
    names=None,
    tls=None,
    proxy=None,
    connect_timeout_s=5.0,
    idle_s=30.0,
    response_bytes_max=65_536,
):
    return HttpxNet(
        guard=guard,
        resolver=resolver_of(names),
        tls=tls,
        connect_timeout_s=connect_timeout_s,
        connections_max=10,
        idle_s=idle_s,
        proxy=proxy,
        response_bytes_max=response_bytes_max,
    )


LINES = b"Keep-Alive: true\r\nContent-Type: application/json\r\nA: 1\r\nA: 2\r\n"


async def pushed(sender, route, timeout_ms=5_000, lines=LINES, body=b'{"a":1}', socket_ms=0):
    """One push's outcome, which must come once, and not inside `send`."""
    event, outcomes = trio.Event(), []

    def done(outcome):
        outcomes.append(outcome)
        event.set()

    sender.send(Push(route, lines, body, timeout_ms, socket_ms), done)
    assert not outcomes
    await event.wait()
    await trio.lowlevel.checkpoint()
    assert len(outcomes) == 1
    return outcomes[0]


async def probed(sender, route):
    event, failures = trio.Event(), []
    sender.probe(route, lambda failure: (failures.append(failure), event.set()))
    assert not failures
    await event.wait()
    assert len(failures) == 1
    return failures[0]
