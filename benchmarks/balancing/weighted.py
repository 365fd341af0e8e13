"""Hermes' weighted strategy with equal targets, written from a description of it.

Includes its defect: after an accepted swap the inner loop continues with the task that is already
gone, so the books count it twice. `is_corrected` leaves the inner loop instead. The stabilization
window holds back no task unless `stable` says so.
"""

from math import ceil

from balancing.clusters import OWNERS, Cluster, Placement

SIGNIFICANT = 0.05
"""A swap must change the overloaded node's weight by this share."""


class _Books:
    """The strategy's own weights, updated by additions instead of summed up."""

    def __init__(self, cluster: Cluster, placement: Placement) -> None:
        self.task_weight = cluster.weights
        self.tasks: list[set[int]] = [set() for _ in cluster.capacity]
        self.weight = [0.0] * len(cluster.capacity)
        for subscription, owners in enumerate(placement):
            for node in owners:
                self.add(node, subscription)

    def add(self, node: int, task: int) -> None:
        self.tasks[node].add(task)
        self.weight[node] += self.task_weight[task]

    def remove(self, node: int, task: int) -> None:
        self.tasks[node].discard(task)
        self.weight[node] = max(0.0, self.weight[node] - self.task_weight[task])

    def heaviest_first(self, node: int, other: int, stable: set[int] | None) -> list[int]:
        """The node's tasks that the other node does not have."""
        tasks = self.tasks[node] - self.tasks[other]
        if stable is not None:
            tasks &= stable
        return sorted(tasks, key=lambda task: (-self.task_weight[task], task))


def rebalance(
    cluster: Cluster,
    placement: Placement,
    *,
    is_corrected: bool = False,
    stable: set[int] | None = None,
) -> Placement:
    """Rebalance once: unassigned tasks to the lightest nodes, then moves and swaps
    towards targets.
    """
    books = _Books(cluster, placement)
    count = len(cluster.capacity)
    _assign(books, placement, min(OWNERS, count))
    target = sum(books.weight) / count
    tasks_max = ceil(sum(map(len, books.tasks)) / count)
    overloaded = sorted(
        (n for n in range(count) if books.weight[n] > target or len(books.tasks[n]) > tasks_max),
        key=lambda node: target - books.weight[node],
    )
    for node in overloaded:
        for other in range(count):
            if other != node:
                _move_out(books, node, other, target, tasks_max)
                _swap(books, node, other, target, stable, is_corrected=is_corrected)
            if books.weight[node] == target and len(books.tasks[node]) <= tasks_max:
                break
    result: Placement = [[] for _ in placement]
    for node, tasks in enumerate(books.tasks):
        for task in tasks:
            result[task].append(node)
    return result


def _assign(books: _Books, placement: Placement, wanted: int) -> None:
    lacking = [task for task, owners in enumerate(placement) for _ in range(wanted - len(owners))]
    for task in sorted(lacking, key=lambda each: -books.task_weight[each]):
        open_to = [node for node in range(len(books.tasks)) if task not in books.tasks[node]]
        books.add(min(open_to, key=lambda node: books.weight[node]), task)


def _move_out(books: _Books, node: int, other: int, target: float, tasks_max: int) -> None:
    for task in sorted(books.tasks[node] - books.tasks[other]):
        if len(books.tasks[node]) < tasks_max or len(books.tasks[other]) >= tasks_max:
            return
        if books.weight[other] + books.task_weight[task] <= target:
            books.remove(node, task)
            books.add(other, task)


def _swap(
    books: _Books,
    node: int,
    other: int,
    target: float,
    stable: set[int] | None,
    *,
    is_corrected: bool,
) -> None:
    weight = books.task_weight
    back = books.heaviest_first(other, node, stable)
    for task in books.heaviest_first(node, other, stable):
        if is_corrected and task not in books.tasks[node]:
            continue
        for returned in back:
            if is_corrected and returned not in books.tasks[other]:
                continue
            own = books.weight[node]
            # The loop would reject all tasks one by one for a pair of nodes without room.
            if target - books.weight[other] < SIGNIFICANT * own:
                return
            new_own = max(0.0, own - weight[task] + weight[returned])
            new_other = max(0.0, books.weight[other] + weight[task] - weight[returned])
            if (
                own >= target
                and own > 0
                and new_other <= target
                and new_own <= own
                and (own - new_own) / own >= SIGNIFICANT
            ):
                books.remove(node, task)
                books.add(other, task)
                books.remove(other, returned)
                books.add(node, returned)
                if is_corrected:
                    break
