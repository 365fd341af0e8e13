"""An ASGI app that publishes: as little as possible for each request, the rest once.

It runs on the asyncio host and in trio alike; `make_cell` says where a request waits.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from hermes_actors.config import FrontendConfig
from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import BAD_REQUEST, Answer
from hermes_actors.publisher.edges.cells import Cell
from hermes_actors.publisher.edges.heads import HeadLimits
from hermes_actors.publisher.edges.streams import Left, run_stream
from hermes_actors.publisher.forms import ANSWERS
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.head import BytesHead
from hermes_actors.publisher.publication import Abandoned, Publication
from hermes_actors.publisher.status import Pages, batch_topic_in, origin_form, topic_in

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_NO_LENGTH = (b"content-length", b"0")
_CLOSE = (b"connection", b"close")
_EMPTY_BODY: Event = {"type": "http.response.body", "body": b""}


async def send_answer(scope: Scope, send: Send, answer: Answer, extra: Headers) -> None:
    """Send a whole answer, with `extra` headers."""
    headers = [(b"content-length", b"%d" % len(answer.body)), *extra]
    if answer.content_type:
        headers.append((b"content-type", answer.content_type.encode()))
    if answer.message_id:
        headers.append((b"hermes-message-id", answer.message_id.encode()))
    if answer.allow:
        headers.append((b"allow", answer.allow.encode()))
    for name, value in answer.headers:
        headers.append((name.encode(), value.encode()))
    if answer.closes and scope["http_version"] < "2" and _CLOSE not in extra:
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class PagesEdge:
    """The pages alone, for a listener that publishes nothing."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        close_silently: Callable[[], None] | None,
    ) -> None:
        """Serve one request."""
        answer = await self._pages.answer(scope["method"], scope["path"])
        await send_answer(scope, send, answer, [])


class AsgiEdge:
    """The app, over one gateway."""

    def __init__(
        self,
        gateway: Gateway,
        pages: Pages,
        config: FrontendConfig,
        make_cell: Callable[[], Cell],
    ) -> None:
        self._gateway = gateway
        self._pages = pages
        self._make_cell = make_cell
        self._limits = HeadLimits(config)
        # Names in lower case, as ASGI wants them, unless they travel on as their sender wrote them.
        self._keeps_case = config.propagation.enabled
        self._body_bytes_max = config.body_bytes_max
        self._keep_alive: Headers = []
        if config.keep_alive_header:
            text = f"timeout={config.keep_alive_header_timeout_s}"
            self._keep_alive = [(b"keep-alive", text.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a scope of another type (lifespan, websocket) is left alone."""
        if scope["type"] == "http":
            await self.serve(scope, receive, send, None)

    async def serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        close_silently: Callable[[], None] | None,
    ) -> None:
        """Serve one request. `close_silently` closes the connection later, without an answer:
        what happens to one whose headers came and then nothing.
        """
        path = scope["path"]
        if not path.startswith("/"):
            path = origin_form(path)
        topic = topic_in(scope["method"], path)
        pairs = scope["headers"]
        refusal = self._limits.refusal(path, scope.get("query_string", b""), pairs)
        if refusal is not None:
            await send_answer(scope, send, refusal, [])
            return
        batch = None if topic is not None else batch_topic_in(scope["method"], path)
        if topic is None and batch is None:
            answer = await self._pages.answer(scope["method"], path)
            if _is_ambiguous(pairs):
                answer = BAD_REQUEST
            await send_answer(scope, send, answer, [])
            return
        fields = dict(pairs)
        if self._keeps_case:
            fields = {name.lower(): value for name, value in pairs}
        head = BytesHead(pairs, fields, scope.get("client_certificate"))
        if self._gateway.security is not None:
            unknown = await self._gateway.security.identify(topic or batch or "", head)
            if unknown is not None:
                await send_answer(scope, send, unknown, self._extra(scope))
                return
        if topic is None:
            await self._serve_batch(batch or "", fields, head, scope, receive, send)
            return
        cell = self._make_cell()
        admitted = self._gateway.admit(
            topic,
            fields.get(b"content-length"),
            fields.get(b"transfer-encoding"),
            fields.get(b"partition-key"),
            head,
            cell,
        )
        if isinstance(admitted, Answer):
            await send_answer(scope, send, admitted, self._extra(scope))
            return
        body, has_begun = b"", True
        if admitted.expected_bytes:
            body, has_begun = await self._read(admitted, cell, receive)
        self._gateway.hand_over(admitted, body)
        await cell.wait()
        extra = self._extra(scope)
        if type(admitted.outcome) is Stored:
            headers = [_NO_LENGTH, (b"hermes-message-id", admitted.id.encode())]
            if extra:
                headers += extra
            if self._gateway.tells_quota:
                told = self._gateway.quota_headers(admitted)
                headers += [(name.encode(), value.encode()) for name, value in told]
            await send({"type": "http.response.start", "status": 201, "headers": headers})
            await send(_EMPTY_BODY)
        elif not isinstance(admitted.outcome, Abandoned):
            answer = self._gateway.answer(admitted)
            if has_begun or admitted.has_body or close_silently is None:
                await send_answer(scope, send, answer, extra)
            else:
                await _leave(receive, close_silently)

    async def _serve_batch(
        self,
        topic: str,
        fields: Mapping[bytes, bytes],
        head: BytesHead,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        batches = self._gateway.batches
        stream = batches.open(topic, fields.get(b"partition-key"), head)
        if isinstance(stream, Answer):
            await send_answer(scope, send, stream, self._extra(scope))
            return
        await run_stream(stream, _Peer(receive, send, self._extra(scope)), batches.idle_s)

    def _extra(self, scope: Scope) -> Headers:
        """What an answer to a publish says of its connection."""
        if scope["http_version"] >= "2":
            return []
        return [_CLOSE] if self._gateway.is_leaving else self._keep_alive

    async def _read(
        self, publication: Publication, cell: Cell, receive: Receive
    ) -> tuple[bytes, bool]:
        """The body, and whether any of it came; incomplete when the publication is settled."""
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
        return (parts[0] if len(parts) == 1 else b"".join(parts)), bool(parts)


class _Peer:
    """A batch's connection."""

    is_whole = True

    def __init__(self, receive: Receive, send: Send, extra: Headers) -> None:
        self._receive = receive
        self._send = send
        self._headers = [(b"content-type", ANSWERS.encode()), *extra]
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


def _is_ambiguous(pairs: Headers) -> bool:
    """Whether another reader may see the request's end elsewhere, and a second request after it."""
    return {b"content-length", b"transfer-encoding"} <= {name.lower() for name, _ in pairs}


async def _leave(receive: Receive, close_silently: Callable[[], None]) -> None:
    """Wait for the connection to be closed; an app that just returned would be answered for."""
    close_silently()
    while (await receive())["type"] != "http.disconnect":
        pass
