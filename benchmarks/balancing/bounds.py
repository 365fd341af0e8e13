"""Bounds that no algorithm passes: the fullest node's load, and the moves that a newcomer needs."""

import heapq

from balancing.clusters import OWNERS, Cluster, Placement

SLACK = 0.02
"""A node that gives may end so far below its share, and the newcomer too."""


def anew(cluster: Cluster) -> Placement:
    """All tasks placed from nothing, the heaviest first, each to the node it fills least (LPT):
    near the best that there is, and every task may move for it.
    """
    load = [0.0] * len(cluster.capacity)
    placement: Placement = [[] for _ in cluster.weights]
    order = sorted(range(len(cluster.weights)), key=lambda each: -cluster.weights[each])
    for subscription in order:
        weight = cluster.weights[subscription]
        ranked = heapq.nsmallest(
            OWNERS,
            range(len(load)),
            key=lambda node: (load[node] + weight) / cluster.capacity[node],
        )
        placement[subscription] = ranked
        for node in ranked:
            load[node] += weight
    return placement


def least_moves_of_a_join(cluster: Cluster, placement: Placement) -> int:
    """How many tasks must move so that the last node, which has none, comes within SLACK of its
    share, nobody who gives falls further than SLACK below his own, and nobody is further above.

    A relaxation, so no way of moving needs fewer: m tasks of a node weigh at most what its m
    heaviest do of those that it may give at all, and at most what it may give; both are concave in
    m, so the greatest sum of any number of tasks takes the greatest gains first. Who is too full
    gives one task at the least.
    """
    shares = _shares(cluster, placement)
    loads = cluster.loads(placement)
    owned: list[list[float]] = [[] for _ in cluster.capacity]
    for subscription, owners in enumerate(placement):
        for node in owners:
            owned[node].append(cluster.weights[subscription])
    gains: list[float] = []
    full = 0
    for node, share in enumerate(shares[:-1]):
        may_give = loads[node] - (1 - SLACK) * share
        full += loads[node] > (1 + SLACK) * share
        given = 0.0
        for weight in sorted((each for each in owned[node] if each <= may_give), reverse=True):
            gain = min(may_give, given + weight) - given
            if gain <= 0:
                break
            gains.append(gain)
            given += gain
    missing = (1 - SLACK) * shares[-1]
    count = 0
    for gain in sorted(gains, reverse=True):
        if missing <= 0:
            break
        missing -= gain
        count += 1
    return max(count, full)


def _shares(cluster: Cluster, placement: Placement) -> list[float]:
    """Return the load that each node is to carry: in proportion to its capacity, but a task that is
    heavier than that is carried by its node alone.
    """
    heaviest = [0.0] * len(cluster.capacity)
    for weight, owners in zip(cluster.weights, placement, strict=True):
        for node in owners:
            heaviest[node] = max(heaviest[node], weight)
    alone: set[int] = set()
    while True:
        weight = OWNERS * sum(cluster.weights) - sum(heaviest[node] for node in alone)
        capacity = sum(each for node, each in enumerate(cluster.capacity) if node not in alone)
        shares = [
            heaviest[node] if node in alone else weight * each / capacity
            for node, each in enumerate(cluster.capacity)
        ]
        more = {node for node, share in enumerate(shares) if heaviest[node] > share} - alone
        if not more:
            return shares
        alone |= more
