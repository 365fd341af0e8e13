"""How much CPU the process may use, and has used: the one place that asks the system for it."""

import os
import threading
import time

from hermes_actors.runtime.cpu_files import CpuFiles, scheduled
from hermes_actors.runtime.cpu_share import CpuShare


class ProcessCpu:
    """The process on its machine. `cores` may be told; less may be left of them."""

    def __init__(self, cores: float = 0.0, files: CpuFiles | None = None) -> None:
        """Take `cores` as told; 0: one, or less where the process is not let use one whole. A node
        runs in one thread, and is not worth more on a machine of many cores.
        """
        self._files = files or CpuFiles()
        # What is let be used may become more again, up to one.
        self._share = CpuShare(cores or min(1.0, _usable()))
        self._cores = cores or min(1.0, _usable(), self._files.quota())
        self._left = self._cores

    @property
    def cores(self) -> float:
        """How many it may use, as was told or found at first."""
        return self._cores

    def used_s(self) -> float:
        """The CPU time that it has used, in seconds."""
        times = os.times()
        return times.user + times.system

    def available(self, now_s: float) -> float:
        """How many cores the machine leaves it, measured: other processes and limits take the rest.
        To be asked every few seconds by the thread that the process runs in.
        """
        sample = self._files.sample(now_s, self.used_s())
        if sample is not None:
            self._left = self._share.update(sample)
        return self._left


class ThreadCpu:
    """The thread that makes it, to be looked at from any other while it runs."""

    def __init__(self) -> None:
        # Held open, for it is asked many times a second.
        try:
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._scheduled: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._scheduled = None
        # Not everywhere: macOS has no such clock, and there the process' counts for the thread's.
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._clock: int | None = None if clock_of is None else clock_of(threading.get_ident())

    def used_s(self) -> float:
        """The CPU time that it has used, in seconds."""
        return self.process_used_s() if self._clock is None else time.clock_gettime(self._clock)

    def process_used_s(self) -> float:
        """The CPU time that all threads of the process have used, in seconds."""
        return time.process_time()

    def waited_s(self) -> float:
        """For how long it could have run and had no CPU; 0 where the system does not say."""
        if self._scheduled is None:
            return 0.0
        try:
            found = scheduled(os.pread(self._scheduled, 100, 0).decode("ascii"))
        except OSError:
            return 0.0
        return 0.0 if found is None else found[1]

    def close(self) -> None:
        """Close the system's file: nobody looks at the thread any more."""
        if self._scheduled is not None:
            os.close(self._scheduled)
            self._scheduled = None


class StillCpu:
    """One core, of which nothing is used: for a simulation, where time is not the machine's."""

    cores = 1.0

    def used_s(self) -> float:
        """Give 0: no CPU time is ever used."""
        return 0.0

    def available(self, now_s: float) -> float:
        """Give 1: the whole core is always left."""
        return 1.0


def _usable() -> int:
    # Not everywhere: macOS has no affinity.
    ask = getattr(os, "sched_getaffinity", None)
    return len(ask(0)) if ask is not None else os.cpu_count() or 1
