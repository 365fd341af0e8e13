"""The books of a planning round: which node has which task, and each node's load.

Weights are integers here (millionths of a weight), so that sums are exact in any order and equal
clusters give equal plans.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from hermes_actors.balancer.workload.problem import PlannedNode

GRAINS = 1_000_000
"""Grains in a weight of 1."""


class Task:
    """One owner's part of a subscription.

    `was` is its node in the last plan, -1 if it had none that could keep it. `at` is its node now.
    Moving it away from `home` counts as a move; a task without a home has to start anyway.
    """

    __slots__ = (
        "at",
        "home",
        "is_stable",
        "number",
        "partitions",
        "share",
        "was",
        "weight",
        "work",
    )

    def __init__(
        self, number: int, work: int, partitions: tuple[int, ...], weight: int, share: float | None
    ) -> None:
        self.number = number
        self.work = work
        self.partitions = partitions
        self.weight = weight
        self.share = share
        self.was = self.home = self.at = -1
        self.is_stable = True


class Books:
    """The nodes that may own tasks, by number, each with its tasks sorted by weight."""

    def __init__(self, nodes: Sequence[PlannedNode], tasks_max: int) -> None:
        self.nodes = nodes
        self.tasks_max = tasks_max
        self.capacity = [max(node.capacity * node.speed, 1e-9) for node in nodes]
        self.tasks: list[Task] = []
        self.load = [0] * len(nodes)
        self.total = 0
        self.on: list[list[tuple[int, int]]] = [[] for _ in nodes]
        """For each node its tasks as (weight, number), lightest first."""
        self.made_way: list[Task] = []
        """Tasks that were moved from a full node to make room for another task."""
        self.works: list[dict[int, int]] = [{} for _ in nodes]
        """For each node the works that it has a task of, with the task's number."""

    def add(self, work: int, partitions: tuple[int, ...], weight: int, share: float | None) -> Task:
        """Add a task that is on no node yet."""
        task = Task(len(self.tasks), work, partitions, weight, share)
        self.tasks.append(task)
        self.total += weight
        return task

    def put(self, task: Task, node: int) -> None:
        """Assign a task that is on no node."""
        assert task.at < 0
        assert task.work not in self.works[node], "a subscription's owners are distinct nodes"
        task.at = node
        self.load[node] += task.weight
        self.works[node][task.work] = task.number
        insort(self.on[node], (task.weight, task.number))

    def take(self, task: Task) -> None:
        """Take a task from its node."""
        node, task.at = task.at, -1
        del self.works[node][task.work]
        self.load[node] -= task.weight
        tasks = self.on[node]
        del tasks[bisect_left(tasks, (task.weight, task.number))]

    def move(self, task: Task, node: int) -> None:
        """Move a task to another node."""
        self.take(task)
        self.put(task, node)

    def has_room(self, node: int) -> bool:
        """True if the node may have one more task."""
        return len(self.on[node]) < self.tasks_max
