"""A day of a cluster whose subscriptions vary with the hours and are measured with noise."""

import math
import random
from typing import Any

from msgspec.structs import replace

from balancing import weighted
from balancing.clusters import Cluster, Placement, Shape, make, placement_after, problem
from balancing.even import ours_anew
from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.problem import PlannerSettings, Problem
from hermes_actors.balancer.workload.weights import WeightHistory
from hermes_actors.coordination.commands import TaskLoad

NOISE = 0.1
ROUND_S = 60.0
STABLE_S = 1_800.0
HERMES_WINDOW_S = 900.0


class Hours:
    """The true weights of subscriptions over time: each has a phase, mostly the same."""

    def __init__(self, cluster: Cluster, seed: int, swing: float) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._swing = swing
        self._phase = [self._rng.gauss(0.0, 1.0) for _ in cluster.weights]

    def true(self, now_s: float) -> list[float]:
        """The weights of all tasks."""
        turn = 2 * math.pi * now_s / 86_400
        pairs = zip(self._cluster.weights, self._phase, strict=True)
        return [weight * (1 + self._swing * math.sin(turn + phase)) for weight, phase in pairs]

    def measured(self, now_s: float) -> list[float]:
        """The weights with new noise."""
        return [each * self._rng.uniform(1 - NOISE, 1 + NOISE) for each in self.true(now_s)]


class _Ours:
    """The product's weights and planner, with its budget and its stabilization window."""

    def __init__(self, cluster: Cluster, placement: Placement) -> None:
        self._problem = problem(cluster, placement, PlannerSettings(idle_weight=1e-6))
        self._weights = WeightHistory()

    def round(self, now_s: float, measured: list[float]) -> tuple[Placement, int]:
        """The placement after a round, and how many tasks moved."""
        before = self._problem
        loads = {
            work.name: TaskLoad(cpu=2 * weight / 1_000)
            for work, weight in zip(before.works, measured, strict=True)
        }
        known = self._weights.update(now_s, loads)
        before = replace(
            before,
            now_s=now_s,
            works=tuple(replace(work, weight=known[work.name]) for work in before.works),
        )
        planned = plan(before)
        placement = placement_after(before, planned)
        changed = {each.subscription for each in planned.assignments}
        self._problem = with_owners(before, placement, changed)
        return placement, planned.moves


def with_owners(before: Problem, placement: Placement, changed: set[str]) -> Problem:
    """The problem with other owners; changed subscriptions have moved now."""
    boots = [node.boot for node in before.nodes]
    works = []
    for work, owners in zip(before.works, placement, strict=True):
        if work.name in changed:
            had = {owner.boot: owner for owner in work.owners}
            names = [boots[node] for node in owners]
            left = [owner for owner in work.owners if owner.boot not in names]
            kept = [had[name] if name in had else replace(left.pop(), boot=name) for name in names]
            work = replace(work, owners=tuple(kept), moved_s=before.now_s)
        works.append(work)
    return replace(before, works=tuple(works))


class _Hermes:
    """Hermes' weighted strategy: weights smoothed over 15 minutes, swaps of stable tasks only."""

    def __init__(self, cluster: Cluster, placement: Placement) -> None:
        self._cluster = cluster
        self._placement = placement
        self._known = list(cluster.weights)
        self._moved_s = [-math.inf] * len(self._known)

    def round(self, now_s: float, measured: list[float]) -> tuple[Placement, int]:
        """The placement after a round, and how many tasks moved."""
        follows = 1 - math.exp(-ROUND_S / HERMES_WINDOW_S)
        pairs = zip(self._known, measured, strict=True)
        self._known = [known + follows * (new - known) for known, new in pairs]
        stable = {at for at, moved_s in enumerate(self._moved_s) if now_s - moved_s > STABLE_S}
        cluster = Cluster(self._cluster.capacity, tuple(self._known))
        after = weighted.rebalance(cluster, self._placement, stable=stable)
        moves = 0
        for at, (old, new) in enumerate(zip(self._placement, after, strict=True)):
            count = len(set(new) - set(old))
            moves += count
            if count:
                self._moved_s[at] = now_s
        self._placement = after
        return after, moves


def live(shape: Shape, seed: int, swing: float, hours: float, name: str) -> dict[str, Any]:
    """The moves in each hour, and how even the true loads were."""
    cluster = make(shape, seed)
    start = ours_anew(cluster, [])
    planner = (_Ours if name == "ours" else _Hermes)(cluster, start)
    day = Hours(cluster, seed, swing)
    moves = [0] * math.ceil(hours)
    over: list[float] = []
    for number in range(int(hours * 3_600 / ROUND_S)):
        now_s = 1e6 + number * ROUND_S
        placement, count = planner.round(now_s, day.measured(now_s))
        moves[int(number * ROUND_S // 3_600)] += count
        true = Cluster(cluster.capacity, tuple(day.true(now_s)))
        loads = true.loads(placement)
        ideal = max(sum(loads) / len(loads), *true.weights)
        over.append(max(loads) / ideal)
    over.sort()
    return {
        "shape": shape.name,
        "swing": swing,
        "algorithm": name,
        "hours": hours,
        "moves_an_hour": sum(moves) / len(moves),
        "moves_first_hour": moves[0],
        "moves_last_hours": sum(moves[len(moves) // 2 :]) / max(1, len(moves) - len(moves) // 2),
        "over_ideal_mean": sum(over) / len(over),
        "over_ideal_p99": over[int(0.99 * len(over))],
    }
