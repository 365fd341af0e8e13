"""An HTTP/1.1 server that hands each request over when it is whole: a subscriber's endpoint."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import trio

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import Answer, error_answer
from hermes_actors.publisher.edges.http1.rendering import CONTINUE, Renderer
from hermes_actors.publisher.edges.http1.wire import Heads, Malformed, Reader, Request
from hermes_actors.publisher.edges.listener import Listener, address_of
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import Clock, SystemClock

BODY_BYTES_MAX = 64 * 1_048_576
UNREAD_BYTES_MAX = 1_048_576
"""A client that leaves so many bytes of answers unread is closed."""
_IDLE_S = 120.0
_TOO_LONG = 413

Reply = Callable[[Answer, float], None]
"""Sends an answer after a delay in seconds; to be called once."""
Respond = Callable[[Request, bytes, Reply], None]
"""Takes a request and its whole body; it calls the reply, now or later."""


class EndpointServer:
    """Serves all paths and methods at one address, bound when made; a connection's next request
    waits for the answer to the one before.

    Raises StartupError when the address cannot be bound.
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
        self.respond = respond
        self.heads = Heads(config)
        self.renderer = Renderer(config)
        self.listener = Listener(config, "port", self._tick)
        self._clock = clock or SystemClock()
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.listener.port}/"

    @asynccontextmanager
    async def serving(self, grace_s: float = 5.0) -> AsyncIterator[None]:
        """Serve during the block, for a guest of the host loop; requests under way at its end are
        answered for up to `grace_s`.
        """
        await guest.call(self._start)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await guest.call(self.listener.stop, grace_s)

    async def _start(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.listener.start(partial(_EndpointConnection, self))

    def _tick(self, _now_s: float) -> None:
        self.renderer.tick(self._clock.now_ms())


class _EndpointConnection(asyncio.Protocol):
    """One connection of an endpoint."""

    def __init__(self, server: EndpointServer) -> None:
        self._server = server
        self._reader = Reader(server.heads)
        self._request: Request | None = None
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._has_place = self._is_answering = self._is_taking = False
        self._is_paused = self._is_last = False
        self.due_s = 0.0

    # The network.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._address = address_of(transport)
        self._has_place = self._server.listener.take_place(self._address)
        if self._has_place:
            self._set_idle()
            self._server.listener.add(self)
        else:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._has_place:
            return
        self._set_idle()
        self._reader.receive(data)
        if self._is_answering:
            self._is_paused = True
            self._transport.pause_reading()
        else:
            self._take()

    def eof_received(self) -> bool:
        self._is_last = True
        return self._is_answering

    def connection_lost(self, exc: Exception | None) -> None:
        if self._has_place:
            self._server.listener.remove(self)
            self._server.listener.give_back(self._address)

    # The listener.

    def sweep(self, now_s: float) -> None:
        """Close it if it has been silent for too long."""
        if self._is_answering:
            self.due_s = now_s + _IDLE_S
        else:
            self._transport.abort()

    def leave(self, now_s: float) -> None:
        """Answer what has begun, and close."""
        self._is_last = True
        if not (self._is_answering or self._reader.has_bytes or self._reader.is_in_body):
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._transport.abort()

    # Requests.

    def _set_idle(self) -> None:
        self.due_s = self._server.loop.time() + _IDLE_S

    def _take(self) -> None:
        self._is_taking = True
        try:
            while not (self._is_answering or self._transport.is_closing()):
                event = self._reader.next()
                if event is None:
                    break
                if isinstance(event, Request):
                    self._begin(event)
                elif isinstance(event, bytes):
                    self._hear(event)
                else:
                    self._hand_over(b"".join(self._pieces))
        except Malformed as error:
            self._reply(Answer(error.status, closes=True))
        finally:
            self._is_taking = False

    def _begin(self, request: Request) -> None:
        self._request = request
        self._pieces, self._body_bytes = [], 0
        self._is_last |= not request.keeps_alive
        if request.refusal is not None:
            self._reply(error_answer(request.refusal, "", closes=True))
        elif request.expected_bytes > BODY_BYTES_MAX:
            self._reply(Answer(_TOO_LONG, closes=True))
        elif (body := self._reader.whole_body()) is not None:
            self._hand_over(body)
        elif request.expects_continue:
            self._transport.write(CONTINUE)

    def _hear(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._body_bytes += len(piece)
        if self._body_bytes > BODY_BYTES_MAX:
            self._reply(Answer(_TOO_LONG, closes=True))

    def _hand_over(self, body: bytes) -> None:
        assert self._request is not None, "a body has a head before it"
        self._is_answering = True
        self._server.respond(self._request, body, self._reply_after)

    def _reply_after(self, answer: Answer, delay_s: float) -> None:
        if delay_s:
            self._server.loop.call_later(delay_s, self._reply, answer)
        else:
            self._reply(answer)

    def _reply(self, answer: Answer) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        self._is_answering = False
        closes = self._is_last or answer.closes
        transport.write(self._server.renderer.answer(answer, is_of_publish=False, closes=closes))
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            transport.abort()
        elif closes:
            transport.close()
        elif not self._is_taking:
            if self._is_paused:
                self._is_paused = False
                transport.resume_reading()
            self._take()
