"""The leader's planner: what the log says and what there is to be owned, as a problem; the answer,
and shares of the rate that follow what owners use, as assignments.
"""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from hermes_actors.balancer.leader import Ownable, Workload
from hermes_actors.balancer.workload.planner import plan_in_steps
from hermes_actors.balancer.workload.problem import (
    Planned,
    PlannedNode,
    PlannedOwner,
    PlannerSettings,
    Problem,
    Strategy,
    Work,
)
from hermes_actors.balancer.workload.shares import Use, share_out
from hermes_actors.balancer.workload.speeds import NodeCost, Speeds
from hermes_actors.balancer.workload.weights import WeightHistory
from hermes_actors.coordination.commands import Assignment
from hermes_actors.coordination.restarting import restarting_since
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Ownership

_IN_A_STEP = 64
_NOBODY = Ownership()


class WorkloadPlanner:
    """Plans by measured weights. `rate_of` tells a subscription's maximum rate, in messages a
    second; 0 when it has none.

    Its memory smooths what is measured; a new leader's begins with what the log says.
    """

    def __init__(self, settings: PlannerSettings, rate_of: Callable[[str], float]) -> None:
        self._settings = settings
        self._rate_of = rate_of
        self._weights = WeightHistory()
        self._speeds = Speeds()
        self.asked = Problem((), ())
        """The problem of the last round: nodes and work as they were weighed."""
        self.latest = Planned(())
        """The outcome of the last round, but for shares."""

    def plan(
        self, state: CoordinationState, workload: Workload
    ) -> Generator[None, None, tuple[Assignment, ...]]:
        """The changes to what the state's targets say; none if all is well."""
        # All that is looked at, at once: the log goes on while it is thought about.
        ownerships = dict(state.subscriptions)
        members = list(state.members.values())
        gone = {departed.boot: departed.node for departed in state.departed}
        now_ms, now_s = state.clock_ms, state.clock_s
        since_ms = restarting_since(members, state.departed, now_ms)
        # Where tasks are counted, they have no window in which they stay.
        is_weighted = self._settings.strategy is Strategy.WEIGHTED
        window_ms = 1_000 * self._settings.stable_s if is_weighted else -1
        lately_ms = now_ms - window_ms if since_ms is None else since_ms
        yield
        loads = {name: ownerships.get(name, _NOBODY).load for name in workload.subscriptions}
        weights = self._weights.update(now_s, loads)
        yield
        carried = _carried(ownerships, weights)
        speeds = self._speeds.update(
            now_s,
            {
                member.boot: NodeCost(
                    member.cores,
                    member.load.cpu,
                    member.load.cpu_available,
                    carried.get(member.boot, 0.0),
                )
                for member in members
                if member.load is not None
            },
        )
        yield
        problem = self.asked = Problem(
            nodes=tuple(
                PlannedNode(
                    member.boot,
                    member.node,
                    member.cores,
                    speeds.get(member.boot, 1.0),
                    member.node in workload.draining or member.is_stopping,
                    since_ms is not None and member.joined_log_ms >= since_ms,
                    member.is_stopping,
                )
                for member in members
            ),
            works=tuple(
                _work(name, wanted, weights[name], ownerships.get(name, _NOBODY), lately_ms)
                for name, wanted in workload.subscriptions.items()
            ),
            now_s=now_s,
            settings=self._settings,
            gone=gone,
            is_restarting=since_ms is not None,
        )
        planned = self.latest = yield from plan_in_steps(problem)
        assignments = list(planned.assignments)
        moving = {each.subscription for each in assignments}
        for at, (name, ownership) in enumerate(sorted(ownerships.items())):
            if name not in workload.subscriptions:
                if ownership.targets:
                    assignments.append(Assignment(name, (), "it exists no more"))
            elif name not in moving and len(ownership.targets) > 1:
                assignments += self._share(name, ownership)
            if at % _IN_A_STEP == 0:
                yield
        return tuple(assignments)

    def _share(self, name: str, ownership: Ownership) -> list[Assignment]:
        """Return other shares for owners that stay, where one that needs more can have more."""
        used = {grant.boot: grant.load.used for grant in ownership.grants if grant.load is not None}
        uses = {each.boot: Use(each.share, used.get(each.boot)) for each in ownership.targets}
        shares = share_out(self._rate_of(name), uses)
        targets = tuple(replace(each, share=shares[each.boot]) for each in ownership.targets)
        return [] if targets == ownership.targets else [Assignment(name, targets, "shares")]


def _work(
    name: str, wanted: Ownable, weight: float, ownership: Ownership, lately_ms: float
) -> Work:
    moved_ms = ownership.moved_log_ms
    return Work(
        name,
        wanted.partitions,
        weight,
        tuple(PlannedOwner(each.boot, each.partitions, each.share) for each in ownership.targets),
        wanted.constraint,
        None if moved_ms is None else moved_ms / 1_000,
        wanted.is_suspended,
        {
            partition: moves
            for track in ownership.tracks
            if (moves := sum(at_ms >= lately_ms for at_ms in track.moved_log_ms))
            for partition in track.partitions
        },
    )


def _carried(ownerships: dict[str, Ownership], weights: dict[str, float]) -> dict[str, float]:
    """The weight of what each boot owns."""
    carried: dict[str, float] = {}
    for name, ownership in ownerships.items():
        # What a node had that is gone is nobody's yet: what the others carry is still their part.
        owned = sum(len(grant.partitions) for grant in ownership.grants)
        count = max(owned, sum(len(target.partitions) for target in ownership.targets))
        for grant in ownership.grants:
            part = weights.get(name, 0.0) * len(grant.partitions) / max(1, count)
            carried[grant.boot] = carried.get(grant.boot, 0.0) + part
    return carried
