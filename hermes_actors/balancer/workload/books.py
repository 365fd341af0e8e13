"""The books of a planning round: which node has which task, and what it costs.

Weights are whole numbers inside (millionths of a weight), so that sums are exact in any order and
equal clusters give equal plans.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from hermes_actors.balancer.workload.problem import PlannedNode

GRAINS = 1_000_000
"""How many a weight of 1 has."""


class Task:
    """One owner's part of a subscription.

    `was` is the node that has it by the last plan, -1 if no node could keep it. `at` is its node
    now. Taking it from `home` costs a move; a task without a home has to start anyway.
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
    """The nodes that may own something, by number, each with its tasks in the order of weight."""

    def __init__(self, nodes: Sequence[PlannedNode], tasks_max: int) -> None:
        self.nodes = nodes
        self.tasks_max = tasks_max
        self.capacity = [max(node.capacity * node.speed, 1e-9) for node in nodes]
        self.tasks: list[Task] = []
        self.load = [0] * len(nodes)
        self.total = 0
        self.on: list[list[tuple[int, int]]] = [[] for _ in nodes]
        """For each node its tasks, as (weight, number), the lightest first."""
        self.made_way: list[Task] = []
        """The tasks that went from a full node so that another one had room."""
        self.works: list[dict[int, int]] = [{} for _ in nodes]
        """For each node the works that it has a task of, with the task's number."""

    def add(self, work: int, partitions: tuple[int, ...], weight: int, share: float | None) -> Task:
        """A task more, on no node yet."""
        task = Task(len(self.tasks), work, partitions, weight, share)
        self.tasks.append(task)
        self.total += weight
        return task

    def put(self, task: Task, node: int) -> None:
        """Give a task that is on no node to one."""
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
        """Take a task from its node and give it to another."""
        self.take(task)
        self.put(task, node)

    def has_room(self, node: int) -> bool:
        """True when the node may have one task more."""
        return len(self.on[node]) < self.tasks_max
