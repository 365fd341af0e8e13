"""All work of a coordination state, summed up by node, as the planner's books weigh it."""

from collections.abc import Generator, Mapping

from msgspec import Struct

from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Ownership

_IN_A_STEP = 100
"""Subscriptions: 10 µs each."""


class PlannerWeights(Struct, frozen=True):
    """The weights of work in the planner's books: `subscriptions` all owners together, a task its
    part of the partitions, but `task_min` at the least.
    """

    subscriptions: Mapping[str, float] = {}
    task_min: float = 0.0

    def of_task(self, subscription: str, partitions: int, all_partitions: int) -> float:
        """Return the weight of a task with so many of all the partitions that are to be owned."""
        weight = self.subscriptions.get(subscription, 0.0)
        return max(self.task_min, weight * partitions / max(1, all_partitions))


class NodeTally:
    """The sums over one boot: what it owns, and what it is to own."""

    __slots__ = ("cpu", "messages", "partitions", "size_bytes", "targets", "tasks", "weight")

    def __init__(self) -> None:
        self.tasks = self.targets = self.partitions = 0
        self.weight = self.messages = self.size_bytes = self.cpu = 0.0


class WorkTally:
    """All work of a state, summed up by boot; `heaviest` is what the heaviest task weighs, and
    `waiting` counts what is to be owned and is not yet.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeTally] = {}
        self.heaviest = 0.0
        self.waiting = 0

    def of(self, boot: str) -> NodeTally:
        """Return the sums of one boot."""
        return self.nodes.setdefault(boot, NodeTally())

    def add(
        self, state: CoordinationState, name: str, ownership: Ownership, weights: PlannerWeights
    ) -> None:
        """Add one subscription."""
        self.waiting += len(state.waiting(name))
        partitions = 0
        for target in ownership.targets:
            self.of(target.boot).targets += 1
            partitions += len(target.partitions)
        for grant in ownership.grants:
            own, load, node = len(grant.partitions), grant.load, self.of(grant.boot)
            weight = weights.of_task(name, own, max(own, partitions))
            node.tasks += 1
            node.partitions += own
            node.weight += weight
            self.heaviest = max(self.heaviest, weight)
            if load is not None:
                node.messages += load.messages
                node.size_bytes += load.size_bytes
                node.cpu += load.cpu


def tally_in_steps(
    state: CoordinationState, weights: PlannerWeights
) -> Generator[None, None, WorkTally]:
    """The tally of a state, with a pause at each yield, a millisecond or so apart; what changes
    meanwhile may be in it or not.
    """
    tally = WorkTally()
    for count, (name, ownership) in enumerate(list(state.subscriptions.items())):
        tally.add(state, name, ownership, weights)
        if count % _IN_A_STEP == _IN_A_STEP - 1:
            yield
    return tally
