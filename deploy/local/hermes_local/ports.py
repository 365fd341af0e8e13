"""Finds free ports that the kernel will not give to clients."""

import os
import random
import socket
import tempfile
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.files import locked

# Linux takes no ports below 32768 for outgoing connections. A higher port may belong to a client
# when a killed process starts again.
FIRST = 12_000
LAST = 32_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` consecutive free ports. Raises LaunchFailed if there are none.

    All processes of this user take ports in turn, so a returned port stays free until its process
    listens.
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
    """True if a server could listen there now."""
    try:
        # Binds as servers do, so remains of closed connections do not count.
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
