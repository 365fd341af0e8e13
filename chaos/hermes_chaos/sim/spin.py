"""Detects busy loops: tasks that keep running while virtual time stands still."""

from collections.abc import Callable

import trio

STEPS_MAX = 100_000


class SpinGuard(trio.abc.Instrument):
    """Calls `on_spin` with a task's name if `steps_max` steps were taken at one moment, at the
    latest after twice as many.
    """

    def __init__(self, on_spin: Callable[[str], None], steps_max: int = STEPS_MAX) -> None:
        self._on_spin = on_spin
        self._steps_max = steps_max
        self._at_s = -1.0
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the step. Virtual time passes only when every task waits."""
        self._steps += 1
        if self._steps < self._steps_max:
            return
        # Read the clock only once per so many steps, because this runs at every step.
        now_s, self._steps = trio.current_time(), 0
        if now_s == self._at_s:
            self._on_spin(task.name)
        self._at_s = now_s
