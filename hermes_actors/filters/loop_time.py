"""The time limit on the event loop that all filters of a message share."""

from collections.abc import Callable

from hermes_actors.filters.failures import TooLong

LOOP_S = 0.001


class LoopTime:
    """Measures the CPU time of one message's filters with the clock `cpu_s`."""

    __slots__ = ("_began_s", "_cpu_s")

    def __init__(self, cpu_s: Callable[[], float]) -> None:
        self._cpu_s = cpu_s
        self._began_s = cpu_s()

    def left_s(self) -> float:
        """The time left. Raises TooLong if there is none."""
        left_s = LOOP_S - self.used_s()
        if left_s <= 0:
            raise TooLong
        return left_s

    def used_s(self) -> float:
        """The time used."""
        return self._cpu_s() - self._began_s
