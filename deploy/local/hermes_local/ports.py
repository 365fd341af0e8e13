"""Ports that nobody uses now, and that the kernel gives to no client later."""

import os
import random
import socket
import tempfile
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.files import locked

# Below 32768 Linux takes no ports for outgoing connections: a port from there, free while a
# killed process is down, may be some client's when it starts again.
FIRST = 12_000
LAST = 32_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` free ports in a row. Raises LaunchFailed when there are none.

    They are taken in turn by all processes of this user: whoever asks meanwhile gets later ones,
    so a port stays free until the process that it is for listens there.
    """
    cursor = Path(tempfile.gettempdir(), f"hermes-{os.getuid()}-ports")
    with locked(cursor):
        text = cursor.read_text()
        first = int(text) if text.isdecimal() else random.randrange(FIRST, LAST)
        for _ in range(FIRST, LAST):
            if not FIRST <= first <= LAST - count:
                first = FIRST
            ports = list(range(first, first + count))
            if all(is_free(port, host) for port in ports):
                cursor.write_text(str(ports[-1] + 1))
                return ports
            first += 1
    raise LaunchFailed(f"there are no {count} free ports in a row from {FIRST} to {LAST} on {host}")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    try:
        # It binds as servers do: what is left of ended connections does not count.
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
