"""Serves an ASGI app by hypercorn on the host loop: management, and publishing over HTTP/2.

hypercorn's own `serve` bounds no connections and makes a task and a timer for each pause between
two requests; here its connection class alone is run, and all connections are swept together.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, cast
from wsgiref.handlers import format_date_time

from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import AsyncioSingleTask, WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope, TaskGroup

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.asgi import AsgiApp
from hermes_actors.publisher.edges.endings import (
    LAST_STREAM,
    AsgiExchange,
    Http1,
    Lingering,
    go_away,
    holds_overlong_frame,
    refuse,
)
from hermes_actors.publisher.edges.listener import LEAVE_S, Listener, address_of
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.certificates import client_certificate

_IDLE_S = 60.0
_READ_BYTES_MAX = 65_536
# How long an answer may wait for a client that does not read it.
_UNREAD_S = 30.0
_REQUESTS_MAX = 1_000_000_000
_STREAMS_MAX = 1_000
_log = logging.getLogger("hermes.http")


class Connections:
    """The connections that hypercorn serves, on a listener that others may share.

    A connection on which nothing of an answer could be sent for `unread_s`, or without a request
    for `idle_s`, is closed.
    """

    def __init__(
        self,
        app: AsgiApp,
        listener: Listener,
        config: FrontendConfig,
        clock: Clock,
        *,
        unread_s: float = _UNREAD_S,
        idle_s: float = _IDLE_S,
    ) -> None:
        self.app = app
        self.http = _hypercorn_config(config, clock)
        self.head_timeout_s = config.head_timeout_ms / 1_000
        self.unread_s = unread_s
        self.idle_s = idle_s
        self._listener = listener

    def protocol(self, *, has_place: bool) -> asyncio.StreamReaderProtocol:
        """Return the protocol that serves one connection to its end and then gives its place back.

        The place is taken first, unless the connection `has_place` already.
        """
        listener, loop = self._listener, asyncio.get_running_loop()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address = address_of(writer.transport)
            if not has_place and not listener.take_place(address):
                writer.close()
                return
            try:
                await self._serve(reader, writer)
            finally:
                listener.give_back(address)

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), serve, loop=loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, asyncio.get_running_loop(), reader, writer)
        self._listener.add(connection)
        try:
            await connection.run()
        except asyncio.CancelledError:
            writer.close()
        # One connection's fault, e.g. data for a stream that was answered early, ends it alone.
        except Exception as error:  # noqa: BLE001
            _log.debug("a connection ended by %r", error)
            writer.close()
        finally:
            self._listener.remove(connection)


class HypercornServer(Connections):
    """A listener for an ASGI app over HTTP/1.1 and HTTP/2, bound when made.

    `tls_port` is None without a certificate. Raises StartupError when an address cannot be bound
    or a certificate cannot be read.
    """

    def __init__(
        self, app: AsgiApp, config: FrontendConfig, clock: Clock, *, field: str, **times_s: float
    ) -> None:
        """`field` names the setting that a port in use is reported under; `times_s` are those of
        Connections.
        """
        super().__init__(app, Listener(config, field), config, clock, **times_s)
        self.port, self.tls_port = self._listener.port, self._listener.tls_port

    async def start(self) -> None:
        """Accept connections from now on; on the host loop."""
        await self._listener.start(partial(self.protocol, has_place=False))

    async def stop(self, grace_s: float = 3.0) -> None:
        """Accept no more, let the requests under way end for up to `grace_s`, close all."""
        await self._listener.stop(grace_s)


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
        shared: Connections,
        loop: asyncio.AbstractEventLoop,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        super().__init__(self._serve, loop, shared.http, WorkerContext(None), {}, reader, writer)
        self._shared = shared
        self.idle = self.idle_task = _IdleMark(loop)
        self.lingering = Lingering()
        self._beside: set[asyncio.Task[None]] = set()
        task = asyncio.current_task()
        assert task is not None, "a connection is made in the task that serves it"
        self._task: asyncio.Task[Any] = task
        # HTTP/1.1's alone: hypercorn's HTTP/2 would reset what comes once its own has ended, as if
        # it had been answered.
        self._http1_context = WorkerContext(None)
        self.due_s = 0.0
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        self._leaves_at_s = math.inf
        self._has_said_goodbye = False
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

    def sweep(self, now_s: float) -> None:
        """Close what idled too long, whose request never got the rest of its head, or whose client
        does not read its answers: each would hold its place for ever.
        """
        shared, idle = self._shared, self.idle
        ends_s = math.inf
        if idle.since_s is not None:
            ends_s = min(idle.since_s + shared.idle_s, self._leaves_at_s)
        if idle.head_since_s is not None:
            ends_s = min(ends_s, idle.head_since_s + shared.head_timeout_s)
        if now_s > ends_s:
            self._end()
        elif self.lingering.is_over(now_s):
            self.writer.transport.abort()
            self._task.cancel()
        elif self._is_unread(now_s):
            self.abort()

    def leave(self, now_s: float) -> None:
        """As `listener.Connection.leave`."""
        self._leaves_at_s = now_s + LEAVE_S
        self._spawn(self._http1_context.terminated.set())
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Tell the client that the connection ends, if it does and speaks HTTP/2: that may be known
        only later.
        """
        if self._leaves_at_s < math.inf and not self._has_said_goodbye and self._http2 is not None:
            self._has_said_goodbye = True
            self._go_away(LAST_STREAM)

    def _go_away(self, last_stream_id: int) -> None:
        """Send the frame unless the connection is lost already."""
        if not self.writer.is_closing():
            self.writer.write(go_away(last_stream_id))

    def abort(self) -> None:
        """As `listener.Timed.abort`."""
        self._end()
        # Requests whose answers wait for the client do not notice a closed connection.
        self._task.cancel()

    def _end(self) -> None:
        """Close now; what the client has not read is dropped, since it may never read it."""
        if self._unsent_in_transport():
            self.writer.transport.abort()
            return
        if self._http2 is not None:
            # What came after this was not looked at, and may be sent again.
            self._go_away(self._http2.connection.highest_inbound_stream_id)
        self.writer.close()

    def _is_unread(self, now_s: float) -> bool:
        """True when bytes have waited for the client for `unread_s` and not one of them went."""
        unsent_bytes = self._unsent_in_transport()
        if self._http2 is not None:
            # Held back by the client's flow control.
            unsent_bytes += sum(len(each.buffer) for each in self._http2.stream_buffers.values())
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
            return False
        return now_s > self._unsent_since_s + self._shared.unread_s

    @property
    def _http2(self) -> H2Protocol | None:
        """The HTTP/2 protocol of this connection; None when it does not speak HTTP/2."""
        http2 = self.protocol.protocol if hasattr(self, "protocol") else None
        return http2 if isinstance(http2, H2Protocol) else None

    def _unsent_in_transport(self) -> int:
        return self.writer.transport.get_write_buffer_size()

    async def _read_data(self) -> None:
        """Read until the client ends; hypercorn's own, but for noting when a head begins."""
        reader, idle, lingering = self.reader, self.idle, self.lingering
        if isinstance(self.protocol.protocol, H11Protocol):
            self.protocol.protocol = Http1.instead_of(self.protocol.protocol, self._http1_context)
        self._say_goodbye()
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
            self._say_goodbye()
            if (http2 := self._http2) is not None:
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
        exchange = AsgiExchange(receive, send, self._spawn)
        try:
            if not await refuse(cast("dict[str, Any]", scope), exchange.send):
                await self._serve_app(cast("dict[str, Any]", scope), exchange)
        finally:
            exchange.drop_rest()

    async def _serve_app(self, fields: dict[str, Any], exchange: AsgiExchange) -> None:
        self._forgive_late_data()
        if self._certificate is not None:
            fields["client_certificate"] = self._certificate
        await self._shared.app(fields, exchange.receive, exchange.send)

    def _forgive_late_data(self) -> None:
        """Have data dropped that comes for a request that was answered early.

        hypercorn would end the connection, and with it all other requests on it.
        """
        http2 = self._http2
        if http2 is not None and not isinstance(http2.streams, _Streams):
            http2.streams = _Streams(http2.streams)


class _Streams(dict[int, Any]):
    """The open streams of a connection; a stream that has ended swallows what still comes."""

    def __missing__(self, stream_id: int) -> "_Streams":
        return self

    async def handle(self, event: object) -> None:
        """Do nothing: the stream has ended."""


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
    # What waits here is in memory, whoever its sender is.
    ours.max_app_queue_size = 2
    ours.accesslog = None
    ours.errorlog = _log
    return ours
