"""The trace of a run, line by line, and its digest. Runs with equal digests had equal histories."""

import hashlib
from collections import deque
from collections.abc import Callable

import trio

KEPT_LINES = 50


class Trace:
    """The events of one run in order. Keeps the last lines; `sink` gets every line at once."""

    def __init__(
        self, sink: Callable[[str], None] | None = None, lines_kept: int = KEPT_LINES
    ) -> None:
        self._digest = hashlib.sha256()
        self._last: deque[str] = deque(maxlen=lines_kept)
        self._sink = sink
        self.count = 0

    def note(self, where: str, what: str) -> None:
        """Add one event, stamped with the virtual time."""
        line = f"{trio.current_time():10.6f} {where:<12} {what}"
        self._digest.update(line.encode("utf-8", "backslashreplace") + b"\n")
        self._last.append(line)
        self.count += 1
        if self._sink is not None:
            self._sink(line)

    def remark(self, where: str, what: str) -> None:
        """Add a line for people, which is not part of the digest."""
        line = f"{trio.current_time():10.6f} {where:<12} {what}"
        self._last.append(line)
        if self._sink is not None:
            self._sink(line)

    @property
    def digest(self) -> str:
        """SHA-256 of all lines so far, in hexadecimal."""
        return self._digest.hexdigest()

    def last_lines(self) -> list[str]:
        """The last lines, oldest first."""
        return list(self._last)
