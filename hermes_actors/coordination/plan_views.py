"""A plan as people see it before it is made: who would own what, and how loaded nodes would be. It
changes nothing.
"""

from collections.abc import Collection, Generator, Mapping

from msgspec import Struct

from hermes_actors.coordination.commands import Assignment, Target
from hermes_actors.coordination.owning import owners
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import PlannerWeights
from hermes_actors.coordination.views import SkewView, skew_of

_IN_A_STEP = 100
"""Subscriptions: 10 µs each."""


class Proposal(Struct, frozen=True):
    """The assignments that a planner would have the leader say now, the weights that it used, and
    the capacity of each boot that may own some, beside the others.

    `unplaced` owners are wanted and no node has room for them. `has_more`: it would go on in its
    next round.
    """

    assignments: tuple[Assignment, ...]
    weights: PlannerWeights
    capacities: Mapping[str, float]
    unplaced: int = 0
    has_more: bool = False


class PartView(Struct, frozen=True, rename="camel"):
    """A node's part of a subscription."""

    node: str
    partitions: tuple[int, ...]
    share: float


class ChangeView(Struct, frozen=True, rename="camel"):
    """A subscription whose owners would change, or only their shares of its rate. `weight`: what
    all its tasks together weigh for the planner.
    """

    subscription: str
    reason: str
    weight: float
    moves: int
    before: tuple[PartView, ...]
    after: tuple[PartView, ...]


class NodePlanView(Struct, frozen=True, rename="camel"):
    """A node before and after the plan. `capacity` is what it can carry beside the others: its
    cores, times how fast work goes on there; 0 for one that is to own nothing.
    """

    node: str
    boot: str
    cores: float
    capacity: float
    is_draining: bool
    tasks_before: int
    tasks_after: int
    weight_before: float
    weight_after: float


class PlanView(Struct, frozen=True, rename="camel"):
    """The changes of a plan. `moves`: tasks that would begin on a node that does not have them
    now.
    """

    term: int
    base: int
    changes: tuple[ChangeView, ...]
    nodes: tuple[NodePlanView, ...]
    before: SkewView
    after: SkewView
    moves: int
    unplaced: int
    has_more: bool


def plan_view_in_steps(
    state: CoordinationState, proposal: Proposal, draining: Collection[str] = ()
) -> Generator[None, None, PlanView]:
    """A proposal that was made on this state, as people see it; with a pause at each yield, a
    millisecond or so apart.
    """
    wanted = {each.subscription: each.targets for each in proposal.assignments}
    books = _Books(state, proposal)
    for count, (name, ownership) in enumerate(list(state.subscriptions.items())):
        if count % _IN_A_STEP == _IN_A_STEP - 1:
            yield
        books.count(books.before, name, ownership.targets)
        books.count(books.after, name, wanted.get(name, ownership.targets))
    for name, targets in wanted.items():
        if name not in state.subscriptions:
            books.count(books.after, name, targets)
    changes = []
    for each in sorted(proposal.assignments, key=lambda each: each.subscription):
        changes.append(_change_view(state, each, proposal.weights))
        if len(changes) % _IN_A_STEP == 0:
            yield
    return PlanView(
        term=state.term,
        base=state.plan_offset,
        changes=tuple(changes),
        nodes=books.node_views(draining),
        before=books.skew(books.before),
        after=books.skew(books.after),
        moves=sum(each.moves for each in changes),
        unplaced=proposal.unplaced,
        has_more=proposal.has_more,
    )


class _Side:
    """Tasks and weight of each boot, before or after."""

    def __init__(self) -> None:
        self.tasks: dict[str, int] = {}
        self.weight: dict[str, float] = {}
        self.heaviest = 0.0


class _Books:
    def __init__(self, state: CoordinationState, proposal: Proposal) -> None:
        self._weights = proposal.weights
        self._capacities = proposal.capacities
        self._members = sorted(state.members.values(), key=lambda each: (each.node, each.boot))
        self.before = _Side()
        self.after = _Side()

    def count(self, side: _Side, name: str, targets: tuple[Target, ...]) -> None:
        partitions = sum(len(target.partitions) for target in targets)
        for target in targets:
            weight = self._weights.of_task(name, len(target.partitions), partitions)
            side.tasks[target.boot] = side.tasks.get(target.boot, 0) + 1
            side.weight[target.boot] = side.weight.get(target.boot, 0.0) + weight
            side.heaviest = max(side.heaviest, weight)

    def node_views(self, draining: Collection[str]) -> tuple[NodePlanView, ...]:
        return tuple(
            NodePlanView(
                node=each.node,
                boot=each.boot,
                cores=each.cores,
                capacity=round(self._capacities.get(each.boot, 0.0), 3),
                is_draining=each.node in draining,
                tasks_before=self.before.tasks.get(each.boot, 0),
                tasks_after=self.after.tasks.get(each.boot, 0),
                weight_before=round(self.before.weight.get(each.boot, 0.0), 3),
                weight_after=round(self.after.weight.get(each.boot, 0.0), 3),
            )
            for each in self._members
        )

    def skew(self, side: _Side) -> SkewView:
        nodes = [
            (each.node, side.weight.get(each.boot, 0.0), self._capacities[each.boot])
            for each in self._members
            if each.boot in self._capacities
        ]
        return skew_of(nodes, side.heaviest)


def _change_view(
    state: CoordinationState, assignment: Assignment, weights: PlannerWeights
) -> ChangeView:
    name = assignment.subscription
    before = state.targets_of(name)
    had: Mapping[str, tuple[int, ...]] = owners(before)
    sets = [target.partitions for target in assignment.targets or before]
    partitions = sum(map(len, sets))
    return ChangeView(
        subscription=name,
        reason=assignment.reason,
        weight=round(sum(weights.of_task(name, len(own), partitions) for own in sets), 3),
        moves=sum(had.get(target.boot) != target.partitions for target in assignment.targets),
        before=tuple(_part_view(state, target) for target in before),
        after=tuple(_part_view(state, target) for target in assignment.targets),
    )


def _part_view(state: CoordinationState, target: Target) -> PartView:
    return PartView(state.node_of(target.boot), target.partitions, round(target.share, 4))
