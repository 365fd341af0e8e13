"""Connections of httpx' transport: each goes to an address that the guard has allowed, after the
look-up and with no other look-up behind it, while Host, SNI and the certificate's name stay the
endpoint's.
"""

import re
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakSet

import h2.exceptions
import httpcore
import trio
from msgspec import Struct, field

from hermes_actors.consumer.senders.connecting import (
    ForbiddenAddress,
    Resolver,
    allowed_addresses,
    connect_to_first,
)
from hermes_actors.consumer.senders.httpx.frames import FrameBudget
from hermes_actors.consumer.senders.proxying import Proxy
from hermes_actors.consumer.senders.sender import Origin
from hermes_actors.runtime.network_causes import PUSHES, tls_cause
from hermes_actors.security.address_guard import AddressGuard

PIECE_BYTES_MIN = 64
"""The least that a piece of an answer's body counts as: thousands of chunks of one byte cost more
than their bytes."""

_READ_BYTES_MAX = 4_096
_HTTP2_BEGINS = b"PRI "
_SAID_CHARACTERS_MAX = 200
# How the transport's parser quotes the line that it cannot read.
_QUOTED = re.compile(r":? *(bytearray\(|b['\"]).*", re.DOTALL)
_HTTP1_ANSWER_BYTES_MAX = 196_608
"""The most that is read between two requests of HTTP/1.1: interim answers and heads included."""


TRANSPORT_ERRORS: tuple[type[Exception], ...] = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
    # What the transport lets through: of sockets and TLS, of trio's streams, and of the protocols.
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.BusyResourceError,
    h2.exceptions.H2Error,
    # A status or a header that is none.
    ValueError,
)
"""The errors that httpcore raises for a failed request: any other is a fault of somebody's."""


class CrowdedHost(httpcore.ConnectError):
    """As many connections lead to this host and port as may."""


class HostConnections:
    """The connections that stand to each host and port, over all subscriptions: at most `limit`."""

    def __init__(self, limit: int = 1_000) -> None:
        self.limit = limit
        # Weakly: one that the transport drops without closing it takes no place for ever.
        self._taken: dict[tuple[str, int], WeakSet[httpcore.AsyncNetworkStream]] = {}
        self._dialing: dict[tuple[str, int], int] = {}

    def dial(self, key: tuple[str, int]) -> None:
        """Take a place for a connection to be made. Raises CrowdedHost."""
        dialing = self._dialing.get(key, 0)
        if len(self._taken.get(key, ())) + dialing >= self.limit:
            raise CrowdedHost(
                f"all {self.limit} connections to {key[0]}:{key[1]} are taken "
                "(consumers.connections_per_host_max)"
            )
        self._dialing[key] = dialing + 1

    def dialed(self, key: tuple[str, int], stream: httpcore.AsyncNetworkStream | None) -> None:
        """Record that a dial has ended, with a stream or, if it could not be made, None."""
        self._dialing[key] -= 1
        if not self._dialing[key]:
            del self._dialing[key]
        if stream is not None:
            self._taken.setdefault(key, WeakSet()).add(stream)

    def give_back(self, key: tuple[str, int], stream: httpcore.AsyncNetworkStream) -> None:
        """Free the place of a stream that is closed."""
        taken = self._taken.get(key)
        if taken is not None:
            taken.discard(stream)
            if not taken:
                del self._taken[key]


class HttpxNet(Struct, frozen=True):
    """The settings and parts that connections are made with. `tls` is this client's alone: the
    transport sets its ALPN.

    `proxy` None: straight to all endpoints. `response_bytes_max` is how much is read of an answer.
    """

    guard: AddressGuard
    resolver: Resolver
    tls: ssl.SSLContext
    connect_timeout_s: float
    connections_max: int
    idle_s: float
    proxy: Proxy | None = None
    host_connections: HostConnections = field(default_factory=HostConnections)
    response_bytes_max: int = 65_536

    def is_proxied(self, origin: Origin) -> bool:
        """True when the proxy looks the origin up and connects to it, in our place."""
        return self.proxy is not None and self.proxy.is_for(origin.host)

    def backend(self, origin: Origin) -> "GuardedBackend":
        """Return the backend that connects to the origin or the proxy before it, whatever host it
        is told: to its address, or to what its name means.
        """
        if self.proxy is not None and self.is_proxied(origin):
            guard, to = self.proxy.guard, self.proxy.origin
        else:
            guard, to = self.guard, origin
        return GuardedBackend(self, guard, to, (origin.host, origin.port))

    def open_pool(self, origin: Origin, *, http2: bool) -> httpcore.AsyncConnectionPool:
        """Return a pool of connections to one origin, over the proxy if there is one for it.

        With `http2` that is spoken where ALPN agrees on it, and over plain http in any case; a
        proxy takes plain http as HTTP/1.1 only.
        """
        if self.proxy is not None and self.is_proxied(origin):
            proxy = self.proxy
            return httpcore.AsyncHTTPProxy(
                proxy_url=str(proxy.origin),
                proxy_headers=list(proxy.headers),
                ssl_context=self.tls,
                proxy_ssl_context=proxy.tls if proxy.origin.scheme == "https" else None,
                max_connections=self.connections_max,
                keepalive_expiry=self.idle_s,
                http1=True,
                http2=http2,
                network_backend=self.backend(origin),
            )
        return httpcore.AsyncConnectionPool(
            ssl_context=self.tls,
            max_connections=self.connections_max,
            keepalive_expiry=self.idle_s,
            http1=not http2 or origin.scheme == "https",
            http2=http2,
            network_backend=self.backend(origin),
        )

    def time_outs(self, silence_s: float | None) -> dict[str, float | None]:
        """The transport's: to connect, and for silence; waiting for a connection has none here."""
        return {
            "connect": self.connect_timeout_s,
            "read": silence_s,
            "write": silence_s,
            "pool": None,
        }


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Makes TCP connections to one host: what it was looked up as is what is connected to."""

    def __init__(
        self, net: HttpxNet, guard: AddressGuard, to: Origin, key: tuple[str, int]
    ) -> None:
        """An address that `to` names is connected to without a look-up; `guard` has to allow it all
        the same. `key` is what the connections are counted by.
        """
        self._net = net
        self._guard = guard
        self._to = to
        self._key = key
        self._plain = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the transport's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect. Raises ForbiddenAddress, CrowdedHost, and httpcore's ConnectError and
        ConnectTimeout.
        """
        connections = self._net.host_connections
        connections.dial(self._key)
        bounded: _Bounded | None = None
        try:
            stream = await self._connect(port, float("inf") if timeout is None else timeout)
            on_closed = partial(connections.give_back, self._key)
            bounded = _Bounded(stream, self._net.response_bytes_max, on_closed)
        finally:
            connections.dialed(self._key, bounded)
        return bounded

    async def _connect(self, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
        stream: httpcore.AsyncNetworkStream | None = None
        with trio.move_on_after(timeout_s):
            try:
                addresses = await allowed_addresses(self._to, self._net.resolver, self._guard)
            except ForbiddenAddress:
                raise
            except OSError as error:
                raise httpcore.ConnectError(f"{self._to.host}: {error}") from error
            connect = partial(self._plain.connect_tcp, port=port)
            stream, *late = await connect_to_first(addresses, connect, (httpcore.ConnectError,))
            for each in late:
                await each.aclose()
        if stream is None:
            raise httpcore.ConnectTimeout(f"no connection to {self._to.host}")
        return stream

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 -- the transport's signature
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: no endpoint is a Unix socket."""
        raise ForbiddenAddress("no endpoint is a Unix socket")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)


class _Bounded(httpcore.AsyncNetworkStream):
    """A stream that is read in small pieces, for whatever a read brings is parsed without a wait.
    An answer of HTTP/1.1 has a bound too, since interim answers are counted by nobody else, and so
    have the frames of HTTP/2. `on_closed` is told of its end; of another's that follows it, too.
    """

    def __init__(
        self,
        stream: httpcore.AsyncNetworkStream,
        stream_window_bytes: int,
        on_closed: Callable[[httpcore.AsyncNetworkStream], None],
        counted: httpcore.AsyncNetworkStream | None = None,
    ) -> None:
        """`counted` is what stands for it where connections are counted, if not itself."""
        self._stream = stream
        self._stream_window_bytes = stream_window_bytes
        self._on_closed = on_closed
        self._counted = counted
        # Not known before the first request.
        self._is_http1: bool | None = None
        self._frames: FrameBudget | None = None
        self._read_bytes = 0

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the transport's signature
    ) -> bytes:
        """Read a piece. Raises RemoteProtocolError for an answer or frames without end."""
        data = await self._stream.read(min(max_bytes, _READ_BYTES_MAX), timeout)
        if self._frames is not None and not self._frames.on_received(data, trio.current_time()):
            raise httpcore.RemoteProtocolError("too many frames that answer no request")
        self._read_bytes += len(data)
        if self._is_http1 and self._read_bytes > _HTTP1_ANSWER_BYTES_MAX:
            raise httpcore.RemoteProtocolError("an answer of too many bytes")
        return data

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 -- the transport's signature
    ) -> None:
        """A piece of a request: the next answer is a new one."""
        if self._is_http1 is None and buffer:
            self._is_http1 = not buffer.startswith(_HTTP2_BEGINS)
            if not self._is_http1:
                self._frames = FrameBudget(trio.current_time(), self._stream_window_bytes)
        if self._frames is not None:
            buffer = self._frames.to_send(buffer)
        self._read_bytes = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the stream."""
        self._on_closed(self._counted or self)
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- the transport's signature
    ) -> httpcore.AsyncNetworkStream:
        """Return the same stream within TLS. Whatever this raises, the connection is closed."""
        secured: httpcore.AsyncNetworkStream | None = None
        try:
            secured = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        finally:
            if secured is None:
                self._on_closed(self._counted or self)
        return _Bounded(secured, self._stream_window_bytes, self._on_closed, self._counted or self)

    def get_extra_info(self, info: str) -> Any:
        """Return the stream's own info of this name."""
        return self._stream.get_extra_info(info)


def said(error: BaseException) -> str:
    """Return the text of the error, or of the one behind it that has any; never what a peer has
    sent, which may be a token of ours or of his.
    """
    if cause := tls_cause(error, PUSHES):
        return cause
    found: BaseException | None = error
    while found is not None:
        if text := _QUOTED.sub("", str(found))[:_SAID_CHARACTERS_MAX]:
            return text
        found = found.__cause__ or found.__context__
    return type(error).__name__


class PushBody:
    """A request's body, given in one piece. No generator: a connection that breaks would leave it
    in the middle, and whoever collects it would complain.
    """

    def __init__(self, content: bytes) -> None:
        self._left: list[bytes] = [content]

    def __aiter__(self) -> "PushBody":
        return self

    async def __anext__(self) -> bytes:
        """Give the piece, once."""
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()
