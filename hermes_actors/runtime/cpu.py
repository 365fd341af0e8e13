"""How much CPU the process has used, and how many cores the machine leaves it."""

import math
import os
from pathlib import Path

from hermes_actors.runtime.cpu_share import CpuSample, CpuShare


class ProcessCpu:
    """The process on its machine, which may leave it less than the cores that it was given.

    `root` is where `proc` and `sys` are. Where Linux' files are missing, all cores are left.
    """

    def __init__(self, cores: float = 0.0, root: Path = Path("/")) -> None:
        """`cores` 0: one, or less where the process may not use one whole. A node runs in one
        thread, and is not worth more on a machine of many cores.
        """
        self._root = root
        # A quota may be lifted later, so the share is of the whole core.
        self._share = CpuShare(cores or 1.0)
        self._cores = cores or min(1.0, self._quota())
        self._left = self._cores

    @property
    def cores(self) -> float:
        """How many cores it may use, as configured or found at first."""
        return self._cores

    def used_s(self) -> float:
        """The CPU time that it has used, in seconds."""
        times = os.times()
        return times.user + times.system

    def available(self, now_s: float) -> float:
        """How many cores the machine leaves it, measured. To be called every few seconds by the
        thread that the process runs in.
        """
        try:
            # For how long this thread ran, and waited for a CPU or for its quota.
            told = (self._root / "proc/thread-self/schedstat").read_text("ascii")
            ran_ns, waited_ns, _ = map(int, told.split())
        except (OSError, ValueError):
            return self._left
        sample = CpuSample(now_s, ran_ns / 1e9, waited_ns / 1e9, self._quota())
        self._left = self._share.update(sample)
        return self._left

    def _quota(self) -> float:
        """How many cores its control group may use; infinite where none is set.

        Read anew each time, for it may be changed while the process runs.
        """
        least = math.inf
        for group in self._groups():
            try:
                allowed, period = map(int, (group / "cpu.max").read_text("ascii").split())
            except (OSError, ValueError):
                # There is no such file, or it says "max".
                continue
            least = min(least, allowed / period)
        return least

    def _groups(self) -> list[Path]:
        """The folders of its control group and those around it. In a container it is the root."""
        mount = self._root / "sys/fs/cgroup"
        try:
            path = (self._root / "proc/self/cgroup").read_text("ascii").rpartition("::/")[2].strip()
        except (OSError, ValueError):
            path = ""
        group = mount / path
        return [mount, *(each for each in (group, *group.parents) if mount in each.parents)]


class StillCpu:
    """One core, of which nothing is used: for a simulation, where time is not the machine's."""

    cores = 1.0

    def used_s(self) -> float:
        """No CPU time is ever used."""
        return 0.0

    def available(self, now_s: float) -> float:
        """The whole core is always left."""
        return 1.0
