"""Budgets by a clock of their own, which goes on with each look at it."""

from hermes_actors.filters.budget import Budget


def ample():
    """Enough for whatever a test asks that is not about time."""
    return Budget(1_000.0, lambda: 0.0)


class Ticking:
    """A CPU clock that goes on by a millisecond with each look; `looks` counts them."""

    def __init__(self, tick_s=0.001):
        self.looks = 0
        self._tick_s = tick_s

    def __call__(self):
        self.looks += 1
        return self.looks * self._tick_s
