"""Permits for a bounded amount of work, given in the order in which they are asked for."""

from collections import deque
from collections.abc import Callable


class Permits:
    """At most `total` units are taken at a time; who asks for more than that gets it alone.

    First come, first served: nobody who comes later is served before the one who waits longest.
    """

    __slots__ = ("_total", "_waiting", "taken")

    def __init__(self, total: int) -> None:
        self._total = total
        self.taken = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, units: int, wake: Callable[[], None]) -> bool:
        """Take so many now, or wait: False, and `wake` is called when they have been taken."""
        if not self._waiting and self._fits(units):
            self.taken += units
            return True
        self._waiting.append((units, wake))
        return False

    def give_back(self, units: int) -> None:
        """Free `units`, and take for those who wait, longest first, as far as there is room."""
        self.taken -= units
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, wake = self._waiting.popleft()
            self.taken += wanted
            wake()

    def _fits(self, units: int) -> bool:
        return not self.taken or self.taken + units <= self._total
