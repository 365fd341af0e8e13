"""Estimates how many cores the machine leaves for a process, from how long it had to wait for them.
Pure.

Of the time in which the process wanted to run, it could run for some part. That part is what it
would get of a core that it wanted all the time. It hardly depends on how much it wants, so more
work does not make a node look slower.
"""

import math

from msgspec import Struct

WINDOW_S = 120.0
"""Time constant: after this time, a measurement has a third of its weight."""
IDLE_WEIGHT = 0.1
"""Weight of idle time relative to running time. An almost idle process learns little about its
share, and is assumed to get all of it.
"""
DEAD_BAND = 0.2
"""The reported value changes only when the measured one is off by more than this (as a
logarithm).
"""
_SETTLING_WINDOWS = 3
"""Once it changes, it follows the measurement for this many windows, until little is left to
learn.
"""
FULL = 0.9
"""From this part on it counts as the whole: some waiting is normal with any scheduler."""


class CpuSample(Struct, frozen=True):
    """A process' CPU counters at `at_s`, since some time in the past.

    `waited_s` is how long it could have run but did not, because something else ran or its quota
    was used up. `quota` is how many cores it may use; infinite without a limit.
    """

    at_s: float
    ran_s: float
    waited_s: float
    quota: float = math.inf


class CpuShare:
    """Estimates the share of `cores` that is left, from samples; noise does not change it."""

    def __init__(self, cores: float, window_s: float = WINDOW_S) -> None:
        """`cores` is the maximum of the result. A value above one says how much one core of this
        machine is worth, for a process that runs in one thread.
        """
        self._cores = cores
        self._window_s = window_s
        self._last: CpuSample | None = None
        # As if it had been idle until now.
        self._had_s, self._missed_s = IDLE_WEIGHT * window_s, 0.0
        self._part = 1.0
        self._follows_until_s = -math.inf

    def update(self, sample: CpuSample) -> float:
        """Return the cores that it has now, above 0. A sample is ignored if a counter went down,
        for example because the thread or the control group changed.
        """
        last, self._last = self._last, sample
        if last is not None and sample.at_s > last.at_s:
            self._learn(
                sample.at_s,
                sample.at_s - last.at_s,
                sample.ran_s - last.ran_s,
                sample.waited_s - last.waited_s,
            )
        left = max(1.0, self._cores) * self._part
        return min(self._cores, left, sample.quota)

    def _learn(self, at_s: float, elapsed_s: float, ran_s: float, waited_s: float) -> None:
        if ran_s < 0 or waited_s < 0:
            return
        # The counters are not read at the same instant, so they may exceed the elapsed time a
        # little.
        ran_s = min(ran_s, elapsed_s)
        waited_s = min(waited_s, elapsed_s - ran_s)
        idle_s = elapsed_s - ran_s - waited_s
        kept = math.exp(-elapsed_s / self._window_s)
        # Measurements fade within the interval, too: an interval of an hour weighs as much as the
        # window.
        weight = (1 - kept) * self._window_s / elapsed_s
        self._had_s = kept * self._had_s + weight * (ran_s + IDLE_WEIGHT * idle_s)
        self._missed_s = kept * self._missed_s + weight * waited_s
        wanted_s = self._had_s + self._missed_s
        if wanted_s <= 0:
            return
        # At least a thousandth: no process gets nothing at all, and the part is used in ratios.
        part = max(1e-3, self._had_s / wanted_s)
        part = 1.0 if part >= FULL else part
        if abs(math.log(part / self._part)) > DEAD_BAND:
            self._follows_until_s = at_s + _SETTLING_WINDOWS * self._window_s
        if at_s <= self._follows_until_s:
            self._part = part
