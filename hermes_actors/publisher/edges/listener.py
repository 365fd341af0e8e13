"""Listening sockets with their TLS, and the connections that were accepted there."""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from hermes_actors.config import FrontendConfig, TlsConfig
from hermes_actors.errors import StartupError

SWEEP_S = 0.2
"""How often a listener looks after its connections."""
LEAVE_S = 0.5
"""How long a connection of a listener that ends may idle before it is closed: a request that is on
its way by then is answered, after which its client moves on.
"""

_BACKLOG = 4_096
_logger = logging.getLogger(__name__)


class PortUnusable(StartupError):
    """Another port would do, and the message ends by asking for one. `field` is the one to set."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class Connection(Protocol):
    """A connection that a listener looks after. `due_s`: it need not be looked at before."""

    due_s: float

    def sweep(self, now_s: float) -> None:
        """End what has had its time."""

    def abort(self) -> None:
        """Close at once, whatever is under way."""

    def leave(self, now_s: float) -> None:
        """Prepare for the listener's end: one more request is begun, if it comes soon. It may be on
        its way, and a client could not tell what became of it.
        """


class Listener:
    """A plain address, and one with TLS if there is a certificate, bound when made; and what has
    been accepted there, all of which one sweep looks after.

    `tls_port` is None without a certificate. `field` names the setting that a port in use is
    reported under. Raises StartupError when an address cannot be bound or a certificate cannot be
    read.
    """

    def __init__(self, config: FrontendConfig, field: str, tick: Callable[[float], None]) -> None:
        """`tick` is told the monotonic time before each sweep."""
        self.connections: dict[Connection, None] = {}
        self._tick = tick
        self._is_ending = False
        self._all_gone: asyncio.Event | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._free = config.connections_max
        self._per_address_max = config.connections_per_address_max or config.connections_max
        self._by_address: Counter[str] = Counter()
        self._bind(config, field)

    def _bind(self, config: FrontendConfig, field: str) -> None:
        self._host, self._field = config.host, field
        section = field.rpartition(".")[0] + ".tls"
        self._tls = _tls_context(config, section) if config.tls.certificate_file else None
        self._handshake_timeout_s = config.head_timeout_ms / 1_000
        self._servers: list[asyncio.Server] = []
        self._sockets = [_bind(config, config.port, field)]
        self.port = _port_of(self._sockets[0])
        self.tls_port: int | None = None
        if self._tls is not None:
            try:
                self._sockets.append(_bind(config, config.tls.port, f"{section}.port"))
            except StartupError:
                self._sockets[0].close()
                raise
            self.tls_port = _port_of(self._sockets[1])

    async def start(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections from now on, each with a protocol of its own; on the host loop.

        Raises PortUnusable when another process took the port after it had been bound here.
        """
        self._loop = loop = asyncio.get_running_loop()
        self._tick(loop.time())
        for each in self._sockets:
            try:
                # uvloop does not say when this fails.
                each.listen(_BACKLOG)
            except OSError as error:
                raise _failure(self._host, _port_of(each), self._field, error) from error
        for each, tls in zip(self._sockets, (None, self._tls), strict=False):
            wait_s = None if tls is None else self._handshake_timeout_s
            server = await loop.create_server(
                make, sock=each, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=wait_s
            )
            self._servers.append(server)
        self._sweeper = loop.create_task(self._sweep())

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let the requests under way end for up to `grace_s`, close all."""
        for server in self._servers:
            server.close()
        if self._sweeper is None:
            for each in self._sockets:
                each.close()
            return
        self._is_ending = True
        for connection in list(self.connections):
            connection.leave(self._loop.time())
        if self.tls_port is not None:
            # Connections are known when their handshake has ended.
            await asyncio.sleep(min(LEAVE_S, grace_s))
        await self._wait_all_gone(grace_s)
        self._sweeper.cancel()
        await asyncio.wait([self._sweeper])
        for connection in list(self.connections):
            connection.abort()
        await self._wait_all_gone(grace_s)

    def take_place(self, address: str) -> bool:
        """A place for a connection from this address; False when there is none."""
        if not self._free or self._by_address[address] >= self._per_address_max:
            return False
        self._free -= 1
        self._by_address[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """Free the place of a connection from this address that has ended."""
        self._free += 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def add(self, connection: Connection) -> None:
        """Look after it until it is removed."""
        self.connections[connection] = None
        if self._is_ending:
            connection.leave(self._loop.time())

    def remove(self, connection: Connection) -> None:
        """Look no more after a connection that has ended, or is another's."""
        del self.connections[connection]
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()

    def sweep(self, now_s: float) -> None:
        """Look after the times of all connections that are due."""
        self._tick(now_s)
        for each in [each for each in self.connections if each.due_s < now_s]:
            try:
                each.sweep(now_s)
            except Exception:
                # Without the sweep no connection of the node would have a time limit any more.
                _logger.exception("A connection's times cannot be looked after; it is closed")
                each.abort()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep(self._loop.time())

    async def _wait_all_gone(self, limit_s: float) -> None:
        if self.connections:
            self._all_gone = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), limit_s)


def address_of(transport: asyncio.BaseTransport) -> str:
    """The client's address without its port; "" for what has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def _tls_context(config: FrontendConfig, section: str) -> ssl.SSLContext:
    tls = config.tls
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # As RFC 9113, 9.2, asks for.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM")
    context.options = ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"{section}: {tls.certificate_file} and {tls.key_file} cannot be used: {error}; "
            "both are PEM files, the key that of the certificate"
        ) from error
    _trust_clients(context, tls, section)
    return context


def _trust_clients(context: ssl.SSLContext, tls: TlsConfig, section: str) -> None:
    """Let the context ask clients for certificates, as `section` says. Raises StartupError."""
    if tls.client_auth == "not_requested":
        return
    try:
        context.load_verify_locations(tls.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"{section}.client_ca_file: {tls.client_ca_file} cannot be used: {error}; it is a "
            "PEM file of certificates"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED if tls.client_auth == "required" else ssl.CERT_OPTIONAL


def _bind(config: FrontendConfig, port: int, field: str) -> socket.socket:
    """A bound TCP socket, not yet listening; port 0 takes any free one.

    `field` names the configuration's host and port in the error. Raises PortUnusable for a port
    that is taken or not permitted, else StartupError.
    """
    host = config.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if config.reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setblocking(False)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _failure(host, port, field, error) from error
    return listener


def _port_of(listener: socket.socket) -> int:
    """The port that a bound socket has."""
    port: int = listener.getsockname()[1]
    return port


def _failure(host: str, port: int, field: str, error: OSError) -> StartupError:
    where = f"{field}: cannot listen on {host} port {port}"
    if error.errno == errno.EADDRINUSE:
        return PortUnusable(f"{where}: another process does; stop it or choose another port", field)
    if error.errno == errno.EACCES:
        return PortUnusable(
            f"{where}: not permitted; ports below 1024 need a privilege, choose another port", field
        )
    return StartupError(f"{where}: {os.strerror(error.errno) if error.errno else error}")
