"""How much CPU the process may use, and has used: the one place that asks the system for it."""

import os


class ProcessCpu:
    """The process on its machine. `cores` may be told: a container's limit, say."""

    def __init__(self, cores: float = 0.0) -> None:
        """0: all that the process may run on."""
        self._cores = cores or float(_usable())

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


def _usable() -> int:
    # Not everywhere: macOS has no affinity.
    ask = getattr(os, "sched_getaffinity", None)
    return len(ask(0)) if ask is not None else os.cpu_count() or 1
