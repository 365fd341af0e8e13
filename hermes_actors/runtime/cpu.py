"""Measures the CPU that the process uses, and the cores that the machine leaves for it."""

import math
import os
from pathlib import Path

from hermes_actors.runtime.cpu_share import CpuSample, CpuShare


class ProcessCpu:
    """The process on its machine, which may leave it fewer cores than configured.

    `root` is the folder with `proc` and `sys`. Without Linux' files, all cores count as available.
    """

    def __init__(self, cores: float = 0.0, root: Path = Path("/")) -> None:
        """`cores` 0 means one, or less if the process may not use a whole one. A node runs in one
        thread, so more cores do not make it faster.
        """
        self._root = root
        # A quota may be raised later, so the share refers to the whole core.
        self._share = CpuShare(cores or 1.0)
        self._cores = cores or min(1.0, self._quota())
        self._left = self._cores

    @property
    def cores(self) -> float:
        """How many cores it may use, as configured or as found at the start."""
        return self._cores

    def used_s(self) -> float:
        """The CPU time that it has used, in seconds."""
        times = os.times()
        return times.user + times.system

    def available(self, now_s: float) -> float:
        """Measure how many cores the machine leaves for it. Call it every few seconds in the
        process' main thread.
        """
        try:
            # How long this thread ran, and how long it waited for a CPU or its quota.
            told = (self._root / "proc/thread-self/schedstat").read_text("ascii")
            ran_ns, waited_ns, _ = map(int, told.split())
        except (OSError, ValueError):
            return self._left
        sample = CpuSample(now_s, ran_ns / 1e9, waited_ns / 1e9, self._quota())
        self._left = self._share.update(sample)
        return self._left

    def _quota(self) -> float:
        """How many cores its control group may use; infinite if there is no limit. Read each time,
        because the limit may change.
        """
        least = math.inf
        for group in self._groups():
            try:
                allowed, period = map(int, (group / "cpu.max").read_text("ascii").split())
            except (OSError, ValueError):
                # The file does not exist, or says "max".
                continue
            least = min(least, allowed / period)
        return least

    def _groups(self) -> list[Path]:
        """The folders of its control group and the enclosing ones. In a container it is the
        root.
        """
        mount = self._root / "sys/fs/cgroup"
        try:
            path = (self._root / "proc/self/cgroup").read_text("ascii").rpartition("::/")[2].strip()
        except (OSError, ValueError):
            path = ""
        group = mount / path
        return [mount, *(each for each in (group, *group.parents) if mount in each.parents)]


class StillCpu:
    """One unused core, for a simulation, whose time is not the machine's."""

    cores = 1.0

    def used_s(self) -> float:
        """Always 0."""
        return 0.0

    def available(self, now_s: float) -> float:
        """Always the whole core."""
        return 1.0
