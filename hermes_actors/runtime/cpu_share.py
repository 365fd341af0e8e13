"""How many cores the machine leaves a process, from how long it has waited for them. Pure.

Of the time in which it wanted to run it could run some part. That part is what it would get of a
core if it wanted one all the time, and hardly depends on how much it wants, so that more work for
a node does not make it look slower.
"""

import math

from msgspec import Struct

WINDOW_S = 120.0
"""After so long, what was seen counts for a third of what it did."""
IDLE_WEIGHT = 0.1
"""Idle time counts for such a part of time spent running: who hardly wants to run learns little of
what he would get, and is taken to get it.
"""
DEAD_BAND = 0.2
"""The told value stays until the measured one is off by more than this part, as a logarithm."""
_SETTLING_WINDOWS = 3
"""Once it changes, it follows for so many windows: until little is left to be learnt."""
FULL = 0.9
"""From this part on it is all of it: wherever there is a scheduler, some waiting is usual."""


class CpuSample(Struct, frozen=True):
    """The counters of a process' CPU until `at_s`, all since some time in the past.

    `waited_s` is the time for which it could have run and did not, for something else did or its
    quota was used up; `quota` is how many cores it is let use, infinite where none is set.
    """

    at_s: float
    ran_s: float
    waited_s: float
    quota: float = math.inf


class CpuShare:
    """The share of `cores` that is left, from samples; noise does not change it."""

    def __init__(self, cores: float, window_s: float = WINDOW_S) -> None:
        """`cores`: never is more of them left. Above one they are a measure of what one core of
        this machine is worth, for a process that runs in one thread.
        """
        self._cores = cores
        self._window_s = window_s
        self._last: CpuSample | None = None
        # As if it had been idle until now.
        self._had_s, self._missed_s = IDLE_WEIGHT * window_s, 0.0
        self._part = 1.0
        self._follows_until_s = -math.inf

    def update(self, sample: CpuSample) -> float:
        """Give the cores that it has now, above 0. What has not grown since the last sample, as
        when a thread or a control group is another one, tells nothing.
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
        # Counters are not read at one instant, so there may be a little more than has passed.
        ran_s = min(ran_s, elapsed_s)
        waited_s = min(waited_s, elapsed_s - ran_s)
        idle_s = elapsed_s - ran_s - waited_s
        kept = math.exp(-elapsed_s / self._window_s)
        # What came in the interval fades within it, too: one of an hour counts as the window.
        weight = (1 - kept) * self._window_s / elapsed_s
        self._had_s = kept * self._had_s + weight * (ran_s + IDLE_WEIGHT * idle_s)
        self._missed_s = kept * self._missed_s + weight * waited_s
        wanted_s = self._had_s + self._missed_s
        if wanted_s <= 0:
            return
        # One in a thousand: nobody is left nothing at all, and ratios are taken of it.
        part = max(1e-3, self._had_s / wanted_s)
        part = 1.0 if part >= FULL else part
        if abs(math.log(part / self._part)) > DEAD_BAND:
            self._follows_until_s = at_s + _SETTLING_WINDOWS * self._window_s
        if at_s <= self._follows_until_s:
            self._part = part
