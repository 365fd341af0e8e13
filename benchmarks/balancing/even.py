"""How evenly each algorithm balances a cluster that was balanced by count, and at what cost."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from balancing import bounds, selective, weighted
from balancing.clusters import (
    OWNERS,
    Cluster,
    Placement,
    Shape,
    blind,
    fullest,
    ideal,
    make,
    moved,
    placement_after,
    problem,
)
from hermes_actors.balancer.workload.planner import plan, plan_in_steps
from hermes_actors.balancer.workload.problem import Planned, Problem

PASSES = 11
Algorithm = Callable[[Cluster, Placement], Placement]


def ours(cluster: Cluster, placement: Placement) -> Placement:
    """The product's planner without a budget, one round."""
    before = problem(cluster, placement)
    return placement_after(before, plan(before))


def ours_anew(cluster: Cluster, _placement: Placement) -> Placement:
    """The product's planner in a cluster where nothing is owned yet."""
    before = problem(cluster, None)
    return placement_after(before, plan(before))


def _again(algorithm: Algorithm) -> Algorithm:
    def passes(cluster: Cluster, placement: Placement) -> Placement:
        for _ in range(PASSES):
            before, placement = placement, algorithm(cluster, placement)
            if moved(before, placement) == 0:
                break
        return placement

    return passes


def corrected(cluster: Cluster, placement: Placement) -> Placement:
    """Hermes' weighted strategy without its defect."""
    return weighted.rebalance(cluster, placement, is_corrected=True)


ALGORITHMS: dict[str, Algorithm] = {
    "start: by count": lambda _cluster, placement: placement,
    "Hermes selective": selective.rebalance,
    "Hermes weighted, 1 pass": weighted.rebalance,
    f"Hermes weighted, {PASSES} passes": _again(weighted.rebalance),
    f"same corrected, {PASSES} passes": _again(corrected),
    "LPT, all anew": lambda cluster, _placement: bounds.anew(cluster),
    "ours, all anew": ours_anew,
    "ours, 1 round": ours,
}


_SLOW = {name for name in ALGORITHMS if "passes" in name or "1 pass" in name}
_SLOW_FROM = 1_000


def measure(shape: Shape, seeds: range, slow: range) -> Iterator[dict[str, Any]]:
    """A row for each algorithm: worst and mean over the seeds. In large clusters, slow algorithms
    get fewer seeds.
    """
    clusters = [(make(shape, seed), seed) for seed in seeds]
    starts = [(cluster, blind(cluster, seed)) for cluster, seed in clusters]
    for name, algorithm in ALGORITHMS.items():
        over_ideal, over_mean, moves, took_ms = [], [], [], []
        is_slow = name in _SLOW and shape.subscriptions >= _SLOW_FROM
        chosen = starts[: len(slow)] if is_slow else starts
        for cluster, start in chosen:
            begun = time.process_time()
            placement = algorithm(cluster, start)
            took_ms.append(1_000 * (time.process_time() - begun))
            assert all(len(set(owners)) == OWNERS for owners in placement)
            mean = OWNERS * sum(cluster.weights) / sum(cluster.capacity)
            full = fullest(cluster, placement)
            over_ideal.append(full / ideal(cluster))
            over_mean.append(full / mean)
            moves.append(moved(start, placement))
        count = len(chosen)
        yield {
            "shape": shape.name,
            "algorithm": name,
            "seeds": count,
            "over_ideal": sum(over_ideal) / count,
            "over_ideal_worst": max(over_ideal),
            "over_mean": sum(over_mean) / count,
            "moves": sum(moves) / count,
            "tasks": OWNERS * shape.subscriptions,
            "ms": sum(took_ms) / count,
        }


def longest_step(before: Problem) -> tuple[Planned, float, float]:
    """The plan, the CPU time of all its steps, and that of the longest step, in ms."""
    total = longest = 0.0
    steps = plan_in_steps(before)
    while True:
        begun = time.thread_time()
        try:
            next(steps)
        except StopIteration as ended:
            planned: Planned = ended.value
            return planned, total, longest
        took_ms = 1_000 * (time.thread_time() - begun)
        total += took_ms
        longest = max(longest, took_ms)
