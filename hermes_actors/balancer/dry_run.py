"""What the planner would do now, asked by management; changes nothing."""

from collections.abc import Callable
from statistics import median
from typing import Protocol

from hermes_actors.balancer.leader import Planner, WorkloadSource
from hermes_actors.balancer.workload.problem import Planned, Settings
from hermes_actors.balancer.workload.weights import WEIGHT_UNKNOWN, weight_of
from hermes_actors.coordination.plan_views import Proposal
from hermes_actors.coordination.state import State
from hermes_actors.coordination.tally import Weights
from hermes_actors.errors import Unavailable
from hermes_actors.runtime.turns import in_turns


class RoundPlanner(Planner, Protocol):
    """A planner that tells what its last round came to."""

    latest: Planned


class DryRun:
    """Asks a planner of its own, new each time: a leader that began now would plan so. One that
    leads for long follows what is measured more slowly, so it may see less to do.
    """

    def __init__(
        self, workload: WorkloadSource, make_planner: Callable[[], RoundPlanner], settings: Settings
    ) -> None:
        self._workload = workload
        self._make_planner = make_planner
        self._task_min = settings.idle_weight

    def weights(self, state: State) -> Weights:
        """What all work weighs, as measured; what was not measured yet, as the usual does."""
        known = {
            name: weight_of(ownership.load)
            for name, ownership in state.subscriptions.items()
            if ownership.load is not None
        }
        usual = median(known.values()) if known else WEIGHT_UNKNOWN
        weights = {name: known.get(name, usual) for name in state.subscriptions}
        return Weights(weights, self._task_min)

    async def propose(self, state: State) -> Proposal:
        """What would change; a trio coroutine. Raises Unavailable while nobody could plan."""
        workload = self._workload()
        if workload is None:
            raise Unavailable("The metadata is not read yet, so nothing can be planned; try again")
        planner = self._make_planner()
        assignments = await in_turns(planner.plan(state, workload))
        latest = planner.latest
        return Proposal(assignments, self.weights(state), latest.unplaced, latest.has_more)
