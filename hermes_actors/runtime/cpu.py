"""How much CPU the process may use, and has used: the one place that asks the system for it."""

import os
from pathlib import Path

_LIMIT_OF_CONTAINER = Path("/sys/fs/cgroup/cpu.max")


class ProcessCpu:
    """The process on its machine. `cores` may be told: a container's limit, say."""

    def __init__(self, cores: float = 0.0) -> None:
        """0: one, or less where the process is not let use one whole: a node runs in one thread,
        and is not worth more on a machine of many cores.
        """
        self._cores = cores or min(1.0, _usable(), quota(_LIMIT_OF_CONTAINER))

    @property
    def cores(self) -> float:
        """How many it may use."""
        return self._cores

    def used_s(self) -> float:
        """The CPU time that it has used, in seconds."""
        times = os.times()
        return times.user + times.system


class StillCpu:
    """One core, of which nothing is used: for a simulation, where time is not the machine's."""

    cores = 1.0

    def used_s(self) -> float:
        """Nothing."""
        return 0.0


def quota(limit: Path) -> float:
    """How many cores a control group (version 2) is let use, as its `cpu.max` says; infinite when
    it says nothing.
    """
    try:
        allowed, period = limit.read_text().split()
        return int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        # No such file, or "max": no limit.
        return float("inf")


def _usable() -> int:
    # Not everywhere: macOS has no affinity.
    ask = getattr(os, "sched_getaffinity", None)
    return len(ask(0)) if ask is not None else os.cpu_count() or 1
