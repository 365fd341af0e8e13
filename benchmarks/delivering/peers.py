"""Finds the local processes at the other ends of loopback connections."""

from collections.abc import Collection, Iterator
from pathlib import Path


def processes_of(
    ports: Collection[int], server_port: int, processes: Collection[int]
) -> dict[int, int]:
    """By port of 127.0.0.1, the one of these processes that is connected from it to the server, if
    any. Two processes may use the same port for other servers.

    Reads the system's tables once for all ports, because that takes milliseconds.
    """
    server = f"0100007F:{server_port:04X}"
    wanted = {f"0100007F:{port:04X}": port for port in ports}
    sockets: dict[str, int] = {}
    with Path("/proc/net/tcp").open() as table:
        for line in table:
            fields = line.split(None, 10)
            if fields[2] == server and fields[1] in wanted:
                sockets[f"socket:[{fields[9]}]"] = wanted[fields[1]]
    return {
        sockets[link]: process
        for process in processes
        for link in _links(process)
        if link in sockets
    }


def _links(process: int) -> Iterator[str]:
    try:
        files = list(Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        # The process has ended.
        return
    for file in files:
        try:
            yield str(file.readlink())
        except OSError:
            continue
