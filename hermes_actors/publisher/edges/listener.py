"""Listening sockets with their TLS, and how many connections they take."""

import asyncio
import errno
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from hypercorn.config import Config

from hermes_actors.config import FrontendConfig, TlsConfig
from hermes_actors.errors import StartupError

SWEEP_S = 0.2
"""How often a listener looks after its connections."""
LEAVE_S = 0.5
"""How long a connection of a listener that ends may idle before it is closed: a request that is on
its way by then is answered, after which its client moves on.
"""

_BACKLOG = 4_096


class PortUnusable(StartupError):
    """Another port would do, and the message ends by asking for one. `field` is the one to set."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class Listener:
    """A plain address, and one with TLS if there is a certificate; both bound when made.

    `tls_port` is None without a certificate. `field` names the setting that a port in use is
    reported under. Raises StartupError when an address cannot be bound or a certificate cannot be
    read.
    """

    def __init__(self, config: FrontendConfig, field: str) -> None:
        section = field.rpartition(".")[0] + ".tls"
        self._tls = _tls_context(config, section) if config.tls.certificate_file else None
        self._handshake_timeout_s = config.head_timeout_ms / 1_000
        self._servers: list[asyncio.Server] = []
        self._socket = _bind(config.host, config.port, field=field, reuse_port=config.reuse_port)
        self.port = _port_of(self._socket)
        self.tls_port: int | None = None
        if self._tls is not None:
            try:
                self._tls_socket = _bind(
                    config.host,
                    config.tls.port,
                    field=f"{section}.port",
                    reuse_port=config.reuse_port,
                )
            except StartupError:
                self._socket.close()
                raise
            self.tls_port = _port_of(self._tls_socket)

    async def start(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections from now on, each with a protocol of its own; on the host loop."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(make, sock=self._socket, backlog=_BACKLOG))
        if self._tls is not None:
            self._servers.append(
                await loop.create_server(
                    make,
                    sock=self._tls_socket,
                    backlog=_BACKLOG,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._handshake_timeout_s,
                )
            )

    def stop(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()
        if not self._servers:
            self._socket.close()
            if self.tls_port is not None:
                self._tls_socket.close()


class Places:
    """How many connections there may be, in all and of one address."""

    def __init__(self, config: FrontendConfig) -> None:
        self._free = config.connections_max
        self._per_address_max = config.connections_per_address_max or config.connections_max
        self._by_address: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """A place for a connection from this address; False when there is none."""
        if not self._free or self._by_address[address] >= self._per_address_max:
            return False
        self._free -= 1
        self._by_address[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """The connection has ended."""
        self._free += 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def address_of(transport: asyncio.BaseTransport) -> str:
    """The client's address without its port; "" for what has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def _tls_context(config: FrontendConfig, section: str) -> ssl.SSLContext:
    tls = config.tls
    ours = Config()
    ours.certfile, ours.keyfile = tls.certificate_file, tls.key_file
    try:
        context = ours.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"{section}: {tls.certificate_file} and {tls.key_file} cannot be used: {error}; "
            "both are PEM files, the key that of the certificate"
        ) from error
    assert context is not None, "there is a certificate"
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


def _bind(host: str, port: int, *, field: str, reuse_port: bool = False) -> socket.socket:
    """A bound TCP socket, not yet listening; port 0 takes any free one.

    `field` names the configuration's host and port in the error. Raises PortUnusable for a port
    that is taken or not permitted, else StartupError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if reuse_port:
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
