"""httpcore's connections: each goes to an IP address that the guard has allowed, without a second
look-up. Host, SNI and the certificate's name stay the endpoint's.
"""

import re
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import h2.events
import h2.exceptions
import httpcore
import trio
from msgspec import Struct

from hermes_actors.consumer.senders.connecting import (
    ForbiddenAddress,
    Resolver,
    allowed_addresses,
    connect_to_first,
)
from hermes_actors.consumer.senders.httpx.frames import (
    REFUSED_STREAM,
    FrameFilter,
    TooManyFrames,
)
from hermes_actors.consumer.senders.proxying import Proxy
from hermes_actors.consumer.senders.sender import Failure, Origin
from hermes_actors.runtime.network_causes import PUSHES, tls_cause
from hermes_actors.security.address_guard import AddressGuard

# The bytes of one read are parsed without yielding.
_READ_BYTES_MAX = 4_096
_HTTP2_BEGINS = b"PRI "
_SAID_CHARACTERS_MAX = 200
# httpcore's parser quotes the line that it cannot parse, which may contain a peer's secret.
_QUOTED = re.compile(r":? *(bytearray\(|b['\"]).*", re.DOTALL)

ERRORS: tuple[type[Exception], ...] = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
    # httpcore does not wrap these errors of sockets and TLS, trio's streams, and the protocols.
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.BusyResourceError,
    h2.exceptions.H2Error,
    TooManyFrames,
    ValueError,
)
"""The errors of a failed request. Any other is a bug."""


def failure_of(error: Exception) -> Failure:
    """The failure that corresponds to one of the ERRORS."""
    match error:
        case ForbiddenAddress():
            return Failure.FORBIDDEN
        case httpcore.ConnectTimeout() | httpcore.ConnectError() | httpcore.ProxyError():
            return Failure.CONNECT
        case httpcore.TimeoutException():
            return Failure.IDLE
        case httpcore.LocalProtocolError(args=(h2.exceptions.StreamClosedError(),)):
            # The peer reset the stream before the whole request was sent.
            return Failure.RESET
        case httpcore.RemoteProtocolError():
            # The end of a stream or of the connection, or an invalid answer.
            is_end = "disconnect" in str(error) or _peer_error(error) is not None
            return Failure.RESET if is_end else Failure.MALFORMED
        case (
            httpcore.NetworkError()
            | OSError()
            | trio.BrokenResourceError()
            | trio.ClosedResourceError()
        ):
            return Failure.RESET
        case _:
            return Failure.MALFORMED


def was_unprocessed(error: Exception) -> bool:
    """True if the endpoint certainly has not processed a push that has no answer, so that it may be
    sent again.
    """
    if isinstance(error, h2.exceptions.ProtocolError):
        # Another push broke off the connection while it was being opened.
        return True
    # No stream was opened, or the request was not sent completely.
    unsent = (h2.exceptions.StreamClosedError, h2.exceptions.TooManyStreamsError)
    is_local = isinstance(error, httpcore.LocalProtocolError)
    is_unsent = is_local and isinstance(error.args[0], unsent)
    return is_unsent or _peer_error(error) == REFUSED_STREAM


def _peer_error(error: Exception) -> int | None:
    """The code with which an HTTP/2 peer ended the stream or the connection; None otherwise."""
    match error.args:
        case (h2.events.StreamReset(error_code=code),):
            return code
        case (h2.events.ConnectionTerminated(error_code=code),):
            return code
        case _:
            return None


def said(error: BaseException) -> str:
    """The error's text, or that of its cause, without bytes from the peer."""
    if cause := tls_cause(error, PUSHES):
        return cause
    match error.args:
        case (h2.events.StreamReset(error_code=code),):
            return f"the server reset the stream (HTTP/2 error {code})"
        case (h2.exceptions.StreamClosedError(),):
            return "the server closed the stream"
        case (h2.events.ConnectionTerminated(error_code=code),):
            return f"the server ended the connection (GOAWAY, HTTP/2 error {code})"
    found: BaseException | None = error
    while found is not None:
        if text := _QUOTED.sub("", str(found))[:_SAID_CHARACTERS_MAX]:
            return text
        found = found.__cause__ or found.__context__
    return type(error).__name__


class HttpxNet(Struct, frozen=True):
    """How connections are made. `tls` belongs to this client alone, because httpcore sets its ALPN.

    `proxy` None: connect directly. `response_bytes_max` bounds what is read of an answer.
    """

    guard: AddressGuard
    resolver: Resolver
    tls: ssl.SSLContext
    connect_timeout_s: float
    connections_max: int
    idle_s: float
    proxy: Proxy | None = None
    response_bytes_max: int = 65_536

    def is_proxied(self, origin: Origin) -> bool:
        """True if the proxy looks the origin up and connects to it for us."""
        return self.proxy is not None and self.proxy.is_for(origin.host)

    def open_pool(
        self, origin: Origin, *, http2: bool, retire: Callable[[], None]
    ) -> httpcore.AsyncConnectionPool:
        """A pool of connections to the origin, through the proxy if the origin is proxied.

        With `http2`, plain http uses HTTP/2, and TLS does if ALPN selects it. A proxy gets plain
        http as HTTP/1.1 only.
        """
        shared: dict[str, Any] = {
            "ssl_context": self.tls,
            "max_connections": self.connections_max,
            "keepalive_expiry": self.idle_s,
            "http2": http2,
            "network_backend": GuardedBackend(self, origin, retire),
        }
        if self.proxy is None or not self.is_proxied(origin):
            is_http1 = not http2 or origin.scheme == "https"
            return httpcore.AsyncConnectionPool(http1=is_http1, **shared)
        return httpcore.AsyncHTTPProxy(
            proxy_url=str(self.proxy.origin),
            proxy_auth=self.proxy.auth,
            proxy_ssl_context=self.proxy.tls if self.proxy.origin.scheme == "https" else None,
            **shared,
        )


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Makes TCP connections to one origin, or to its proxy, whatever host httpcore passes."""

    def __init__(self, net: HttpxNet, origin: Origin, retire: Callable[[], None]) -> None:
        self._net = net
        self._retire = retire
        self._plain = httpcore.TrioBackend()
        self._to, self._guard = origin, net.guard
        if net.proxy is not None and net.is_proxied(origin):
            self._to, self._guard = net.proxy.origin, net.proxy.guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect. Raises ForbiddenAddress, and httpcore's ConnectError and ConnectTimeout."""
        limit_s = self._net.connect_timeout_s
        with trio.move_on_after(limit_s):
            try:
                addresses = await allowed_addresses(self._to, self._net.resolver, self._guard)
            except ForbiddenAddress:
                raise
            except OSError as error:
                raise httpcore.ConnectError(f"{self._to.host}: {error}") from error
            connect = partial(self._plain.connect_tcp, port=self._to.port)
            stream, *late = await connect_to_first(addresses, connect, (httpcore.ConnectError,))
            for each in late:
                await each.aclose()
            return EndpointStream(stream, self._retire)
        raise httpcore.ConnectTimeout(f"no connection within {limit_s:g} s")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)


class EndpointStream(httpcore.AsyncNetworkStream):
    """A stream that is read in small pieces, and whose HTTP/2 frames pass a FrameFilter.

    `retire` is called when no further request may begin on it.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream, retire: Callable[[], None]) -> None:
        self._stream = stream
        self._retire = retire
        self._frames: FrameFilter | None = None
        self._reading = trio.CancelScope()

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
    ) -> bytes:
        """Read a piece. Raises TooManyFrames."""
        size = min(max_bytes, _READ_BYTES_MAX)
        while self._frames is not None:
            if refusals := self._frames.take_refusals():
                return refusals
            data: bytes | None = None
            with trio.CancelScope() as self._reading:
                data = await self._stream.read(size, timeout)
            if data == b"":
                return self._frames.take_refusals()
            if data and (kept := self._frames.received(data)):
                return kept
        return await self._stream.read(size, timeout)

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
    ) -> None:
        """Write. The first bytes show which protocol is used."""
        if self._frames is None and buffer.startswith(_HTTP2_BEGINS):
            self._frames = FrameFilter(self._retire)
        if self._frames is not None:
            kept = self._frames.sent(buffer)
            if kept is not buffer:
                # The reader has to learn what is refused.
                self._reading.cancel()
            if not kept:
                return
            buffer = kept
        is_whole = False
        try:
            await self._stream.write(buffer, timeout)
            is_whole = True
        finally:
            if not is_whole and self._frames is not None:
                # The peer lacks frames that h2 has counted as written, so later ones would be
                # invalid.
                self._retire()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        """The same stream inside TLS."""
        secured = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return EndpointStream(secured, self._retire)

    def get_extra_info(self, info: str) -> Any:
        """The stream's info of this name."""
        return self._stream.get_extra_info(info)
