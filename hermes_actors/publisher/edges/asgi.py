"""An ASGI app that publishes: the frontend over HTTP/2, on the asyncio host."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hermes_actors.publisher.answers import BAD_REQUEST, Abandoned, Answer
from hermes_actors.publisher.batches.forms import ANSWERS
from hermes_actors.publisher.batches.stream import BatchStream
from hermes_actors.publisher.demands import Head, head_refusal
from hermes_actors.publisher.edges.bodies import BatchExchange, MessageBody
from hermes_actors.publisher.edges.edge import Edge
from hermes_actors.publisher.edges.listener import Timed
from hermes_actors.publisher.pending import ABSENT, Pending
from hermes_actors.publisher.status import Pages, published_to

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_CLOSE = (b"connection", b"close")
_EMPTY_BODY: Event = {"type": "http.response.body", "body": b""}


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Send a whole answer."""
    headers = answer.fields()
    if answer.closes and scope["http_version"] < "2":
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def pages_app(pages: Pages) -> AsgiApp:
    """The pages alone, for a listener that publishes nothing."""

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        await send_answer(scope, send, await pages.answer(scope["method"], scope["path"]))

    return app


class AsgiEdge:
    """The app, over one gateway, with the limits of the HTTP/1.1 edge beside it."""

    def __init__(self, edge: Edge, open_batches: MutableMapping[Timed, None]) -> None:
        """`open_batches` are swept."""
        self._edge = edge
        self._batches = open_batches
        self._gateway = edge.gateway

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a scope of another type (lifespan, websocket) is left alone."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        pairs = scope["headers"]
        refusal = head_refusal(self._edge.config, path, scope.get("query_string", b""), pairs)
        if refusal is not None:
            await send_answer(scope, send, self._edge.refuse(refusal))
            return
        published = published_to(scope["method"], path)
        if published is None:
            await send_answer(scope, send, await self._edge.pages.answer(scope["method"], path))
            return
        topic, is_batch = published
        fields = dict(pairs)
        head = Head(pairs, fields, scope.get("client_certificate"))
        security = self._gateway.security
        answer: Answer | None = None
        if security is not None and security.asks(topic):
            answer = await security.identify(topic, head)
        length = fields.get(b"content-length", b"")
        if answer is None and length and not length.isdigit():
            answer = BAD_REQUEST
        if answer is None:
            key = fields.get(b"partition-key")
            if is_batch:
                answer = await self._batch(topic, key, head, receive, send)
            else:
                expected_bytes = int(length) if length else ABSENT
                answer = await self._message(topic, expected_bytes, key, head, receive)
        if answer is not None:
            await send_answer(scope, send, answer)

    async def _message(
        self, topic: str, expected_bytes: int, key: bytes | None, head: Head, receive: Receive
    ) -> Answer | None:
        """The answer to one message; None when nobody waits for it."""
        cell = Cell()
        admitted = self._gateway.admit(topic, expected_bytes, key, head, cell)
        if isinstance(admitted, Answer):
            return admitted
        body = MessageBody(self._gateway, admitted)
        if not expected_bytes:
            body.end()
        while (event := await cell.read(receive)) is not None and _follow(body, event):
            pass
        await cell.wait()
        if isinstance(admitted.outcome, Abandoned):
            return None
        return self._gateway.answer(admitted)

    async def _batch(
        self, topic: str, key: bytes | None, head: Head, receive: Receive, send: Send
    ) -> Answer | None:
        """Serve a batch to its end; or the answer to one that is not taken."""
        stream = self._edge.batches.open(topic, key, head, self._edge.host.soon)
        if isinstance(stream, Answer):
            return stream
        batch = _Batch(stream, self._edge, receive, send)
        self._batches[batch] = None
        try:
            await batch.run()
        finally:
            del self._batches[batch]
        return None


class Cell:
    """Where a request waits: for its body, which the deadline may interrupt, and for its outcome.

    A cell is the `notify` of a publish, and may be told from a trio task of the same thread. It
    costs nothing until something must be waited for.
    """

    __slots__ = ("_future", "_is_settled", "_reading")

    def __init__(self) -> None:
        self._is_settled = False
        self._future: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[Any] | None = None

    def __call__(self, pending: Pending) -> None:
        """Record that the publish is settled, and end the wait for its body or its outcome."""
        self._is_settled = True
        if self._future is not None:
            if not self._future.done():
                self._future.set_result(None)
        elif self._reading is not None:
            self._reading.cancel()

    async def read(self, receive: Receive) -> Event | None:
        """Return the next event of `receive`, or None when the publish is settled first."""
        if self._is_settled:
            return None
        # asyncio has no scopes; cancelling the own task costs nothing unless it happens.
        self._reading = task = asyncio.current_task()
        assert task is not None, "a request has a task"
        try:
            return await receive()
        except asyncio.CancelledError:
            if not self._is_settled or task.uncancel():
                raise
            return None
        finally:
            self._reading = None

    async def wait(self) -> None:
        """Wait until it is settled."""
        if not self._is_settled:
            self._future = asyncio.get_running_loop().create_future()
            await self._future


class _Batch:
    """A batch's request: the line of its exchange."""

    due_s = 0.0

    def __init__(self, stream: BatchStream, edge: Edge, receive: Receive, send: Send) -> None:
        self.is_paused = False
        self._receive = receive
        self._send = send
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._unsent = b""
        self._is_ended = False
        self._has_due = asyncio.Event()
        self._is_over = asyncio.Event()
        self._exchange = BatchExchange(self, stream, edge)
        self.sweep = self._exchange.sweep

    async def run(self) -> None:
        """Serve it until its last line has gone, or its client."""
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(self._read()), tasks.create_task(self._write())]
            try:
                await self._is_over.wait()
            finally:
                for each in both:
                    each.cancel()
                if not self._is_ended:
                    self._exchange.gone()

    def write(self, data: bytes) -> None:
        """As `Line.write`."""
        self.is_paused = True
        self._unsent = data
        self._has_due.set()

    def hold(self) -> None:
        """As `Line.hold`."""
        self._may_read.clear()

    def release(self) -> None:
        """As `Line.release`."""
        self._may_read.set()

    def batch_ended(self) -> None:
        """As `Line.batch_ended`."""
        self._is_ended = True
        self._has_due.set()

    def abort(self) -> None:
        """As `Line.abort`."""
        self._is_over.set()

    async def _read(self) -> None:
        event: Event = {}
        while not event or _follow(self._exchange, event):
            await self._may_read.wait()
            event = await self._receive()
        if event["type"] != "http.request":
            self._is_over.set()

    async def _write(self) -> None:
        await self._has_due.wait()
        headers = [(b"content-type", ANSWERS.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        while not self._is_ended:
            await self._has_due.wait()
            self._has_due.clear()
            if self.is_paused:
                await self._send(
                    {"type": "http.response.body", "body": self._unsent, "more_body": True}
                )
                self.is_paused = False
                self._exchange.sent()
        await self._send(_EMPTY_BODY)
        self._is_over.set()


def _follow(body: MessageBody | BatchExchange, event: Event) -> bool:
    """Tell a body what has come of it; False when nothing more will."""
    if event["type"] != "http.request":
        body.gone()
        return False
    if data := event.get("body"):
        body.data(data)
    if event.get("more_body"):
        return True
    body.end()
    return False
