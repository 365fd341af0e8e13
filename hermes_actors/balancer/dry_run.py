"""The plan that a leader would make now, for management to ask; changes nothing."""

from collections.abc import Callable
from statistics import median
from typing import Protocol

from hermes_actors.balancer.leader import Planner, WorkloadSource
from hermes_actors.balancer.workload.problem import Planned, PlannerSettings, Problem, Strategy
from hermes_actors.balancer.workload.weights import WEIGHT_UNKNOWN, weight_of
from hermes_actors.coordination.plan_views import Proposal
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import PlannerWeights
from hermes_actors.errors import Unavailable
from hermes_actors.runtime.turns import in_turns


class RoundPlanner(Planner, Protocol):
    """A planner that tells what its last round was about, and what it came to."""

    asked: Problem
    latest: Planned


class PlanDryRun:
    """Asks a planner of its own, new each time: a leader that began now would plan so. One that
    leads for long follows what is measured more slowly, so it may see less to do.
    """

    def __init__(
        self,
        workload: WorkloadSource,
        make_planner: Callable[[], RoundPlanner],
        settings: PlannerSettings,
    ) -> None:
        self._workload = workload
        self._make_planner = make_planner
        self._task_min = settings.idle_weight

    def weights(self, state: CoordinationState) -> PlannerWeights:
        """Return all weights as measured; a subscription not measured yet weighs the median."""
        known = {
            name: weight_of(ownership.load)
            for name, ownership in state.subscriptions.items()
            if ownership.load is not None
        }
        usual = median(known.values()) if known else WEIGHT_UNKNOWN
        weights = {name: known.get(name, usual) for name in state.subscriptions}
        return PlannerWeights(weights, self._task_min)

    async def propose(self, state: CoordinationState) -> Proposal:
        """Return what would change; a trio coroutine. Raises Unavailable while nobody can plan."""
        workload = self._workload()
        if workload is None:
            raise Unavailable("The metadata is not read yet, so nothing can be planned; try again")
        planner = self._make_planner()
        assignments = await in_turns(planner.plan(state, workload))
        asked, latest = planner.asked, planner.latest
        # As the planner weighed them: by other weights or capacities an evener plan looks worse.
        weights, capacities = _weighed(asked)
        return Proposal(assignments, weights, capacities, latest.unplaced, latest.has_more)


def _weighed(asked: Problem) -> tuple[PlannerWeights, dict[str, float]]:
    """Return the weights of the planner's books, and the capacity of each boot that may own
    work.
    """
    open_nodes = [node for node in asked.nodes if not node.is_draining]
    if asked.settings.strategy is Strategy.COUNT:
        return PlannerWeights({}, 1.0), {node.boot: 1.0 for node in open_nodes}
    weights = {work.name: 0.0 if work.is_suspended else work.weight for work in asked.works}
    capacities = {node.boot: node.capacity * node.speed for node in open_nodes}
    return PlannerWeights(weights, asked.settings.idle_weight), capacities
