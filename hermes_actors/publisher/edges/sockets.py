"""Listening sockets: bound before anything is served, so that a taken port is one clear line."""

import errno
import os
import socket

from hermes_actors.errors import StartupError


class PortUnusable(StartupError):
    """Another port would do, and the message ends by asking for one. `field` is the one to set."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def bind(host: str, port: int, *, field: str, reuse_port: bool = False) -> socket.socket:
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


def port_of(listener: socket.socket) -> int:
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
