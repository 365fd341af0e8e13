"""Which process of this machine is at the other end of a connection over the loopback."""

from collections.abc import Iterable
from pathlib import Path

_UNKNOWN = -1


def process_of(port: int, processes: Iterable[int]) -> int:
    """The one of these processes whose socket has that port of 127.0.0.1; -1 if none has."""
    name = f"socket:[{_inode_of(port)}]"
    for process in processes:
        if any(link == name for link in _links(process)):
            return process
    return _UNKNOWN


def _inode_of(port: int) -> str:
    local = f"0100007F:{port:04X}"
    with Path("/proc/net/tcp").open() as table:
        for line in table:
            fields = line.split()
            if fields[1] == local:
                return fields[9]
    return ""


def _links(process: int) -> Iterable[str]:
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
