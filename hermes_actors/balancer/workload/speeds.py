"""The CPU controller: a node that needs more CPU for the same work is given less of it.

It compares what a unit of weight costs each node, not how busy each is. That cost does not change
when work moves, so there is no loop that could swing, however many nodes there are and however long
work takes to move; only how fast targets change is bounded.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

WINDOW_S = 120.0
"""After so long, a change of what is measured counts for 63 %."""
CHANGE_MAX = 0.1
"""A speed changes by at most this part in a round."""
DEAD_BAND = 0.06
"""A speed stays as it is until what is measured is off by more than this part."""
_SETTLED = 0.01
SPEED_MIN, SPEED_MAX = 0.2, 5.0
_LOAD_MIN = 0.25
"""A node with less than this part of a mean node's work, for its cores, tells too little."""
_CPU_MIN = 0.1
"""A node that uses less of its CPU than this part, likewise."""


class NodeCost(Struct, frozen=True):
    """The work of a node and its CPU: `weight` is that of its tasks, in any one unit; `cpu` and
    `cpu_available` in cores, the latter what the machine leaves it.
    """

    cores: float
    cpu: float
    cpu_available: float
    weight: float

    @property
    def used(self) -> float:
        """The part of its CPU that is used."""
        return self.cpu / max(self.cpu_available, 1e-3)


class _Speed:
    __slots__ = ("is_changing", "smooth", "used")

    def __init__(self, smooth: float, used: float) -> None:
        self.smooth = smooth
        self.used = used
        self.is_changing = False


class Speeds:
    """The speed of each node: 1 is that of a usual one, by boot id; logarithms inside.

    A leader's first look takes speeds as they are measured: its predecessor has planned with them.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._at_s = -math.inf
        self._speeds: dict[str, _Speed] = {}

    def update(self, now_s: float, costs: Mapping[str, NodeCost]) -> dict[str, float]:
        """The speeds to plan with now. Nodes that are not named are forgotten."""
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
    """For nodes that do enough to tell, the logarithm of how fast they are beside the mean."""
    weight = sum(cost.weight for cost in costs.values())
    cores = sum(cost.cores for cost in costs.values())
    telling = {
        boot: costs[boot]
        for boot in sorted(costs)
        if costs[boot].cores > 0
        and costs[boot].weight * cores > _LOAD_MIN * weight * costs[boot].cores
        and costs[boot].used > _CPU_MIN
    }
    # What a unit of weight takes of a core of the cluster, weighed by who does how much.
    spent = sum(cost.used * cost.cores for cost in telling.values())
    done = sum(cost.weight for cost in telling.values())
    low, high = math.log(SPEED_MIN), math.log(SPEED_MAX)
    return {
        boot: max(low, min(high, math.log(spent / done * cost.weight / (cost.used * cost.cores))))
        for boot, cost in telling.items()
    }
