"""How much CPU the process may use, and has used: the one place that asks the system for it."""

import os

from hermes_actors.runtime.cpu_files import CpuFiles
from hermes_actors.runtime.cpu_share import CpuShare


class ProcessCpu:
    """The process on its machine. `cores` may be told; less may be left of them."""

    def __init__(self, cores: float = 0.0, files: CpuFiles | None = None) -> None:
        """0: one, or less where the process is not let use one whole: a node runs in one thread,
        and is not worth more on a machine of many cores.
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


class StillCpu:
    """One core, of which nothing is used: for a simulation, where time is not the machine's."""

    cores = 1.0

    def used_s(self) -> float:
        """Nothing."""
        return 0.0

    def available(self, now_s: float) -> float:
        """All of it."""
        return 1.0


def _usable() -> int:
    # Not everywhere: macOS has no affinity.
    ask = getattr(os, "sched_getaffinity", None)
    return len(ask(0)) if ask is not None else os.cpu_count() or 1
