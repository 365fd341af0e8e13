"""Notices when tasks go round and round while time stands still: a busy loop is a finding."""

from collections.abc import Callable

import trio

STEPS_MAX = 100_000


class SpinGuard(trio.abc.Instrument):
    """Calls `on_spin` with a task's name when `steps_max` steps were taken at one moment, before
    twice as many were.
    """

    def __init__(self, on_spin: Callable[[str], None], steps_max: int = STEPS_MAX) -> None:
        self._on_spin = on_spin
        self._steps_max = steps_max
        self._at_s = -1.0
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the step; virtual time passes only when every task waits."""
        self._steps += 1
        if self._steps < self._steps_max:
            return
        # The clock is looked at once in so many steps: each step of a run comes by here.
        now_s, self._steps = trio.current_time(), 0
        if now_s == self._at_s:
            self._on_spin(task.name)
        self._at_s = now_s
