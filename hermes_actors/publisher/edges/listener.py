"""Binds listening sockets, with TLS if configured, and identifies the client of a connection."""

import asyncio
import errno
import os
import socket
import ssl

from hermes_actors.config import FrontendConfig, TlsConfig
from hermes_actors.errors import StartupError


class PortUnusable(StartupError):
    """The port cannot be used, but another would do; the message ends by suggesting one. `field` is
    the setting to change.
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


BACKLOG = 4_096
"""Maximum number of connections that wait to be accepted."""

Bound = list[tuple[socket.socket, ssl.SSLContext | None]]
"""Sockets, each with its TLS context if it speaks TLS."""


def bound(config: FrontendConfig, field: str) -> Bound:
    """Bind a plain address, and one with TLS if there is a certificate; neither listens yet.

    `field` names the setting that errors mention. Raises StartupError if an address cannot be bound
    or a certificate cannot be read.
    """
    section = field.rpartition(".")[0] + ".tls"
    tls = _tls_context(config, section) if config.tls.certificate_file else None
    found: Bound = [(_bind(config, config.port, field), None)]
    if tls is not None:
        try:
            found.append((_bind(config, config.tls.port, f"{section}.port"), tls))
        except StartupError:
            found[0][0].close()
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


def _tls_context(config: FrontendConfig, section: str) -> ssl.SSLContext:
    tls = config.tls
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # As required by RFC 9113, 9.2.
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
    """Set up the verification of client certificates as `section` configures. Raises
    StartupError.
    """
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
