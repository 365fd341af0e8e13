"""The HTTP/1.1 sender's network: asyncio connections on the host loop, TLS included."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from hermes_actors.consumer.http1_pool import Http1Sender, PooledConnection, PoolLimits, Wire
from hermes_actors.consumer.sender import Origin


class AsyncioNet:
    """Connections of the running asyncio (or uvloop) loop. Make it on the loop's thread."""

    def __init__(
        self, *, connect_timeout_s: float = 15.0, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` serves https origins; None: the machine's trust store, host names verified."""
        self._loop = asyncio.get_running_loop()
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._dials: set[asyncio.Task[None]] = set()
        self.now_s = self._loop.time

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code has returned."""
        self._loop.call_soon(callback)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call once, after the delay."""
        self._loop.call_later(delay_s, callback)

    def dial(self, connection: PooledConnection, origin: Origin) -> None:
        """Begin to connect."""
        task = self._loop.create_task(self._connect(connection, origin))
        # The loop keeps weak references only.
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    def close(self) -> None:
        """Break off connections that are being made."""
        for task in list(self._dials):
            task.cancel()

    async def _connect(self, connection: PooledConnection, origin: Origin) -> None:
        protocol = _Socket(connection)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._loop.create_connection(
                    lambda: protocol,
                    origin.host,
                    origin.port,
                    ssl=self._tls_context() if origin.scheme == "https" else None,
                )
        except TimeoutError:
            connection.dial_failed(f"{origin}: no connection within {self._connect_timeout_s:g} s")
        # ValueError: names that cannot be encoded, certificates that cannot be read.
        except (OSError, ValueError) as error:
            connection.dial_failed(f"{origin}: {error}")

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Socket(asyncio.Protocol):
    """Turns the loop's callbacks into the connection's."""

    def __init__(self, connection: PooledConnection) -> None:
        self._connection = connection
        # Straight to the connection: this is called for each answer.
        self.data_received = connection.received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        plain = wire.get_extra_info("socket")
        if plain is not None and plain.family in (socket.AF_INET, socket.AF_INET6):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.opened(cast("Wire", wire))

    def eof_received(self) -> None:
        self._connection.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.ended(str(exc) if exc else "")


@asynccontextmanager
async def open_http1_sender(
    limits: PoolLimits,
    *,
    connect_timeout_s: float = 15.0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Http1Sender]:
    """A sender on the running host loop (also from trio as its guest), closed after the block."""
    net = AsyncioNet(connect_timeout_s=connect_timeout_s, tls=tls)
    sender = Http1Sender(net, limits)
    try:
        yield sender
    finally:
        sender.close()
        net.close()
