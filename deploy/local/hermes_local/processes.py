"""Processes that are known for sure: by their id and the moment they began, so never a stranger."""

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.02
# Ended, but not yet waited for by its parent; and gone.
_ENDED = ("Z", "X")


@dataclass(frozen=True)
class ProcessId:
    """A process, also one that another shell started. `began` is in ticks since the boot."""

    pid: int
    began: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        """The process that has this id now. Raises ProcessLookupError."""
        found = _state(pid)
        if found is None:
            raise ProcessLookupError(pid)
        return cls(pid, found[1])

    @property
    def is_running(self) -> bool:
        """Whether it still is; one that has ended and was not waited for is not."""
        found = _state(self.pid)
        return found is not None and found[1] == self.began and found[0] not in _ENDED

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped by a signal, to go on later."""
        found = _state(self.pid)
        return found is not None and found[0] == "T"

    @property
    def rss_mb(self) -> float:
        """The memory that it holds now, in MiB; 0 when it has ended."""
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return next(int(each.split()[1]) for each in lines if "VmRSS:" in each) / 1_024
        return 0.0

    def send(self, signal_number: int) -> None:
        """Send it a signal, if it still is."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def wait_ended(self, timeout_s: float) -> bool:
        """True when it has ended, False when the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while self.is_running:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


def _state(pid: int) -> tuple[str, int] | None:
    """(its state's letter, when it began); None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold anything, parentheses too; what follows its last one is numbers.
    state, *fields = stat.rpartition(")")[2].split()
    return state, int(fields[18])


class Tether:
    """Kills what it was told of when this process ends, in whatever way, unless let go before.

    It is a process of its own at the other end of a pipe: the kernel's parent-death signal would
    do the same, but fires already when the *thread* ends that started the child.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(Path(__file__).with_name("tether.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def hold(self, process: ProcessId) -> None:
        """Kill this one too, should it come to that."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{process.pid} {process.began}\n".encode())
        self._process.stdin.flush()

    def let_go(self) -> None:
        """Kill nothing, and end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"done\n")
            self._process.stdin.close()
        self._process.wait()
