"""The weight of a subscription: its cost in thousandths of a core, measured and smoothed.

A weight is the CPU that its consumers used, if measured; else an estimate from the messages that
they sent. Noise in single measurements must not move tasks, so a weight follows them over minutes.
A subscription without a measurement gets the median weight: with 0, all new ones would go to one
node.
"""

import math
from collections.abc import Mapping
from statistics import median

from hermes_actors.coordination.commands import TaskLoad
from hermes_actors.coordination.weights import WEIGHT_UNKNOWN, weight_of

WINDOW_S = 300.0
"""Time constant: after this time, a change counts for 63 %."""


class WeightHistory:
    """The weights of all subscriptions over time. A new leader can begin without this memory, with
    what is measured now.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._at_s = -math.inf
        self._known: dict[str, float] = {}

    def update(self, now_s: float, loads: Mapping[str, TaskLoad | None]) -> dict[str, float]:
        """Return the current weight of each subscription. `loads` has the sum over its owners, None
        if unknown. Subscriptions that are not in it are forgotten.
        """
        follows = 1 - math.exp(-max(0.0, now_s - self._at_s) / self._window_s)
        self._at_s = now_s
        known: dict[str, float] = {}
        for name in sorted(loads):
            load, before = loads[name], self._known.get(name)
            if load is not None:
                weight = weight_of(load)
                known[name] = weight if before is None else before + follows * (weight - before)
            elif before is not None:
                known[name] = before
        self._known = known
        usual = median(known.values()) if known else WEIGHT_UNKNOWN
        return {name: known.get(name, usual) for name in sorted(loads)}
