"""Serves requests that are handed over whole: a subscriber's endpoint."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.edge import Edge, Exchange, Host, Line
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.edges.server import HttpServer
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import Clock, SystemClock

BODY_BYTES_MAX = 64 * 1_048_576
_IDLE_S = 120.0
_TOO_LONG = Answer(413, closes=True)

Reply = Callable[[Answer, float], None]
"""Sends an answer after a delay in seconds; to be called once."""
Respond = Callable[[Request, bytes, Reply], None]
"""Receives a request with its whole body, and calls the reply, now or later."""


class EndpointServer(HttpServer):
    """Serves all paths and methods at one address, which it binds when created. A connection's
    requests are answered one after another.

    Raises StartupError if the address cannot be bound.
    """

    def __init__(
        self,
        respond: Respond,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: Clock | None = None,
    ) -> None:
        config = FrontendConfig(
            host=host, port=port, headers_max=1_000, header_bytes_max=65_536, connections_max=2_000
        )
        make = partial(_EndpointEdge, respond, config)
        super().__init__(make, config, clock or SystemClock(), field="port")
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/"

    @asynccontextmanager
    async def serving(self, grace_s: float = 5.0) -> AsyncIterator[None]:
        """Serve during the block, for a guest of the host loop. At its end, open requests are
        answered for up to `grace_s`.
        """
        await guest.call(self.start)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await guest.call(self.stop, grace_s)


class _EndpointEdge(Edge):
    def __init__(self, respond: Respond, config: FrontendConfig, host: Host) -> None:
        super().__init__(config, host, idle_s=_IDLE_S)
        self._respond = respond

    def begin(self, line: Line, request: Request) -> None:
        if request.expected_bytes > BODY_BYTES_MAX:
            line.answer(_TOO_LONG)
        else:
            line.take_body(_WholeBody(line, partial(self._respond, request), self.now_s))


class _WholeBody(Exchange):
    """Gathers one request's body, and answers it."""

    def __init__(self, line: Line, respond: Callable[[bytes, Reply], None], now_s: float) -> None:
        self._line = line
        self._respond = respond
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._heard_bytes, self._since_s = 0, now_s
        self.owes_answer = True
        self._is_over = False

    def data(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size_bytes += len(piece)
        if self._size_bytes > BODY_BYTES_MAX:
            self._answer(_TOO_LONG)

    def end(self) -> None:
        if not self._is_over:
            self.owes_answer = False
            self._respond(b"".join(self._pieces), self._reply)

    def gone(self) -> None:
        self._is_over = True

    def sweep(self, now_s: float) -> None:
        """Close the connection if its body has made no progress for too long."""
        if self._heard_bytes != self._size_bytes or not self.owes_answer:
            self._heard_bytes, self._since_s = self._size_bytes, now_s
        elif now_s > self._since_s + _IDLE_S:
            self._line.abort()

    def _reply(self, answer: Answer, delay_s: float) -> None:
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._answer, answer)
        else:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        if not self._is_over:
            self._is_over = True
            self._line.answer(answer)
