"""Hermes' default strategy, equal counts, written from a description of it.

It fills subscriptions that have too few owners, then moves any task from the node with the most to
the one with the fewest until they differ by one. In Hermes hash order decides which task is moved;
here it is the first one.
"""

from balancing.clusters import OWNERS, Cluster, Placement


def rebalance(cluster: Cluster, placement: Placement) -> Placement:
    """The placement after one round of moves."""
    nodes = range(len(cluster.capacity))
    owned: list[set[int]] = [set() for _ in nodes]
    result = [list(owners) for owners in placement]
    for subscription, owners in enumerate(result):
        for node in owners:
            owned[node].add(subscription)
    wanted = min(OWNERS, len(nodes))
    lacking = sorted(
        (each for each in range(len(result)) if len(result[each]) < wanted),
        key=lambda each: len(result[each]),
    )
    for subscription in lacking:
        while len(result[subscription]) < wanted:
            open_to = [node for node in nodes if subscription not in owned[node]]
            node = min(open_to, key=lambda each: len(owned[each]))
            owned[node].add(subscription)
            result[subscription].append(node)
    while True:
        most = max(nodes, key=lambda each: len(owned[each]))
        fewest = min(nodes, key=lambda each: len(owned[each]))
        movable = sorted(owned[most] - owned[fewest])
        if len(owned[most]) - len(owned[fewest]) <= 1 or not movable:
            return result
        subscription = movable[0]
        owned[most].remove(subscription)
        owned[fewest].add(subscription)
        result[subscription].remove(most)
        result[subscription].append(fewest)
