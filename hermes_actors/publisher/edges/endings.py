"""How an exchange that hypercorn serves ends, so that no connection outlives its answer for long.

hypercorn tells an app of the end of its request through the queue of the request's body: with a
body that nobody reads, its own last answer would wait for room there for ever. It closes at once
with bytes unread, which takes the answer away from its client again. And it serves WebSockets.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from dataclasses import replace
from typing import Any

import h11
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.protocol.events import Response
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H11Protocol

Event = MutableMapping[str, Any]

LINGER_S = 2.0
"""How long a client may still send, and be read for nothing, after its last answer."""
LINGER_BYTES_MAX = 4_194_304

LAST_STREAM = 2**31 - 1

_FRAME_BYTES_MAX = 16_384 + 9
"""With its header; this server announces no more (RFC 9113, 4.2)."""
_CLOSE = (b"connection", b"close")
_UPGRADE_ANSWER = b"This server speaks HTTP only; ask without Upgrade"
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))


class Lingering:
    """The time between a connection's last answer and its end. Pure."""

    def __init__(self) -> None:
        self._until_s: float | None = None
        self._left_bytes = LINGER_BYTES_MAX

    @property
    def has_begun(self) -> bool:
        """True when the last answer was sent, and what still comes means nothing."""
        return self._until_s is not None

    def begin(self, now_s: float) -> None:
        """Begin to linger: the last answer was sent."""
        if self._until_s is None:
            self._until_s = now_s + LINGER_S

    def drop(self, size_bytes: int) -> bool:
        """Count bytes that came after the last answer; False when there are too many to go on."""
        self._left_bytes -= size_bytes
        return self._left_bytes >= 0

    def is_over(self, now_s: float) -> bool:
        """True when the client has had its time."""
        return self._until_s is not None and now_s > self._until_s


class AsgiExchange:
    """One request and its answer, whose end waits for nobody to read the rest of the body."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`spawn` runs a coroutine for as long as the connection lives."""
        self._receive = receive
        self._send = send
        self._spawn = spawn
        self._is_read = False

    async def receive(self) -> Event:
        """Return the next event of the body."""
        event: Event = await self._receive()
        if not event.get("more_body"):
            self._is_read = True
        return event

    async def send(self, event: Event) -> None:
        """Send a part of the answer."""
        if event["type"] == "http.response.body" and not event.get("more_body"):
            self.drop_rest()
        await self._send(event)

    def drop_rest(self) -> None:
        """Discard the rest of the request, in a coroutine of its own, unless it was read."""
        if not self._is_read:
            self._is_read = True
            self._spawn(self._drop())

    async def _drop(self) -> None:
        while not (await self._receive())["type"].endswith("disconnect"):
            pass


class Http1(H11Protocol):
    """hypercorn's HTTP/1.1 without WebSockets: who asks for one is answered in HTTP."""

    @classmethod
    def instead_of(cls, theirs: H11Protocol, context: WorkerContext) -> "Http1":
        """Make the same connection, of which nothing was read yet; it ends with the `context`."""
        return cls(
            theirs.app,
            theirs.config,
            context,
            theirs.task_group,
            theirs.connection_state,
            theirs.ssl,
            theirs.client,
            theirs.server,
            theirs.send,
        )

    @property
    def has_unread_request(self) -> bool:
        """True while the client may be sending what nobody will look at."""
        return self.connection.their_state in (h11.SEND_BODY, h11.ERROR)

    async def stream_send(self, event: Any) -> None:
        """Send a part of the answer; the last one of a connection says so."""
        if isinstance(event, Response) and self.context.terminated.is_set():
            headers = [*(pair for pair in event.headers if pair != _CLOSE), _CLOSE]
            event = replace(event, headers=headers)
        await super().stream_send(event)

    async def _create_stream(self, request: h11.Request) -> None:
        if asks_for_websocket(request.headers):
            kept = [
                pair for pair in request.headers.raw_items() if pair[0].lower() != b"connection"
            ]
            request = h11.Request(
                method=request.method,
                headers=[*kept, (b"connection", b"close")],
                target=request.target,
                http_version=request.http_version,
            )
        await super()._create_stream(request)


def go_away(last_stream_id: int) -> bytes:
    """HTTP/2's frame that no further request may be sent; those above the stream that it names were
    not looked at, and LAST_STREAM is above all (RFC 9113, 6.8).
    """
    return b"\x00\x00\x08\x07\x00\x00\x00\x00\x00%b\x00\x00\x00\x00" % last_stream_id.to_bytes(4)


def holds_overlong_frame(http2: H2Protocol) -> bool:
    """True for a connection whose client has begun a frame that is longer than any may be.

    The library would gather up to 16 MiB of it before it says so.
    """
    return len(http2.connection.incoming_buffer._data) > _FRAME_BYTES_MAX


def asks_for_websocket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """True for a request that wants to go on as a WebSocket."""
    return any(
        name.lower() == b"upgrade" and value.strip().lower() == b"websocket"
        for name, value in headers
    )


async def refuse(scope: MutableMapping[str, Any], send: Callable[[Any], Awaitable[None]]) -> bool:
    """Answer what is refused before any app sees it; False for what is not.

    426 for a WebSocket, 400 for a request whose end another reader may see elsewhere.
    """
    close = [_CLOSE] if scope.get("http_version", "1.1") < "2" else []
    if scope["type"] == "websocket":
        await send({"type": "websocket.http.response.start", "status": 400, "headers": []})
        await send({"type": "websocket.http.response.body", "body": _UPGRADE_ANSWER})
        return True
    if asks_for_websocket(scope["headers"]):
        headers = [
            (b"upgrade", b"h2c"),
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % len(_UPGRADE_ANSWER)),
            *close,
        ]
        await send({"type": "http.response.start", "status": 426, "headers": headers})
        await send({"type": "http.response.body", "body": _UPGRADE_ANSWER})
        return True
    if close and {name.lower() for name, _ in scope["headers"]} >= _LENGTHS:
        headers = [(b"content-length", b"0"), *close]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return True
    return False
