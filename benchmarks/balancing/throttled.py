"""One node at half speed, or with half a core: how long until it is as busy as the others relative
to its capacity, and how many tasks move.
"""

import random
from typing import Any

from msgspec.structs import replace

from balancing.clusters import Shape, make, placement_after, problem
from balancing.day import with_owners
from balancing.even import ours_anew
from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.problem import PlannerSettings
from hermes_actors.balancer.workload.speeds import NodeCost, Speeds
from hermes_actors.runtime.cpu_share import CpuSample, CpuShare

ROUND_S = 30.0
BUSY = 0.5
AS_BUSY = 1.1
LOADS_S = 10.0
USUAL_WAITING = 0.07
"""Even alone on its core, a process waits for at most this share of its running time."""


class _Core:
    """A core that runs a node's thread, and how much of it is left, as that thread can tell."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._share = CpuShare(1.0)
        self._at_s = self._ran_s = self._waited_s = 0.0

    def left_after(self, seconds: float, cpu: float, part: float) -> float:
        """What is left after it has used `cpu` for this time and got a part of what it wanted."""
        left = 1.0
        for _ in range(round(seconds / LOADS_S)):
            waited = cpu / part - cpu + cpu * self._rng.uniform(0, USUAL_WAITING)
            self._at_s += LOADS_S
            self._ran_s += cpu * LOADS_S
            self._waited_s += min(waited, 1 - cpu) * LOADS_S
            left = self._share.update(CpuSample(self._at_s, self._ran_s, self._waited_s))
        return left


def run(shape: Shape, seed: int, minutes: int, *, has_rival: bool = False) -> dict[str, Any]:
    """From the minute in which the first node becomes half as fast. Or, with `has_rival`, another
    process takes half its core, which only its waiting time reveals.
    """
    cluster = make(shape, seed)
    rng = random.Random(seed)
    now = problem(cluster, ours_anew(cluster, []), PlannerSettings(idle_weight=1e-6))
    speeds = Speeds()
    cores = {node.boot: _Core(rng) for node in now.nodes}
    mean = 2 * sum(cluster.weights) / len(cluster.capacity)
    settled_min, moves, last_moves = 0.0, 0, 0
    busiest = 0.0
    rounds = int(minutes * 60 / ROUND_S)
    for number in range(rounds):
        # Two quiet minutes first, in which the controller sees all nodes as equal.
        is_throttled = number * ROUND_S >= 120
        slow = 2.0 if is_throttled and not has_rival else 1.0
        part = 0.5 if is_throttled and has_rival else 1.0
        loads = {node.boot: 0.0 for node in now.nodes}
        for work in now.works:
            for owner in work.owners:
                loads[owner.boot] += work.weight / 2
        first = now.nodes[0].boot
        parts = {boot: part if boot == first else 1.0 for boot in loads}
        cpu = {
            boot: min(parts[boot], BUSY * load / mean * (slow if boot == first else 1.0))
            for boot, load in loads.items()
        }
        busiest = max(cpu[boot] / parts[boot] for boot in cpu)
        busiest /= sum(cpu.values()) / sum(parts.values())
        if busiest > AS_BUSY:
            settled_min = (number + 1) * ROUND_S / 60 - 2
        costs = {
            boot: NodeCost(
                1.0,
                cpu[boot] * rng.uniform(0.95, 1.05),
                cores[boot].left_after(ROUND_S, cpu[boot], parts[boot]),
                loads[boot],
            )
            for boot in cpu
        }
        known = speeds.update(now.now_s, costs)
        nodes = tuple(replace(node, speed=known[node.boot]) for node in now.nodes)
        before = replace(now, nodes=nodes, now_s=now.now_s + ROUND_S)
        planned = plan(before)
        moves += planned.moves
        last_moves += planned.moves * (number >= rounds // 2)
        changed = {each.subscription for each in planned.assignments}
        now = with_owners(before, placement_after(before, planned), changed)
    return {
        "shape": shape.name,
        "why": "a rival on its core" if has_rival else "half as fast",
        "minutes": minutes,
        "settled_min": settled_min,
        "busiest": busiest,
        "moves": moves,
        "moves_second_half": last_moves,
    }
