"""A listener: HTTP/1.1 and HTTP/2 on one port, distinguished by the first bytes of a connection."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, cast

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.edge import LEAVE_S, UNREAD_S, Edge, Host
from hermes_actors.publisher.edges.http1.connection import Http1Connection
from hermes_actors.publisher.edges.http2.connection import Http2Connection
from hermes_actors.publisher.edges.listener import BACKLOG, address_of, bound, listen, port_of
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.certificates import client_certificate

_logger = logging.getLogger(__name__)

_SWEEP_S = 0.2
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Connection = Http1Connection | Http2Connection


class HttpServer:
    """One listener, bound when created, and its connections, whose time limits one sweep checks.
    From trio, call `start` and `stop` through `guest.call`.

    `port` is None if there is TLS only, `tls_port` and `tls` without a certificate. Raises
    StartupError if an address cannot be bound or a certificate cannot be read.
    """

    def __init__(
        self, make_edge: Callable[[Host], Edge], config: FrontendConfig, clock: Clock, *, field: str
    ) -> None:
        """`make_edge` makes the edge that takes the requests. `field` names the setting that errors
        about the port mention.
        """
        self._clock = clock
        self.edge = make_edge(self)
        self.connections: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._all_gone: asyncio.Event | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._free = config.connections_max
        self._per_address_max = config.connections_per_address_max or config.connections_max
        self._by_address: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self._field = field
        self._sockets = bound(config, field)
        self.port = self.tls_port = self.tls = None
        for each, tls in self._sockets:
            if tls is None:
                self.port = port_of(each)
            else:
                self.tls_port, self.tls = port_of(each), tls

    async def start(self) -> None:
        """Start accepting connections. Runs on the host loop.

        Raises PortUnusable if another process took the port after it was bound here.
        """
        self._loop = loop = asyncio.get_running_loop()
        self._tick(loop.time())
        listen(self._sockets, self._field)
        for each, tls in self._sockets:
            server = await loop.create_server(
                partial(_AcceptedSocket, self),
                sock=each,
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self.edge.head_timeout_s,
            )
            self._servers.append(server)
        self._sweeper = loop.create_task(self._sweep())

    async def stop(self, grace_s: float = 3.0) -> None:
        """Stop accepting connections, wait up to `grace_s` for open requests to end, then close
        everything.
        """
        for server in self._servers:
            server.close()
        if self._sweeper is None:
            for each, _tls in self._sockets:
                each.close()
            return
        self._is_ending = True
        for connection in list(self.connections):
            connection.leave(self._loop.time())
        if self.tls_port is not None:
            # A TLS connection is registered only after its handshake.
            await asyncio.sleep(min(LEAVE_S, grace_s))
        await self._wait_all_gone(grace_s)
        self._sweeper.cancel()
        await asyncio.wait([self._sweeper])
        for connection in list(self.connections):
            connection.abort()
        await self._wait_all_gone(grace_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def sweep(self, now_s: float) -> None:
        """Check the time limits of all connections that are due."""
        self._tick(now_s)
        for each in [each for each in self.connections if each.due_s < now_s]:
            try:
                each.sweep(now_s)
            except Exception:
                # If the sweep failed, no connection of the node would have a time limit any more.
                _logger.exception("Checking a connection's time limits failed; it is closed")
                each.abort()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep(self._loop.time())

    def _tick(self, now_s: float) -> None:
        self.edge.tick(now_s, self._clock.now_ms())

    async def _wait_all_gone(self, limit_s: float) -> None:
        if self.connections:
            self._all_gone = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), limit_s)

    # For accepted sockets.

    def take_place(self, address: str) -> bool:
        """Reserve a place for a connection from this address. False if there is none."""
        if not self._free or self._by_address[address] >= self._per_address_max:
            return False
        self._free -= 1
        self._by_address[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """Free the place of a connection from this address."""
        self._free += 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def add(self, connection: Connection) -> None:
        """Register a connection."""
        self.connections[connection] = None
        if self._is_ending:
            connection.leave(self._loop.time())

    def remove(self, connection: Connection) -> None:
        """Unregister a connection that has ended or has been replaced."""
        del self.connections[connection]
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()

    # For connections.

    def soon(self, callback: Callable[[], None]) -> None:
        """Call it in the loop's next turn."""
        self._loop.call_soon(callback)

    def spawn(
        self, task: Coroutine[Any, Any, None], on_failure: Callable[[], None]
    ) -> Callable[[], None]:
        """Run the coroutine as a task; call the returned function to cancel it. `on_failure` is
        called if it fails.
        """
        running = self._loop.create_task(task)
        # The loop itself keeps only weak references to tasks.
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


class _AcceptedSocket(asyncio.Protocol):
    """Creates the connection for an accepted socket once its first bytes show the protocol, and
    passes the loop's callbacks to it.
    """

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._first = b""
        self._connection: Connection | None = None
        self._address = ""
        self._is_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._address = address_of(transport)
        if not self._server.take_place(self._address):
            self._transport.close()
            return
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._speak(Http2Connection)
            self._listen()
            return
        # Each write is sent at once, and unsent bytes are reported at once. The limit is not 0:
        # with TLS even an empty buffer would count as full, and the connection as unread for ever.
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
            # Only now, because a listener that ends waits until no connection is registered.
            self._server.remove(connection)
        self._listen()
        self.data_received(first)

    def eof_received(self) -> bool:
        connection = self._connection
        if connection is None or not (self._is_known and self._server.edge.answers_half_closed):
            return False
        connection.ended()
        # With TLS nothing can be sent after the client has closed its side.
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost()
            self._server.remove(self._connection)
            self._server.give_back(self._address)

    def _speak(self, kind: type[Http1Connection] | type[Http2Connection]) -> None:
        certificate = client_certificate(self._transport.get_extra_info("peercert"))
        self._connection = kind(self._server.edge, self._transport, certificate, self._address)
        self._server.add(self._connection)

    def _listen(self) -> None:
        """From now on the loop calls the connection directly, because these are called for each
        request.
        """
        connection = self._connection
        assert connection is not None, "the protocol has been chosen"
        self._is_known = True
        self.data_received = connection.received  # type: ignore[method-assign]
        self.pause_writing = connection.paused  # type: ignore[method-assign]
        self.resume_writing = connection.resumed  # type: ignore[method-assign]
        # The loop looks up a protocol's methods when it is set, so set it again.
        self._transport.set_protocol(self)


class FrontendServer(HttpServer):
    """The publishing listener of one node."""

    def __init__(self, frontend: Frontend, *, unread_s: float = UNREAD_S) -> None:
        """`unread_s` is that of Edge."""
        make_edge = partial(PublishEdge, frontend, unread_s=unread_s)
        super().__init__(make_edge, frontend.config, frontend.clock, field="frontend.port")
