"""Binds listening sockets, and identifies the client of a connection."""

import asyncio
import errno
import os
import socket

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import StartupError
from hermes_actors.publisher.edges.tls import ListenerTls


class PortUnusable(StartupError):
    """The port cannot be used, but another would do; the message ends by suggesting one. `field` is
    the setting to change.
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


BACKLOG = 4_096
"""Maximum number of connections that wait to be accepted."""

Bound = list[tuple[socket.socket, ListenerTls | None]]
"""Sockets, each with its TLS if it speaks that."""


def bound(config: FrontendConfig, field: str) -> Bound:
    """Bind a plain address, unless there is TLS only, and one with TLS if there is a certificate;
    neither listens yet.

    `field` names the setting that errors mention. Raises StartupError if an address cannot be bound
    or a certificate cannot be read.
    """
    section = field.rpartition(".")[0] + ".tls"
    tls = ListenerTls(config.tls, section) if config.tls.certificate_file else None
    found: Bound = [] if config.tls.only else [(_bind(config, config.port, field), None)]
    if tls is not None:
        try:
            found.append((_bind(config, config.tls.port, f"{section}.port"), tls))
        except StartupError:
            for each, _ in found:
                each.close()
            raise
    return found


def listen(sockets: Bound, field: str) -> None:
    """Start listening. Raises PortUnusable if another process took the port after it was bound
    here, an error that uvloop does not report.
    """
    for each, _tls in sockets:
        try:
            each.listen(BACKLOG)
        except OSError as error:
            host, port = each.getsockname()[:2]
            raise _failure(host, port, field, error) from error


def port_of(listener: socket.socket) -> int:
    """The port of a bound socket."""
    port: int = listener.getsockname()[1]
    return port


def address_of(transport: asyncio.BaseTransport) -> str:
    """The client's address without its port; empty string if it has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def _bind(config: FrontendConfig, port: int, field: str) -> socket.socket:
    """Bind a TCP socket, which does not listen yet; port 0 takes any free port.

    `field` names the setting that errors mention. Raises PortUnusable if the port is taken or not
    permitted, else StartupError.
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


def _failure(host: str, port: int, field: str, error: OSError) -> StartupError:
    where = f"{field}: cannot listen on {host} port {port}"
    if error.errno == errno.EADDRINUSE:
        return PortUnusable(f"{where}: another process does; stop it or choose another port", field)
    if error.errno == errno.EACCES:
        return PortUnusable(
            f"{where}: not permitted; ports below 1024 need a privilege, choose another port", field
        )
    return StartupError(f"{where}: {os.strerror(error.errno) if error.errno else error}")
