"""Bounds that hold for every algorithm: the fullest node's load, and the moves that a new node
needs.
"""

import heapq

from balancing.clusters import OWNERS, Cluster, Placement

SLACK = 0.02
"""How far below its share a giving node may end, and the new node, too."""


def anew(cluster: Cluster) -> Placement:
    """Place all tasks from scratch, heaviest first, each on the node that it fills least (LPT).
    Nearly optimal, but every task may move.
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
    """The minimum number of moves so that the last node, which has no task, comes within SLACK of
    its share, no giving node falls more than SLACK below its own, and none is further above.

    This is a relaxation, so no algorithm needs fewer. m tasks of a node weigh at most as much as
    its m heaviest movable tasks, and at most what it may give. Both bounds are concave in m, so the
    greatest total for any number of tasks takes the greatest gains first. An overfull node gives at
    least one task.
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
    """The load that each node should carry, in proportion to its capacity. A task heavier than that
    is carried by its node alone.
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
