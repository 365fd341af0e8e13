"""An ASGI app that publishes: the frontend over HTTP/2, on the asyncio host."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import BAD_REQUEST, Answer
from hermes_actors.publisher.edges.cells import Cell
from hermes_actors.publisher.edges.http1.edge import Edge
from hermes_actors.publisher.edges.streams import Left, run_stream
from hermes_actors.publisher.forms import ANSWERS
from hermes_actors.publisher.head import Head
from hermes_actors.publisher.publication import ABSENT, Abandoned, Publication
from hermes_actors.publisher.status import Pages, batch_topic_in, topic_in

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_NO_LENGTH = (b"content-length", b"0")
_CLOSE = (b"connection", b"close")
_EMPTY_BODY: Event = {"type": "http.response.body", "body": b""}


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Send a whole answer."""
    headers = [(b"content-length", b"%d" % len(answer.body))]
    if answer.content_type:
        headers.append((b"content-type", answer.content_type.encode()))
    if answer.message_id:
        headers.append((b"hermes-message-id", answer.message_id.encode()))
    if answer.allow:
        headers.append((b"allow", answer.allow.encode()))
    for name, value in answer.headers:
        headers.append((name.encode(), value.encode()))
    if answer.closes and scope["http_version"] < "2":
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class PagesEdge:
    """The pages alone, for a listener that publishes nothing."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer = await self._pages.answer(scope["method"], scope["path"])
        await send_answer(scope, send, answer)


class AsgiEdge:
    """The app, over one gateway, with the limits of the HTTP/1.1 edge beside it."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._gateway = edge.gateway
        self._pages = edge.pages
        self._body_bytes_max = edge.body_bytes_max

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a scope of another type (lifespan, websocket) is left alone."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        topic = topic_in(scope["method"], path)
        pairs = scope["headers"]
        refusal = self._edge.limits.refusal(path, scope.get("query_string", b""), pairs)
        if refusal is not None:
            await send_answer(scope, send, self._edge.refuse(refusal))
            return
        batch = None if topic is not None else batch_topic_in(scope["method"], path)
        if topic is None and batch is None:
            await send_answer(scope, send, await self._pages.answer(scope["method"], path))
            return
        fields = dict(pairs)
        head = Head(pairs, fields, scope.get("client_certificate"))
        security = self._gateway.security
        if security is not None and security.asks(topic or batch or ""):
            unknown = await security.identify(topic or batch or "", head)
            if unknown is not None:
                await send_answer(scope, send, unknown)
                return
        length = fields.get(b"content-length", b"")
        if length and not length.isdigit():
            await send_answer(scope, send, BAD_REQUEST)
        elif topic is None:
            await self._serve_batch(batch or "", fields, head, scope, receive, send)
        else:
            key = fields.get(b"partition-key")
            expected_bytes = int(length) if length else ABSENT
            await self._serve_one(topic, expected_bytes, key, head, scope, receive, send)

    async def _serve_one(
        self,
        topic: str,
        expected_bytes: int,
        key: bytes | None,
        head: Head,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        cell = Cell()
        admitted = self._gateway.admit(topic, expected_bytes, key, head, cell)
        if isinstance(admitted, Answer):
            await send_answer(scope, send, admitted)
            return
        body = b""
        if admitted.expected_bytes and not admitted.is_done:
            body = await self._read(admitted, cell, receive)
        self._gateway.hand_over(admitted, body)
        await cell.wait()
        if type(admitted.outcome) is Stored:
            headers = [_NO_LENGTH, (b"hermes-message-id", admitted.id.encode())]
            if self._gateway.tells_quota:
                told = self._gateway.quota_headers(admitted)
                headers += [(name.encode(), value.encode()) for name, value in told]
            await send({"type": "http.response.start", "status": 201, "headers": headers})
            await send(_EMPTY_BODY)
        elif not isinstance(admitted.outcome, Abandoned):
            await send_answer(scope, send, self._gateway.answer(admitted))

    async def _serve_batch(
        self,
        topic: str,
        fields: Mapping[bytes, bytes],
        head: Head,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        batches = self._gateway.batches
        stream = batches.open(topic, fields.get(b"partition-key"), head)
        if isinstance(stream, Answer):
            await send_answer(scope, send, stream)
            return
        await run_stream(stream, _Peer(receive, send), batches.idle_s)

    async def _read(self, publication: Publication, cell: Cell, receive: Receive) -> bytes:
        """The body; incomplete when the publication is settled."""
        parts: list[bytes] = []
        size = 0
        while (message := await cell.read(receive)) is not None:
            if message["type"] != "http.request":
                self._gateway.abandon(publication)
                break
            if part := message.get("body", b""):
                parts.append(part)
                size += len(part)
            if size > self._body_bytes_max:
                self._gateway.refuse_body(publication, size)
                break
            if not message.get("more_body"):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Peer:
    """A batch's connection."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._headers = [(b"content-type", ANSWERS.encode())]
        self._has_begun = False
        self._is_read = False

    async def read(self) -> bytes | None:
        """As `Peer.read`."""
        while not self._is_read:
            event = await self._receive()
            if event["type"] != "http.request":
                raise Left
            self._is_read = not event.get("more_body")
            body: bytes = event.get("body", b"")
            if body:
                return body
        return None

    async def write(self, data: bytes) -> None:
        """As `Peer.write`."""
        await self._begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """As `Peer.finish`."""
        await self._begin()
        await self._send(_EMPTY_BODY)

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            start = {"type": "http.response.start", "status": 200, "headers": self._headers}
            await self._send(start)
