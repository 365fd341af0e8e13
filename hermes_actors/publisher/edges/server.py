"""The frontend's listener: HTTP/1.1 by the project's own edge, HTTP/2 by hypercorn.

One port serves both. What begins with HTTP/2's preface, or has agreed on it in the TLS handshake,
is handed to hypercorn with what has been read; everything else stays here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from hermes_actors.publisher.edges.asgi import AsgiEdge
from hermes_actors.publisher.edges.edge import UNREAD_S, Edge
from hermes_actors.publisher.edges.http1.connection import Connection
from hermes_actors.publisher.edges.hypercorn import Connections
from hermes_actors.publisher.edges.listener import Listener, address_of
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.security.certificates import client_certificate

_logger = logging.getLogger(__name__)

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class FrontendServer:
    """The publishing listeners of one node, bound when made; from trio, `start` and `stop` go
    through `guest.call`.

    `tls_port` is None without a certificate. Raises StartupError when an address cannot be bound
    or a certificate cannot be read.
    """

    def __init__(self, frontend: Frontend, *, unread_s: float = UNREAD_S) -> None:
        """A connection of whose answers nothing could be sent for `unread_s` is closed."""
        self._clock = frontend.clock
        self.edge = Edge(frontend, self, unread_s=unread_s)
        self.listener = Listener(frontend.config, "frontend.port", self._tick)
        self.http2 = Connections(
            AsgiEdge(self.edge, self.listener.beside).serve,
            self.listener,
            frontend.config,
            frontend.clock,
            unread_s=unread_s,
        )
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

    def gone(self, connection: Connection, address: str) -> None:
        """The connection has ended."""
        connection.lost()
        self.listener.remove(connection)
        self.listener.give_back(address)

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

    def __init__(self, server: FrontendServer) -> None:
        self._server = server
        self._first = b""
        self._connection: Connection | None = None
        self._address = ""
        self._is_http1 = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._address = address_of(transport)
        if not self._server.listener.take_place(self._address):
            self._transport.close()
            return
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._hand_over(b"")
            return
        # Each write goes out at once, and what does not is known at once. Not 0: over TLS nothing
        # unsent would be at that mark too, and every connection unread for ever.
        self._transport.set_write_buffer_limits(high=1)
        certificate = client_certificate(transport.get_extra_info("peercert"))
        self._connection = Connection(self._server.edge, self._transport, certificate)
        self._server.listener.add(self._connection)

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        first = self._first + data
        if first.startswith(_PREFACE):
            self._server.listener.remove(connection)
            self._connection = None
            self._hand_over(first)
        elif _PREFACE.startswith(first):
            self._first = first
        else:
            self._is_http1 = True
            # Straight to the connection: these are called for each request.
            self.data_received = connection.received  # type: ignore[method-assign]
            self.pause_writing = connection.paused  # type: ignore[method-assign]
            self.resume_writing = connection.resumed  # type: ignore[method-assign]
            # The loop keeps the methods that a protocol had when it was set.
            self._transport.set_protocol(self)
            connection.received(first)

    def eof_received(self) -> bool:
        if self._connection is None or not self._is_http1:
            return False
        self._connection.ended()
        # Over TLS nothing can be sent after the client's end.
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._server.gone(self._connection, self._address)

    def _hand_over(self, first: bytes) -> None:
        self._transport.set_write_buffer_limits()
        protocol = self._server.http2.protocol(has_place=True)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if first:
            protocol.data_received(first)
