"""The HTTP/1.1 sender's network: asyncio connections on the host loop, with TLS.

Each connection goes to an IP address that the guard has allowed, without a second look-up. Host,
SNI and the certificate's name stay the endpoint's.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from hermes_actors.consumer.senders.connecting import (
    ForbiddenAddress,
    Resolver,
    allowed_addresses,
    connect_to_first,
)
from hermes_actors.consumer.senders.http1.connection import PooledConnection, Wire
from hermes_actors.consumer.senders.http1.pool import Http1Sender, PoolLimits
from hermes_actors.consumer.senders.sender import Failure, Origin
from hermes_actors.runtime.network_causes import PUSHES, TlsSettings, tls_cause
from hermes_actors.security.address_guard import AddressGuard


class AsyncioNet:
    """Connections on the running asyncio (or uvloop) loop. Create it on the loop's thread."""

    def __init__(
        self,
        *,
        guard: AddressGuard | None,
        connect_timeout_s: float = 15.0,
        tls: ssl.SSLContext | None = None,
        settings: TlsSettings = PUSHES,
        resolver: Resolver | None = None,
    ) -> None:
        """Without a `guard`, any address is allowed. `tls` is for https origins; None means the
        machine's trust store with verified host names. `settings` are named in TLS errors.
        """
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self.settings = settings
        self._dials: set[asyncio.Task[None]] = set()
        self.now_s = self._loop.time
        self.resolver = resolver or Resolver(self._loop.call_soon_threadsafe, self.now_s)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code has returned."""
        self._loop.call_soon(callback)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` once, after the delay."""
        self._loop.call_later(delay_s, callback)

    def dial(self, connection: PooledConnection, origin: Origin) -> None:
        """Start to connect."""
        task = self._loop.create_task(self._connect(connection, origin))
        # The loop keeps only weak references to tasks.
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def close(self) -> None:
        """Cancel connections being made."""
        for task in list(self._dials):
            task.cancel()

    async def _connect(self, connection: PooledConnection, origin: Origin) -> None:
        missing = "no address was found"
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                addresses = await allowed_addresses(origin, self.resolver, self._guard)
                missing = "no connection"
                await connect_to_first(
                    addresses, partial(self._to, _Race(connection, self.settings), origin)
                )
        except ForbiddenAddress as error:
            connection.dial_failed(str(error), Failure.FORBIDDEN)
        except TimeoutError:
            connection.dial_failed(f"{origin}: {missing} within {self._connect_timeout_s:g} s")
        # ValueError: names that cannot be encoded, certificates that cannot be parsed.
        except (OSError, ValueError) as error:
            connection.dial_failed(f"{origin}: {tls_cause(error, self.settings) or error}")

    async def _to(self, race: "_Race", origin: Origin, address: str) -> None:
        is_tls = origin.scheme == "https"
        try:
            # Connect by address, not by a socket of ours: after a failed write uvloop closes the
            # file under a socket object without telling it, and the object would later close
            # whatever got that file descriptor.
            await self._loop.create_connection(
                lambda: _Socket(race),
                address,
                origin.port,
                ssl=self._tls_context() if is_tls else None,
                server_hostname=origin.host if is_tls else None,
                ssl_handshake_timeout=self._connect_timeout_s if is_tls else None,
            )
        except (ssl.SSLError, ssl.CertificateError):
            raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"{reason} ({address})") from error

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Race:
    """Parallel attempts at one connection; the first to succeed wins."""

    def __init__(self, connection: PooledConnection, settings: TlsSettings) -> None:
        self.connection = connection
        self.settings = settings
        self.is_won = False


class _Socket(asyncio.Protocol):
    """Forwards the loop's callbacks to the connection."""

    def __init__(self, race: _Race) -> None:
        self._race = race
        self._connection: PooledConnection | None = None
        # Bound directly for speed: called for each answer and long request. uvloop looks them up
        # before the connection is made; a loser of the race gets no calls.
        self.data_received = race.connection.received  # type: ignore[method-assign]
        self.pause_writing = race.connection.paused  # type: ignore[method-assign]
        self.resume_writing = race.connection.resumed  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        if self._race.is_won:
            wire.abort()
            return
        self._race.is_won = True
        connection = self._connection = self._race.connection
        connection.opened(cast("Wire", wire))

    def eof_received(self) -> None:
        if self._connection is not None:
            self._connection.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            why = "" if exc is None else tls_cause(exc, self._race.settings) or str(exc)
            self._connection.ended(why)


@asynccontextmanager
async def open_http1_sender(
    limits: PoolLimits,
    *,
    guard: AddressGuard | None,
    connect_timeout_s: float = 15.0,
    tls: ssl.SSLContext | None = None,
    settings: TlsSettings = PUSHES,
    resolver: Resolver | None = None,
) -> AsyncIterator[Http1Sender]:
    """A sender on the running host loop (also from trio as its guest), closed after the block. The
    arguments are those of `AsyncioNet`.
    """
    net = AsyncioNet(
        guard=guard,
        connect_timeout_s=connect_timeout_s,
        tls=tls,
        settings=settings,
        resolver=resolver,
    )
    sender = Http1Sender(net, limits)
    try:
        yield sender
    finally:
        sender.close()
        net.close()
