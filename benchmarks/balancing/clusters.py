"""Synthetic clusters: subscriptions with heavy-tailed weights, on equal or different nodes."""

import random
from typing import NamedTuple

from hermes_actors.balancer.workload.problem import (
    Planned,
    PlannedNode,
    PlannedOwner,
    PlannerSettings,
    Problem,
    Work,
)

OWNERS = 2
UNBOUND = 10**9
Placement = list[list[int]]
"""For each subscription the numbers of the nodes that own it."""


class Shape(NamedTuple):
    """The size and weights of a synthetic cluster. `weights` is "log-normal σ" or "Zipf s"."""

    nodes: int
    subscriptions: int
    weights: str
    is_mixed: bool = False

    @property
    def name(self) -> str:
        """The name in the tables."""
        mixed = ", mixed nodes" if self.is_mixed else ""
        return f"{self.nodes} × {self.subscriptions}, {self.weights}{mixed}"


class Cluster(NamedTuple):
    """Each node's capacity, and the weight of one owner's task of each subscription."""

    capacity: tuple[float, ...]
    weights: tuple[float, ...]

    def loads(self, placement: Placement) -> list[float]:
        """The load of each node, summed up."""
        sums = [0.0] * len(self.capacity)
        for weight, owners in zip(self.weights, placement, strict=True):
            for node in owners:
                sums[node] += weight
        return sums


def make(shape: Shape, seed: int) -> Cluster:
    """The cluster of a seed."""
    rng = random.Random(f"{shape.name} {seed}")
    kind, _, figure = shape.weights.partition(" ")
    if kind == "log-normal":
        weights = [rng.lognormvariate(0, float(figure)) for _ in range(shape.subscriptions)]
    else:
        weights = [100 / rank ** float(figure) for rank in range(1, shape.subscriptions + 1)]
        rng.shuffle(weights)
    sizes = (1.0, 2.0, 4.0) if shape.is_mixed else (1.0,)
    return Cluster(tuple(rng.choice(sizes) for _ in range(shape.nodes)), tuple(weights))


def blind(cluster: Cluster, seed: int) -> Placement:
    """A placement with equal counts, whatever the weights, as if balanced by count."""
    rng = random.Random(seed)
    counts = [0] * len(cluster.capacity)
    order = list(range(len(cluster.weights)))
    rng.shuffle(order)
    placement: Placement = [[] for _ in order]
    for subscription in order:
        ranked = sorted(range(len(counts)), key=lambda node: (counts[node], rng.random()))
        placement[subscription] = ranked[:OWNERS]
        for node in ranked[:OWNERS]:
            counts[node] += 1
    return placement


def ideal(cluster: Cluster) -> float:
    """The lowest possible load of the fullest node, relative to its capacity: the mean, or the
    heaviest task on the largest node. No placement is below it; often none reaches it.
    """
    mean = OWNERS * sum(cluster.weights) / sum(cluster.capacity)
    return max(mean, max(cluster.weights) / max(cluster.capacity))


def fullest(cluster: Cluster, placement: Placement) -> float:
    """The greatest load relative to capacity."""
    return max(
        load / capacity
        for load, capacity in zip(cluster.loads(placement), cluster.capacity, strict=True)
    )


def moved(before: Placement, after: Placement) -> int:
    """The number of tasks on a node that did not have them before."""
    return sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))


def problem(
    cluster: Cluster, placement: Placement | None, settings: PlannerSettings | None = None
) -> Problem:
    """The same cluster for the product's planner: each owner has one of two partitions."""
    nodes = tuple(
        PlannedNode(f"boot-{at:03}", f"node-{at:03}", capacity)
        for at, capacity in enumerate(cluster.capacity)
    )
    works = tuple(
        Work(
            f"g.t$s{at:05}",
            OWNERS,
            OWNERS * weight,
            tuple(
                PlannedOwner(nodes[node].boot, (number,), 1 / OWNERS)
                for number, node in enumerate(placement[at] if placement else ())
            ),
        )
        for at, weight in enumerate(cluster.weights)
    )
    return Problem(
        nodes, works, 1e6, settings or PlannerSettings(moves_max=UNBOUND, idle_weight=1e-6)
    )


def placement_after(before: Problem, planned: Planned) -> Placement:
    """The owners of all tasks after the plan."""
    number = {node.boot: at for at, node in enumerate(before.nodes)}
    changed = {
        each.subscription: [target.boot for target in each.targets] for each in planned.assignments
    }
    return [
        [number[boot] for boot in changed.get(work.name, [owner.boot for owner in work.owners])]
        for work in before.works
    ]
