"""The reasons why each subscription's owners change in a round, as codes with parameters."""

from collections.abc import Sequence

from hermes_actors.balancer.workload.books import GRAINS, Task
from hermes_actors.balancer.workload.demand import OwnerDemand
from hermes_actors.balancer.workload.exchanges import Step
from hermes_actors.balancer.workload.problem import PlannedNode, Problem, Work
from hermes_actors.coordination import reasons
from hermes_actors.coordination.reasons import Reason


class RoundReasons:
    """Records what happens to tasks during a round, and derives the reasons of each
    subscription.
    """

    def __init__(self, problem: Problem, nodes: Sequence[PlannedNode]) -> None:
        self._nodes = nodes
        self._tasks_max = problem.settings.tasks_max
        self._known = {node.boot: node for node in problem.nodes}
        self._gone = problem.gone
        self._moved: dict[int, Reason] = {}
        self._evicted: dict[int, Reason] = {}

    def evicted(self, task: Task, node: int) -> None:
        """Record that the task must leave, because its node has too many tasks."""
        self._evicted[task.number] = Reason(
            reasons.NODE_FULL, {"node": self._nodes[node].name, "tasks": self._tasks_max}
        )

    def balanced(self, step: Step) -> None:
        """Record a step that was taken."""
        source = self._nodes[step.bounds.source].name
        sink = self._nodes[step.bounds.sink].name
        self._moved[step.gone.number] = _moved(step.gone, source, sink)
        if step.back is not None:
            self._moved[step.back.number] = _moved(step.back, sink, source)

    def of(self, work: Work, demand: OwnerDemand, tasks: Sequence[Task]) -> tuple[Reason, ...]:
        """Return why this subscription's owners change, the most important reason first."""
        found: list[Reason] = []
        if not work.owners and demand.owners:
            found.append(Reason(reasons.NEW, {"owners": demand.owners}))
        for owner in work.owners:
            node = self._known.get(owner.boot)
            if node is None:
                name = self._gone.get(owner.boot, owner.boot)
                found.append(Reason(reasons.NODE_LEFT, {"node": name}))
            elif node.is_draining:
                code = reasons.NODE_STOPS if node.is_stopping else reasons.NODE_DRAINED
                found.append(Reason(code, {"node": node.name}))
        had = sum(len(owner.partitions) for owner in work.owners)
        if demand.owners != len(work.owners) and (work.owners or not demand.owners):
            found.append(Reason(reasons.OWNERS, {"owners": demand.owners, "cause": demand.cause}))
        elif work.owners and had != work.partitions:
            found.append(Reason(reasons.PARTITIONS, {"partitions": work.partitions}))
        if demand.missing:
            found.append(Reason(reasons.NO_ROOM, {"missing": demand.missing}))
        found += [self._evicted[task.number] for task in tasks if task.number in self._evicted]
        moved = [task.number for task in tasks if task.at != task.was >= 0]
        found += [self._moved[number] for number in moved if number in self._moved]
        return tuple(found) or (Reason(reasons.DIVIDED),)


def _moved(task: Task, source: str, sink: str) -> Reason:
    weight = float(f"{task.weight / GRAINS:.3g}")
    return Reason(reasons.BALANCE, {"weight": weight, "source": source, "sink": sink})
