"""The leader's planner: it translates the log's state and the workload into a planning problem, and
the solution into assignments. It also adjusts rate shares to what owners use.
"""

from collections.abc import Callable, Generator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.balancer.workload.planner import plan_in_steps
from hermes_actors.balancer.workload.problem import (
    PlannedNode,
    PlannedOwner,
    PlannerSettings,
    Problem,
    Work,
)
from hermes_actors.balancer.workload.shares import Use, share_out
from hermes_actors.balancer.workload.speeds import NodeCost, Speeds
from hermes_actors.balancer.workload.weights import WeightHistory
from hermes_actors.coordination.commands import Assignment
from hermes_actors.coordination.reasons import GONE, SHARES, Reason
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Ownership

_IN_A_STEP = 64
_NOBODY = Ownership()


class Ownable(Struct, frozen=True):
    """A subscription that needs owners. `constraint` is the number of owners that an administrator
    has set. `is_pulled`: clients need to ask one owner only.
    """

    partitions: int
    constraint: int | None = None
    is_suspended: bool = False
    is_pulled: bool = False


class Workload(Struct, frozen=True):
    """The subscriptions that need owners, by name, and the names of draining nodes.

    `has_run`: something was consumed here before, so nodes may own it even if a new or truncated
    log does not show that.
    """

    subscriptions: Mapping[str, Ownable]
    draining: Sequence[str] = ()
    has_run: bool = False


class WorkloadPlanner:
    """Plans by measured weights. `rate_of` returns a subscription's maximum rate in messages a
    second; 0 if it has none.

    It remembers measurements to smooth them. A new leader begins with those in the log.
    """

    def __init__(self, settings: PlannerSettings, rate_of: Callable[[str], float]) -> None:
        self._settings = settings
        self._rate_of = rate_of
        self._weights = WeightHistory()
        self._speeds = Speeds()

    def plan(
        self, state: CoordinationState, workload: Workload
    ) -> Generator[None, None, tuple[Assignment, ...]]:
        """Compute the changes to the state's targets; empty if there are none."""
        # Copy everything now: the state changes while the planner runs.
        ownerships = dict(state.subscriptions)
        members = list(state.members.values())
        gone = {departed.boot: departed.node for departed in state.departed}
        now_s = state.clock_s
        yield
        loads = {name: ownerships.get(name, _NOBODY).load for name in workload.subscriptions}
        weights = self._weights.update(now_s, loads)
        yield
        carried = _carried(ownerships, weights)
        costs = {
            each.boot: NodeCost(
                each.cores, each.load.cpu, each.load.cpu_available, carried.get(each.boot, 0.0)
            )
            for each in members
            if each.load is not None
        }
        speeds = self._speeds.update(now_s, costs)
        yield
        problem = Problem(
            nodes=tuple(
                PlannedNode(
                    member.boot,
                    member.node,
                    member.cores,
                    speeds.get(member.boot, 1.0),
                    member.node in workload.draining or member.is_stopping,
                    member.is_stopping,
                )
                for member in members
            ),
            works=tuple(
                _work(name, wanted, weights[name], ownerships.get(name, _NOBODY))
                for name, wanted in workload.subscriptions.items()
            ),
            now_s=now_s,
            settings=self._settings,
            gone=gone,
        )
        planned = yield from plan_in_steps(problem)
        assignments = list(planned.assignments)
        moving = {each.subscription for each in assignments}
        for at, (name, ownership) in enumerate(sorted(ownerships.items())):
            if name not in workload.subscriptions:
                if ownership.targets:
                    assignments.append(Assignment(name, (), (Reason(GONE),)))
            elif name not in moving and len(ownership.targets) > 1:
                assignments += self._share(name, ownership)
            if at % _IN_A_STEP == 0:
                yield
        return tuple(assignments)

    def _share(self, name: str, ownership: Ownership) -> list[Assignment]:
        """Return new shares for owners that stay, if an owner that needs more can have more."""
        used = {grant.boot: grant.load.used for grant in ownership.grants if grant.load is not None}
        uses = {each.boot: Use(each.share, used.get(each.boot)) for each in ownership.targets}
        shares = share_out(self._rate_of(name), uses)
        targets = tuple(replace(each, share=shares[each.boot]) for each in ownership.targets)
        if targets == ownership.targets:
            return []
        return [Assignment(name, targets, (Reason(SHARES),))]


def _work(name: str, wanted: Ownable, weight: float, ownership: Ownership) -> Work:
    moved_ms = ownership.moved_log_ms
    return Work(
        name,
        wanted.partitions,
        weight,
        tuple(PlannedOwner(each.boot, each.partitions, each.share) for each in ownership.targets),
        wanted.constraint,
        None if moved_ms is None else moved_ms / 1_000,
        wanted.is_suspended,
        wanted.is_pulled,
    )


def _carried(ownerships: dict[str, Ownership], weights: dict[str, float]) -> dict[str, float]:
    """The weight of what each boot owns."""
    carried: dict[str, float] = {}
    for name, ownership in ownerships.items():
        # The partitions of a lost node have no owner yet; the others still carry only their own
        # part.
        owned = sum(len(grant.partitions) for grant in ownership.grants)
        count = max(owned, sum(len(target.partitions) for target in ownership.targets))
        for grant in ownership.grants:
            part = weights.get(name, 0.0) * len(grant.partitions) / max(1, count)
            carried[grant.boot] = carried.get(grant.boot, 0.0) + part
    return carried
