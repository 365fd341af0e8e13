"""Ports that nobody uses now, and that the kernel gives to no client later."""

import random
import socket

from hermes_local.failures import LaunchFailed

# Below 32768 Linux takes no ports for outgoing connections: a port from there, free while a
# killed process is down, may be some client's when it starts again.
FIRST = 12_000
LAST = 32_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` free ports in a row. Raises LaunchFailed when there are none."""
    for _ in range(1_000):
        first = random.randrange(FIRST, LAST - count)
        ports = list(range(first, first + count))
        if all(is_free(port, host) for port in ports):
            return ports
    raise LaunchFailed(f"there are no {count} free ports in a row from {FIRST} to {LAST} on {host}")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    try:
        # It binds as servers do: what is left of ended connections does not count.
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True
