"""Sums up the work of a coordination state by node, weighted like the planner's books."""

from collections.abc import Generator

from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Ownership
from hermes_actors.coordination.weights import Weights

_IN_A_STEP = 100
"""Subscriptions between two yields: 10 µs each."""


class NodeTally:
    """The sums of one boot: what it owns, and what it is planned to own."""

    __slots__ = ("partitions", "targets", "tasks", "weight")

    def __init__(self) -> None:
        self.tasks = self.targets = self.partitions = 0
        self.weight = 0.0


class WorkTally:
    """The work of a state by boot; `heaviest` is the weight of the heaviest task."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeTally] = {}
        self.heaviest = 0.0

    def of(self, boot: str) -> NodeTally:
        """Return the sums of one boot."""
        return self.nodes.setdefault(boot, NodeTally())

    def add(self, name: str, ownership: Ownership, weights: Weights) -> None:
        """Add one subscription."""
        partitions = 0
        for target in ownership.targets:
            self.of(target.boot).targets += 1
            partitions += len(target.partitions)
        for grant in ownership.grants:
            own, node = len(grant.partitions), self.of(grant.boot)
            weight = weights.of_task(name, own, max(own, partitions))
            node.tasks += 1
            node.partitions += own
            node.weight += weight
            self.heaviest = max(self.heaviest, weight)


def tally_in_steps(state: CoordinationState, weights: Weights) -> Generator[None, None, WorkTally]:
    """The tally of a state, with a pause at each yield, about a millisecond apart. Changes made
    meanwhile may or may not be included.
    """
    tally = WorkTally()
    for count, (name, ownership) in enumerate(list(state.subscriptions.items())):
        tally.add(name, ownership, weights)
        if count % _IN_A_STEP == _IN_A_STEP - 1:
            yield
    return tally
