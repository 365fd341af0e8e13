"""Which processes of this machine are at the other ends of connections over the loopback."""

from collections.abc import Collection, Iterator
from pathlib import Path


def processes_of(
    ports: Collection[int], server_port: int, processes: Collection[int]
) -> dict[int, int]:
    """For each of these ports of 127.0.0.1 the one of these processes that is connected from it to
    the server; only those that one is. Two processes may have the same port, to other servers.
    All in one look, for a look at the system's tables takes milliseconds.
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
        # It has ended.
        return
    for file in files:
        try:
            yield str(file.readlink())
        except OSError:
            continue
