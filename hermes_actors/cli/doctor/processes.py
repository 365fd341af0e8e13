"""Other processes of this machine, as /proc tells of them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"


def open_in(process: Path) -> Iterator[str]:
    """The files and sockets that a process has open, by its folder in /proc. Blocks.

    Raises OSError if it is another user's, or has ended.
    """
    for each in (process / "fd").iterdir():
        # One that it closes meanwhile does not hide the others.
        with contextlib.suppress(OSError):
            yield str(each.readlink())


def listeners(port: int, proc: Path) -> dict[int, str] | None:
    """The processes that listen on a port, by their names; None where that cannot be seen. Blocks.

    `proc`: /proc.
    """
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (proc / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    found: dict[int, str] = {}
    for process in proc.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if not inodes.isdisjoint(open_in(process)):
                    found[int(process.name)] = _name_of(process)
    return found or None


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
