"""The CPU controller: a node that needs more CPU for the same work is given less of it.

It compares the cost of a unit of weight on each node, not how busy each node is. That cost does not
change when work moves, so there is no feedback loop that could oscillate, however many nodes there
are and however long moves take. Only the rate of change of the targets is bounded.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

WINDOW_S = 120.0
"""Time constant: after this time, a change counts for 63 %."""
CHANGE_MAX = 0.1
"""A speed changes by at most this part per round."""
DEAD_BAND = 0.06
"""A speed changes only when the measurement is off by more than this part."""
_SETTLED = 0.01
SPEED_MIN, SPEED_MAX = 0.2, 5.0
_LOAD_MIN = 0.25
"""A node with less than this part of the mean work per core is not measured."""
_CPU_MIN = 0.1
"""Nor is a node that uses less than this part of its CPU."""


class NodeCost(Struct, frozen=True):
    """The work of a node and its CPU. `weight` is that of its tasks, in any unit; `cpu` and
    `cpu_available` are in cores, the latter what the machine leaves for it.
    """

    cores: float
    cpu: float
    cpu_available: float
    weight: float

    @property
    def used(self) -> float:
        """The part of the available CPU that is used."""
        return self.cpu / max(self.cpu_available, 1e-3)


class _Speed:
    __slots__ = ("is_changing", "smooth", "used")

    def __init__(self, smooth: float, used: float) -> None:
        self.smooth = smooth
        self.used = used
        self.is_changing = False


class Speeds:
    """The speed of each node by boot id; 1 is average. Kept as logarithms.

    A new leader's first measurement is used unsmoothed, because its predecessor has already planned
    with it.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._at_s = -math.inf
        self._speeds: dict[str, _Speed] = {}

    def update(self, now_s: float, costs: Mapping[str, NodeCost]) -> dict[str, float]:
        """Return the current speeds. Nodes that are not in `costs` are forgotten."""
        follows = 1 - math.exp(-max(0.0, now_s - self._at_s) / self._window_s)
        is_first_look = self._at_s == -math.inf
        self._speeds = {boot: self._speeds[boot] for boot in sorted(costs) if boot in self._speeds}
        measured = _measured(costs)
        if measured:
            self._at_s = now_s
        for boot, speed in measured.items():
            known = self._speeds.get(boot)
            if known is None:
                known = self._speeds[boot] = _Speed(speed, speed if is_first_look else 0.0)
            known.smooth += follows * (speed - known.smooth)
            _follow(known)
        return {
            boot: math.exp(self._speeds[boot].used) if boot in self._speeds else 1.0
            for boot in sorted(costs)
        }


def _follow(speed: _Speed) -> None:
    off = speed.smooth - speed.used
    if abs(off) > (_SETTLED if speed.is_changing else DEAD_BAND):
        speed.is_changing = True
        speed.used += max(-CHANGE_MAX, min(CHANGE_MAX, off))
    else:
        speed.is_changing = False


def _measured(costs: Mapping[str, NodeCost]) -> dict[str, float]:
    """The logarithm of each node's speed relative to the mean, for nodes with enough work to
    measure.
    """
    weight = sum(cost.weight for cost in costs.values())
    cores = sum(cost.cores for cost in costs.values())
    telling = {
        boot: costs[boot]
        for boot in sorted(costs)
        if costs[boot].cores > 0
        and costs[boot].weight * cores > _LOAD_MIN * weight * costs[boot].cores
        and costs[boot].used > _CPU_MIN
    }
    # The mean cost of a unit of weight, weighted by each node's work.
    spent = sum(cost.used * cost.cores for cost in telling.values())
    done = sum(cost.weight for cost in telling.values())
    low, high = math.log(SPEED_MIN), math.log(SPEED_MAX)
    return {
        boot: max(low, min(high, math.log(spent / done * cost.weight / (cost.used * cost.cores))))
        for boot, cost in telling.items()
    }
