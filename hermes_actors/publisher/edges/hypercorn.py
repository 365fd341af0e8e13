"""Serves the ASGI edge by hypercorn on the host loop: HTTP/1.1, HTTP/2, TLS.

hypercorn's own `serve` bounds no connections, makes a task and a timer for each pause between two
requests, and cannot close a connection without an answer; this listener runs its connection class
itself and sweeps all connections together.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, MutableMapping
from contextlib import suppress
from typing import Any, Protocol, cast
from wsgiref.handlers import format_date_time

from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import AsyncioSingleTask, WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope, TaskGroup

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import StartupError
from hermes_actors.publisher.edges.asgi import Receive, Send
from hermes_actors.publisher.edges.authorities import trust_clients
from hermes_actors.publisher.edges.endings import (
    Exchange,
    Http1,
    Lingering,
    holds_overlong_frame,
    refuse,
)
from hermes_actors.publisher.edges.sockets import bind, port_of
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.certificates import client_certificate

_BACKLOG = 4_096
_IDLE_S = 60.0
_SWEEP_S = 0.2
_READ_BYTES_MAX = 65_536
# How long an answer may wait for a client that does not read it.
_UNREAD_S = 30.0
_REQUESTS_MAX = 1_000_000_000
_STREAMS_MAX = 1_000
_log = logging.getLogger("hermes.http")


class Edge(Protocol):
    """What is served: `AsgiEdge.serve`."""

    async def serve(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Send,
        close_silently: Callable[[], None] | None,
    ) -> None:
        """One request."""


class HypercornServer:
    """The frontend's listeners, bound when made. `tls_port` is None without a certificate.

    Raises StartupError when an address cannot be bound or a certificate cannot be read.
    """

    def __init__(
        self,
        edge: Edge,
        config: FrontendConfig,
        clock: Clock,
        *,
        field: str = "frontend.port",
        unread_s: float = _UNREAD_S,
        idle_s: float = _IDLE_S,
    ) -> None:
        """`field` names the setting that a port in use is reported under; a connection on which
        nothing of an answer could be sent for `unread_s`, or without a request for `idle_s`, is
        closed.
        """
        self._idle_s = idle_s
        self._edge = edge
        self._config = _hypercorn_config(config, clock)
        self._connections_max = config.connections_max
        self._per_address_max = config.connections_per_address_max or config.connections_max
        self._by_address: Counter[str] = Counter()
        self._head_timeout_s = config.head_timeout_ms / 1_000
        self._unread_s = unread_s
        self._silence_s = max(0.0, (config.read_timeout_ms - config.idle_timeout_ms) / 1_000)
        self._connections: dict[_Connection, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []
        self._context = WorkerContext(None)
        self._sweeper: asyncio.Task[None] | None = None
        section = field.rpartition(".")[0] + ".tls"
        self._tls = None
        if config.tls.certificate_file:
            self._tls = _tls_context(self._config, config, section)
        self._socket = bind(config.host, config.port, field=field)
        self.port = port_of(self._socket)
        self.tls_port: int | None = None
        if self._tls is not None:
            try:
                self._tls_socket = bind(config.host, config.tls.port, field=f"{section}.port")
            except StartupError:
                self._socket.close()
                raise
            self.tls_port = port_of(self._tls_socket)

    async def start(self) -> None:
        """Accept connections from now on; on the host loop."""
        self._servers.append(
            await asyncio.start_server(self._accept, sock=self._socket, backlog=_BACKLOG)
        )
        if self._tls is not None:
            self._servers.append(
                await asyncio.start_server(
                    self._accept,
                    sock=self._tls_socket,
                    backlog=_BACKLOG,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._head_timeout_s,
                )
            )
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self, grace_s: float = 3.0) -> None:
        """Accept no more, let the requests under way end for up to `grace_s`, close all."""
        for server in self._servers:
            server.close()
        await self._context.terminated.set()
        for connection in list(self._connections):
            if connection.idle.since_s is not None:
                connection.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        for connection in list(self._connections):
            # What its client does not read would be waited for, without an end.
            connection.end()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        if not self._servers:
            self._socket.close()
            if self.tls_port is not None:
                self._tls_socket.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = _address(writer)
        if (
            len(self._connections) >= self._connections_max
            or self._by_address[address] >= self._per_address_max
        ):
            writer.close()
            return
        loop = asyncio.get_running_loop()
        connection = _Connection(self._edge, loop, self._config, self._context, reader, writer)
        connection.silence_s = self._silence_s
        task = connection.task
        self._tasks.add(task)
        self._connections[connection] = None
        self._by_address[address] += 1
        try:
            await connection.run()
        except asyncio.CancelledError:
            writer.close()
        # One connection's fault, e.g. data for a stream that was answered early, ends it alone.
        except Exception as error:  # noqa: BLE001
            _log.debug("a connection ended by %r", error)
            writer.close()
        finally:
            del self._connections[connection]
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            self._tasks.discard(task)

    async def _sweep(self) -> None:
        """Close connections that idled too long, whose request never got the rest of its head or
        its body, or whose client does not read its answers: each would hold its place for ever.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = loop.time()
            for connection in list(self._connections):
                since_s, close_at_s = connection.idle.since_s, connection.close_at_s
                head_since_s = connection.idle.head_since_s
                if (
                    (since_s is not None and now_s > since_s + self._idle_s)
                    or (head_since_s is not None and now_s > head_since_s + self._head_timeout_s)
                    or (close_at_s is not None and now_s > close_at_s)
                ):
                    connection.end()
                elif connection.lingering.is_over(now_s):
                    connection.writer.transport.abort()
                    connection.task.cancel()
                elif connection.is_unread(now_s, self._unread_s):
                    connection.end()
                    # Requests whose answers wait for the client do not notice a closed connection.
                    connection.task.cancel()


class _IdleMark(AsyncioSingleTask):
    """Notes since when a connection has been idle, where hypercorn would start a task, and since
    when it has had a part of a request's head.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.since_s: float | None = None
        self.head_since_s: float | None = None

    async def restart(self, task_group: TaskGroup, action: Callable[..., Any]) -> None:
        self.since_s = self._loop.time()

    async def stop(self) -> None:
        self.since_s = self.head_since_s = None


class _Connection(TCPServer):
    """One connection, and the app as hypercorn calls it."""

    def __init__(
        self,
        edge: Edge,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        context: WorkerContext,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        super().__init__(self._serve, loop, config, context, {}, reader, writer)
        self._edge = edge
        self.idle = self.idle_task = _IdleMark(loop)
        self.silence_s = 0.0
        self.close_at_s: float | None = None
        self.lingering = Lingering()
        self._beside: set[asyncio.Task[None]] = set()
        task = asyncio.current_task()
        assert task is not None, "a connection is made in the task that serves it"
        self.task: asyncio.Task[Any] = task
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        # What the handshake has verified; None also where no certificate was asked for.
        self._certificate = client_certificate(writer.get_extra_info("peercert"))

    async def run(self) -> None:
        """Serve the connection to its end."""
        try:
            await super().run()
        finally:
            for each in self._beside:
                each.cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run beside; the connection's end does not wait for it."""
        task = self.loop.create_task(coroutine)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def end(self) -> None:
        """Close now; what the client has not read is dropped, since it may never read it."""
        if self._unsent_in_transport():
            self.writer.transport.abort()
        else:
            self.writer.close()

    def is_unread(self, now_s: float, limit_s: float) -> bool:
        """True when bytes have waited for the client for `limit_s` and not one of them went."""
        unsent_bytes = self._unsent_in_transport()
        http2 = self.protocol.protocol if hasattr(self, "protocol") else None
        if isinstance(http2, H2Protocol):
            # Held back by the client's flow control.
            unsent_bytes += sum(len(each.buffer) for each in http2.stream_buffers.values())
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
            return False
        return now_s > self._unsent_since_s + limit_s

    def _unsent_in_transport(self) -> int:
        return self.writer.transport.get_write_buffer_size()

    async def _read_data(self) -> None:
        """Read until the client ends; hypercorn's own, but for noting when a head begins."""
        reader, idle, lingering = self.reader, self.idle, self.lingering
        if isinstance(self.protocol.protocol, H11Protocol):
            self.protocol.protocol = Http1.instead_of(self.protocol.protocol)
        while not reader.at_eof():
            try:
                data = await reader.read(_READ_BYTES_MAX)
            except OSError:
                break
            if lingering.has_begun:
                if not lingering.drop(len(data)):
                    break
                continue
            await self.protocol.handle(RawData(data))
            http2 = self.protocol.protocol
            if isinstance(http2, H2Protocol):
                if holds_overlong_frame(http2):
                    break
                if http2.idle and idle.since_s is None:
                    # Neither a preface alone nor a request that was taken back makes it idle there.
                    idle.since_s = self.loop.time()
            if idle.since_s is not None and idle.head_since_s is None and self._has_part_of_head():
                idle.head_since_s = self.loop.time()
        await self.protocol.handle(Closed())

    def _has_part_of_head(self) -> bool:
        """Whether an idle connection has bytes that are no request yet. HTTP/2 has none of its own:
        what is not complete there is ended as idle.
        """
        http1 = self.protocol.protocol
        return isinstance(http1, H11Protocol) and bool(http1.connection.trailing_data[0])

    async def protocol_send(self, event: Event) -> None:
        """Send; the end of a body is no bytes, and needs neither hypercorn's lock nor a wait.

        Before the end of the connection its client has the time to read the answer.
        """
        if isinstance(event, Closed) and self._lingers():
            return
        if not isinstance(event, RawData) or event.data:
            await super().protocol_send(event)

    def _lingers(self) -> bool:
        """True while bytes may come that nobody will look at: to close now would make the system
        take the answer back.
        """
        http1, writer = self.protocol.protocol, self.writer
        if self.lingering.has_begun:
            return True
        if (
            not isinstance(http1, Http1)
            or not http1.has_unread_request
            or self.reader.at_eof()
            or writer.is_closing()
            or not writer.can_write_eof()
        ):
            return False
        self.lingering.begin(self.loop.time())
        with suppress(OSError):
            writer.write_eof()
        return True

    async def _serve(
        self,
        scope: Scope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
        sync_spawn: Callable[..., Any],
        call_soon: Callable[..., Any],
    ) -> None:
        exchange = Exchange(receive, send, self._spawn)
        try:
            if not await refuse(cast("dict[str, Any]", scope), exchange.send):
                await self._serve_app(cast("dict[str, Any]", scope), exchange)
        finally:
            exchange.drop_rest()

    async def _serve_app(self, fields: dict[str, Any], exchange: Exchange) -> None:
        close: Callable[[], None] | None = self._close_silently
        if fields["http_version"] >= "2":
            # Other requests share the connection, so each one is answered.
            close = None
            self._forgive_late_data()
        if self._certificate is not None:
            fields["client_certificate"] = self._certificate
        await self._edge.serve(fields, exchange.receive, exchange.send, close)

    def _forgive_late_data(self) -> None:
        """Data for a request that was answered early is dropped.

        hypercorn would end the connection, and with it all other requests on it.
        """
        http2 = self.protocol.protocol
        if isinstance(http2, H2Protocol) and not isinstance(http2.streams, _Streams):
            http2.streams = _Streams(http2.streams)

    def _close_silently(self) -> None:
        self.close_at_s = self.loop.time() + self.silence_s


def _address(writer: asyncio.StreamWriter) -> str:
    """The client's address without its port; "" for what has none."""
    name = writer.get_extra_info("peername")
    return str(name[0]) if name else ""


class _Streams(dict[int, Any]):
    """The open streams of a connection; a stream that has ended swallows what still comes."""

    def __missing__(self, stream_id: int) -> "_Streams":
        return self

    async def handle(self, event: object) -> None:
        """Nothing: the stream has ended."""


class _CachedConfig(Config):
    """hypercorn's configuration with a Date header rendered once a second."""

    clock: Clock
    _date: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        now_s = self.clock.now_ms() // 1_000
        if self._date[0] != now_s:
            self._date = (now_s, [(b"date", format_date_time(now_s).encode())])
        return list(self._date[1])


def _hypercorn_config(config: FrontendConfig, clock: Clock) -> Config:
    ours = _CachedConfig()
    ours.clock = clock
    ours.include_server_header = False
    ours.keep_alive_max_requests = _REQUESTS_MAX
    ours.h2_max_concurrent_streams = _STREAMS_MAX
    ours.h2_max_header_list_size = config.header_bytes_max
    ours.h11_max_incomplete_size = config.header_bytes_max
    ours.h11_pass_raw_headers = config.propagation.enabled
    # What waits here is in memory, whoever its sender is.
    ours.max_app_queue_size = 2
    ours.accesslog = None
    ours.errorlog = _log
    if config.tls.certificate_file:
        ours.certfile = config.tls.certificate_file
        ours.keyfile = config.tls.key_file
    return ours


def _tls_context(ours: Config, config: FrontendConfig, section: str) -> ssl.SSLContext:
    tls = config.tls
    try:
        context = ours.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"{section}: {tls.certificate_file} and {tls.key_file} cannot be used: {error}; "
            "both are PEM files, the key that of the certificate"
        ) from error
    assert context is not None, "there is a certificate"
    trust_clients(context, tls, section)
    return context
