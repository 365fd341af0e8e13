"""The target load of each node: its part of the total weight, in proportion to its capacity.

A task heavier than any node's part cannot be divided: its node has to carry it alone, and the other
nodes divide the rest.
"""

from heapq import nlargest

from hermes_actors.balancer.workload.books import Books, Task


def targets(books: Books) -> list[float]:
    """The target of each node, in grains; their sum is the weight of all tasks."""
    count = len(books.nodes)
    target = [0.0] * count
    free = list(range(count))
    weight, capacity = books.total, sum(books.capacity)
    for task in _giants(books):
        best = max(books.capacity[node] for node in free)
        if task.weight * capacity <= weight * best:
            break
        # It stays where it is, unless a clearly better node is free.
        at = task.at
        if at not in free or books.capacity[at] < 0.9 * best:
            at = max(free, key=lambda node: (books.capacity[node], -books.load[node], -node))
        target[at] = float(task.weight)
        free.remove(at)
        weight -= task.weight
        capacity -= books.capacity[at]
    for node in free:
        # Never 0, because targets are divisors.
        target[node] = max(weight * books.capacity[node] / capacity, 1.0)
    return target


def _giants(books: Books) -> list[Task]:
    """The tasks that may be heavier than any node's part, heaviest first."""
    # Usually there are none, and sorting is skipped.
    count = len(books.nodes)
    heaviest = max((tasks[-1][0] for tasks in books.on if tasks), default=0)
    if heaviest * sum(books.capacity) <= books.total * max(books.capacity, default=1.0):
        return []
    return nlargest(count - 1, books.tasks, key=lambda task: (task.weight, -task.number))
