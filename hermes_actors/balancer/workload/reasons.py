"""Why a subscription's owners change, in words for people."""

from collections.abc import Sequence

from hermes_actors.balancer.workload.books import GRAINS, Task
from hermes_actors.balancer.workload.demand import OwnerDemand
from hermes_actors.balancer.workload.exchanges import Step
from hermes_actors.balancer.workload.problem import PlannedNode, Problem, Work


class Reasons:
    """Gathers what happens to tasks during a round, and tells it for each subscription."""

    def __init__(self, problem: Problem, nodes: Sequence[PlannedNode]) -> None:
        self._nodes = nodes
        self._names = {**problem.gone, **{node.boot: node.name for node in problem.nodes}}
        self._living = {node.boot for node in problem.nodes}
        self._open = {node.boot for node in nodes}
        self._stopping = {node.boot for node in problem.nodes if node.is_stopping}
        self._moved: dict[int, str] = {}
        self._evicted: dict[int, str] = {}

    def evicted(self, task: Task, node: int, tasks_max: int) -> None:
        """Note that the task has to go, for its node has more tasks than it may have."""
        name = self._nodes[node].name
        self._evicted[task.number] = f"node {name} has its maximum of {tasks_max} tasks"

    def counted(self, task: Task, tasks: int) -> None:
        """The task has moved because its new node, which has so many now, had the fewest."""
        self._moved[task.number] = (
            f"→ node {self._nodes[task.at].name}, which had the fewest tasks ({tasks - 1})"
        )

    def weighed(self, step: Step, target: float, load: float, is_new: bool) -> None:
        """A step that was taken; `load` and `target` are the receiving node's, before it."""
        source = self._nodes[step.bounds.source].name
        sink = self._nodes[step.bounds.sink].name
        weight = _weight(step.gone.weight)
        if is_new:
            why = f"node {sink} was empty: takes its share"
        else:
            why = f"weight {weight} → node {sink}, {_distance(load, target)}"
        if step.back:
            why += f", in exchange for {_weight(sum(task.weight for task in step.back))}"
        self._moved[step.gone.number] = why
        for task in step.back:
            self._moved[task.number] = (
                f"weight {_weight(task.weight)} → node {source}, in exchange for {weight}"
            )

    def of(self, work: Work, demand: OwnerDemand, tasks: Sequence[Task]) -> str:
        """Return why this subscription's owners change, the weightiest cause first."""
        causes: list[str] = []
        count = _owners(demand.owners)
        if not demand.owners:
            causes.append(f"no owner: {demand.cause}")
        elif not work.owners:
            causes.append(f"new: {count}")
        for owner in work.owners:
            name = self._names.get(owner.boot, owner.boot)
            if owner.boot not in self._living:
                causes.append(f"node {name} left")
            elif owner.boot in self._stopping:
                causes.append(f"node {name} stops")
            elif owner.boot not in self._open:
                causes.append(f"node {name} is drained")
        if work.owners and demand.owners and demand.owners != len(work.owners):
            causes.append(f"now {count}: {demand.cause}")
        elif work.owners and demand.owners and not _covers(work):
            causes.append(f"now {work.partitions} partitions")
        if demand.missing:
            causes.append(f"{_owners(demand.missing)} missing: {demand.cause}")
        causes += [self._evicted[task.number] for task in tasks if task.number in self._evicted]
        moved = [task.number for task in tasks if task.at != task.was >= 0]
        causes += [self._moved[number] for number in moved if number in self._moved]
        return "; ".join(causes) or "its partitions are divided evenly"


def _covers(work: Work) -> bool:
    return sum(len(owner.partitions) for owner in work.owners) == work.partitions


def _owners(count: int) -> str:
    return f"{count} owner{'' if count == 1 else 's'}"


def _weight(grains: int) -> str:
    return f"{grains / GRAINS:.3g}"


def _distance(load: float, target: float) -> str:
    percent = 100 * (target - load) / target
    if percent >= 0.5:
        return f"which is {percent:.0f} % below its target"
    if percent <= -0.5:
        return f"which is {-percent:.0f} % above its target"
    return "which is at its target"
