"""Processes identified by id and start time, so that a reused id is never mistaken."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_POLL_S = 0.02
# Ended but not waited for by its parent; and gone.
_ENDED = ("Z", "X")


@dataclass(frozen=True)
class ProcessId:
    """A process, possibly started by another shell. `began` is in ticks since boot."""

    pid: int
    began: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        """The process with this id. Raises ProcessLookupError."""
        found = _stat(pid)
        if found is None:
            raise ProcessLookupError(pid)
        return cls(pid, found.began)

    @property
    def is_running(self) -> bool:
        """True if it still runs; a process that has ended but was not waited for does not."""
        found = _stat(self.pid)
        return found is not None and found.began == self.began and found.state not in _ENDED

    @property
    def is_paused(self) -> bool:
        """True if it was stopped by a signal."""
        found = _stat(self.pid)
        return found is not None and found.state == "T"

    @property
    def rss_mb(self) -> float:
        """Its resident memory in MiB; 0 if it has ended."""
        found = _stat(self.pid)
        return found.rss_pages * os.sysconf("SC_PAGE_SIZE") / 1_048_576 if found else 0.0

    def wait_ended(self, timeout_s: float) -> bool:
        """True if it has ended, False after the time-out."""
        deadline_s = time.monotonic() + timeout_s
        while self.is_running:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


class _Stat(NamedTuple):
    state: str
    began: int
    rss_pages: int


def _stat(pid: int) -> _Stat | None:
    """The kernel's data about a process; None if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain anything, including parentheses; numbers follow its last one.
    state, *fields = stat.rpartition(")")[2].split()
    return _Stat(state, int(fields[18]), int(fields[20]))


class Tether:
    """Kills its processes when this process ends, however it ends.

    It is a separate process at the other end of a pipe. The kernel's parent-death signal would do
    the same, but is sent already when the *thread* ends that started the child.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self, process: ProcessId) -> None:
        """Kill this process, too, when this one ends."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(f"{process.pid} {process.began}\n".encode())
        self._process.stdin.flush()

    def end(self) -> None:
        """Kill its processes that still run, and forget them."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


def _kill_held() -> None:
    """Wait for the end of the pipe, then kill the processes named in it."""
    held = [ProcessId(*map(int, line.split())) for line in sys.stdin]
    for process in reversed(held):
        if process.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    _kill_held()
