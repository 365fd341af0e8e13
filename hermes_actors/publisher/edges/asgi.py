"""Requests that an ASGI app answers: management."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Unavailable
from hermes_actors.publisher.answers import Answer, error_answer
from hermes_actors.publisher.edges.edge import Edge, Exchange, Host, Line
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.edges.server import HttpServer
from hermes_actors.runtime.clock import Clock

Event = MutableMapping[str, Any]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

_PIECES_MAX = 2
"""Pieces of a body that may wait for the app; they are held in memory, whoever sends them."""
_FAILED = Answer(500, closes=True)
_HTTP_ONLY = Answer(
    426,
    body=b"This server speaks HTTP only; ask without Upgrade",
    content_type="text/plain",
    closes=True,
    headers=(("upgrade", "h2c"),),
)


class AsgiEdge(Edge):
    """The edge in front of an app."""

    answers_half_closed = False

    def __init__(
        self, app: AsgiApp, config: FrontendConfig, times_s: Mapping[str, float], host: Host
    ) -> None:
        """`times_s` are the time limits of Edge."""
        super().__init__(config, host, **times_s)
        self._app = app
        self._under_way = 0

    def begin(self, line: Line, request: Request) -> None:
        """As `Edge.begin`. The requests under way are limited to the number of connections. That
        includes requests whose clients have gone, since the app continues with them, and requests
        whose answers are not read.
        """
        most = self.config.connections_max
        if request.fields.get(b"upgrade", b"").lower() == b"websocket":
            line.answer(_HTTP_ONLY)
        elif self._under_way >= most:
            text = f"{most} requests are in progress, the maximum; try again"
            line.answer(error_answer(Unavailable(text), ""))
        else:
            self._under_way += 1
            line.take_body(AsgiExchange(self._serve, line, request, self))

    async def _serve(self, scope: Event, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1


class AsgiExchange(Exchange):
    """One request, served by the app in a separate task, which may continue after the answer."""

    def __init__(self, app: AsgiApp, line: Line, request: Request, edge: Edge) -> None:
        self._line = line
        self._unread_max_s = edge.unread_s
        self._unread_bytes, self._unread_since_s = 0, edge.now_s
        self._pieces: deque[bytes] = deque()
        self._start: Event | None = None
        self._has_begun = self._is_read = self._is_told = self._is_over = False
        self._changed = asyncio.Event()
        scope: Event = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": request.version,
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.target.partition("?")[0].encode("latin-1"),
            "query_string": request.query.encode("latin-1"),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.pairs],
            # The port is of no use.
            "client": (line.address, 0) if line.address else None,
            "server": None,
            "state": {},
            "extensions": {},
        }
        if line.certificate is not None:
            scope["client_certificate"] = line.certificate
        edge.host.spawn(self._run(app, scope), self._fail)

    @property
    def owes_answer(self) -> bool:  # type: ignore[override]
        """As `Body.owes_answer`."""
        return not self._has_begun

    def data(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(piece)
        if len(self._pieces) >= _PIECES_MAX:
            self._line.hold()
        self._changed.set()

    def end(self) -> None:
        """Take the end of the body."""
        self._is_read = True
        self._changed.set()

    def gone(self) -> None:
        """Tell the app that its client has gone; its answer is dropped."""
        self._is_over = True
        self._changed.set()

    def sent(self) -> None:
        """Let the app continue writing."""
        self._unread_bytes = 0
        self._changed.set()

    def sweep(self, now_s: float) -> None:
        """End the request if its client does not read the answer for too long; the connection may
        carry other requests.
        """
        unread_bytes = self._line.unread_bytes
        if not unread_bytes or unread_bytes != self._unread_bytes:
            self._unread_bytes, self._unread_since_s = unread_bytes, now_s
        elif now_s > self._unread_since_s + self._unread_max_s:
            self._line.abort()

    async def _run(self, app: AsgiApp, scope: Event) -> None:
        await app(scope, self._receive, self._send)
        if not self._is_over:
            raise RuntimeError("the app has returned before the end of its answer")

    def _fail(self) -> None:
        if self._is_over:
            # The line may belong to another request by now.
            return
        self._is_over = True
        if self._has_begun:
            self._line.abort()
        else:
            self._line.answer(_FAILED)

    async def _receive(self) -> Event:
        while not (self._pieces or self._is_over or (self._is_read and not self._is_told)):
            self._changed.clear()
            await self._changed.wait()
        if self._is_over or self._is_told:
            return {"type": "http.disconnect"}
        piece = self._pieces.popleft() if self._pieces else b""
        if not self._pieces:
            self._line.release()
        self._is_told = self._is_read and not self._pieces
        return {"type": "http.request", "body": piece, "more_body": not self._is_told}

    async def _send(self, event: Event) -> None:
        if self._is_over:
            return
        if event["type"] == "http.response.start":
            self._start = event
            return
        line, body = self._line, event.get("body", b"")
        if self._start is not None:
            line.begin(self._start["status"], list(self._start.get("headers", ())))
            self._start, self._has_begun = None, True
        if body:
            line.write(body)
        # Also after the last piece: the request counts as under way until all of it has gone.
        while line.is_paused and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        if not (event.get("more_body") or self._is_over):
            self._is_over = True
            self._changed.set()
            line.finish()


class AsgiServer(HttpServer):
    """A listener for an ASGI app."""

    def __init__(
        self, app: AsgiApp, config: FrontendConfig, clock: Clock, *, field: str, **times_s: float
    ) -> None:
        """`times_s` are the time limits of Edge."""
        super().__init__(partial(AsgiEdge, app, config, times_s), config, clock, field=field)
