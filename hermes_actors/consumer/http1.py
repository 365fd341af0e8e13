"""The HTTP/1.1 sender's network: asyncio connections on the host loop, TLS included.

Each connection goes to an address that the guard has allowed, after the look-up and with no other
look-up behind it, while Host, SNI and the certificate's name stay the endpoint's.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

from hermes_actors.consumer.http1_connection import PooledConnection, Wire
from hermes_actors.consumer.http1_pool import Http1Sender, PoolLimits
from hermes_actors.consumer.resolving import Found, Resolver, in_turns
from hermes_actors.consumer.sender import Failure, Origin
from hermes_actors.security.address_guard import AddressGuard

_NEXT_ADDRESS_S = 0.25
"""How long an address is waited for before the next one is tried beside it (RFC 8305)."""

_ADDRESSES_MAX = 8


class AsyncioNet:
    """Connections of the running asyncio (or uvloop) loop. Make it on the loop's thread."""

    def __init__(
        self,
        *,
        guard: AddressGuard,
        connect_timeout_s: float = 15.0,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        """`tls` serves https origins; None: the machine's trust store, host names verified."""
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._dials: set[asyncio.Task[None]] = set()
        self.now_s = self._loop.time
        self.resolver = resolver or Resolver(self._loop.call_soon_threadsafe, self.now_s)

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
        within = f"within {self._connect_timeout_s:g} s"
        missing = "no address was found"
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                addresses = await self._addresses(origin.host)
                refusals = [self._guard.refusal(origin.host, each) for each in addresses]
                allowed = [each for each, no in zip(addresses, refusals, strict=True) if not no]
                if not allowed:
                    connection.dial_failed(refusals[0], Failure.FORBIDDEN)
                    return
                missing = "no connection"
                plain = await self._first_of(in_turns(allowed)[:_ADDRESSES_MAX], origin.port)
                missing = "no agreement on TLS"
                await self._open(connection, origin, plain)
        except TimeoutError:
            connection.dial_failed(f"{origin}: {missing} {within}")
        # ValueError: names that cannot be encoded, certificates that cannot be read.
        except (OSError, ValueError) as error:
            connection.dial_failed(f"{origin}: {error}")

    async def _addresses(self, host: str) -> Sequence[str]:
        answer: asyncio.Future[Found] = self._loop.create_future()

        def on_found(found: Found) -> None:
            if not answer.done():
                answer.set_result(found)

        self.resolver.resolve(host, on_found)
        found = await answer
        if isinstance(found, OSError):
            # Each waiter raises one of its own: a shared one would collect their tracebacks.
            raise OSError(*found.args)
        if not found:
            raise OSError("the name has no address")
        return found

    async def _first_of(self, addresses: Sequence[str], port: int) -> socket.socket:
        """The first connection that stands; each further address is tried beside those before."""
        if len(addresses) == 1:
            return await self._to(addresses[0], port)
        left = list(addresses)
        trying: set[asyncio.Task[socket.socket]] = set()
        problem: BaseException | None = None
        try:
            while left or trying:
                if left:
                    trying.add(self._loop.create_task(self._to(left.pop(0), port)))
                ended, trying = await asyncio.wait(
                    trying,
                    timeout=_NEXT_ADDRESS_S if left else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                stands = [task for task in ended if task.exception() is None]
                trying.update(stands[1:])
                if stands:
                    return stands[0].result()
                problem = problem or next((task.exception() for task in ended), None)
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_close_unused)
        assert problem is not None, "no address at all"
        raise problem

    async def _to(self, address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(plain, (address, port))
        except OSError as error:
            plain.close()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"{reason} ({address})") from error
        except BaseException:
            plain.close()
            raise
        return plain

    async def _open(
        self, connection: PooledConnection, origin: Origin, plain: socket.socket
    ) -> None:
        try:
            is_tls = origin.scheme == "https"
            await self._loop.create_connection(
                lambda: _Socket(connection),
                sock=plain,
                ssl=self._tls_context() if is_tls else None,
                server_hostname=origin.host if is_tls else None,
                ssl_handshake_timeout=self._connect_timeout_s if is_tls else None,
            )
        except BaseException:
            plain.close()
            raise

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def _close_unused(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


class _Socket(asyncio.Protocol):
    """Turns the loop's callbacks into the connection's."""

    def __init__(self, connection: PooledConnection) -> None:
        self._connection = connection
        # Straight to the connection: this is called for each answer.
        self.data_received = connection.received  # type: ignore[method-assign]
        self.pause_writing = connection.paused  # type: ignore[method-assign]
        self.resume_writing = connection.resumed  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.opened(cast("Wire", transport))

    def eof_received(self) -> None:
        self._connection.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.ended(str(exc) if exc else "")


@asynccontextmanager
async def open_http1_sender(
    limits: PoolLimits,
    *,
    guard: AddressGuard,
    connect_timeout_s: float = 15.0,
    tls: ssl.SSLContext | None = None,
    resolver: Resolver | None = None,
) -> AsyncIterator[Http1Sender]:
    """A sender on the running host loop (also from trio as its guest), closed after the block."""
    net = AsyncioNet(
        guard=guard,
        connect_timeout_s=connect_timeout_s,
        tls=tls,
        resolver=resolver,
    )
    sender = Http1Sender(net, limits)
    try:
        yield sender
    finally:
        sender.close()
        net.close()
