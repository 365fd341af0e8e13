"""A listener of connections: HTTP/1.1 and HTTP/2 on one port, told apart by their first bytes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.edge import UNREAD_S, Edge, Host
from hermes_actors.publisher.edges.http1.connection import Http1Connection
from hermes_actors.publisher.edges.http2 import Http2Connection
from hermes_actors.publisher.edges.listener import Listener, address_of
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.certificates import client_certificate

_logger = logging.getLogger(__name__)

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class HttpServer:
    """One listener, bound when made, and the loop of its connections; from trio, `start` and `stop`
    go through `guest.call`.

    `tls_port` is None without a certificate. Raises StartupError when an address cannot be bound
    or a certificate cannot be read.
    """

    def __init__(
        self, make_edge: Callable[[Host], Edge], config: FrontendConfig, clock: Clock, *, field: str
    ) -> None:
        """`make_edge` makes what its requests are for; `field` names the setting that a port in
        use is reported under.
        """
        self._clock = clock
        self.edge = make_edge(self)
        self.listener = Listener(config, field, self._tick)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port, self.tls_port = self.listener.port, self.listener.tls_port

    async def start(self) -> None:
        """Accept connections from now on; on the host loop."""
        self._loop = asyncio.get_running_loop()
        await self.listener.start(partial(_AcceptedSocket, self))

    async def stop(self, grace_s: float = 3.0) -> None:
        """Accept no more, let the requests under way end for up to `grace_s`, close all."""
        await self.listener.stop(grace_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # What connections need of the loop.

    def soon(self, callback: Callable[[], None]) -> None:
        """Call in the loop's next turn."""
        self._loop.call_soon(callback)

    def spawn(
        self, task: Coroutine[Any, Any, None], on_failure: Callable[[], None]
    ) -> Callable[[], None]:
        """Run it beside; what is returned cancels it. `on_failure` is called when it fails."""
        running = self._loop.create_task(task)
        # The loop keeps weak references only.
        self._tasks.add(running)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                _logger.error("A request failed; its connection is closed", exc_info=error)
                on_failure()

        def cancel() -> None:
            running.cancel()

        running.add_done_callback(ended)
        return cancel

    def _tick(self, now_s: float) -> None:
        self.edge.tick(now_s, self._clock.now_ms())


class _AcceptedSocket(asyncio.Protocol):
    """Turns the loop's callbacks into a connection's, once its first bytes say what it speaks."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._first = b""
        self._connection: Http1Connection | Http2Connection | None = None
        self._address = ""
        self._is_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._address = address_of(transport)
        if not self._server.listener.take_place(self._address):
            self._transport.close()
            return
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._speak(Http2Connection)
            self._listen()
            return
        # Each write goes out at once, and what does not is known at once. Not 0: over TLS nothing
        # unsent would be at that mark too, and every connection unread for ever.
        self._transport.set_write_buffer_limits(high=1)
        self._speak(Http1Connection)

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        self._first = first = self._first + data
        if first != _PREFACE and _PREFACE.startswith(first):
            return
        if first.startswith(_PREFACE):
            self._transport.set_write_buffer_limits()
            self._speak(Http2Connection)
            # Only now: a listener that ends waits for its last connection.
            self._server.listener.remove(connection)
        self._listen()
        self.data_received(first)

    def eof_received(self) -> bool:
        connection = self._connection
        if connection is None or not (self._is_known and self._server.edge.answers_half_closed):
            return False
        connection.ended()
        # Over TLS nothing can be sent after the client's end.
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost()
            self._server.listener.remove(self._connection)
            self._server.listener.give_back(self._address)

    def _speak(self, kind: type[Http1Connection] | type[Http2Connection]) -> None:
        certificate = client_certificate(self._transport.get_extra_info("peercert"))
        self._connection = kind(self._server.edge, self._transport, certificate)
        self._server.listener.add(self._connection)

    def _listen(self) -> None:
        """Go straight to the connection from now on: these are called for each request."""
        connection = self._connection
        assert connection is not None, "it has a place"
        self._is_known = True
        self.data_received = connection.received  # type: ignore[method-assign]
        self.pause_writing = connection.paused  # type: ignore[method-assign]
        self.resume_writing = connection.resumed  # type: ignore[method-assign]
        # The loop keeps the methods that a protocol had when it was set.
        self._transport.set_protocol(self)


class FrontendServer(HttpServer):
    """The publishing listener of one node."""

    def __init__(self, frontend: Frontend, *, unread_s: float = UNREAD_S) -> None:
        """`unread_s` is that of Edge."""
        make_edge = partial(PublishEdge, frontend, unread_s=unread_s)
        super().__init__(make_edge, frontend.config, frontend.clock, field="frontend.port")
