"""A dry run asks a new planner what it would do, and weighs work as it does."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.balancer.dry_run import PlanDryRun
from hermes_actors.balancer.leader import Ownable, Workload
from hermes_actors.balancer.planning import WorkloadPlanner
from hermes_actors.balancer.workload.problem import (
    Planned,
    PlannedNode,
    PlannedOwner,
    PlannerSettings,
    Problem,
    Strategy,
    Work,
)
from hermes_actors.coordination.commands import (
    Assignment,
    Join,
    Loads,
    Plan,
    Target,
    TaskLoad,
    TermClaim,
)
from hermes_actors.coordination.plan_views import plan_view_in_steps
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.errors import Unavailable
from hermes_actors.runtime.turns import at_once

BUSY, IDLE, NEW, RESTING = (f"shop.orders${name}" for name in ("busy", "idle", "new", "resting"))


class Planner:
    """Gives everything to one boot, in two steps."""

    latest = Planned((), unplaced=3, has_more=True)
    asked = Problem(
        nodes=(
            PlannedNode("b1", "node-a", 4.0, 0.5),
            PlannedNode("b2", "node-b", 4.0, is_draining=True),
        ),
        works=(
            Work(BUSY, 1, 480.0, (PlannedOwner("b1", (0,)),)),
            Work(NEW, 1, 300.0),
            Work(RESTING, 1, 300.0, is_suspended=True),
        ),
        settings=PlannerSettings(idle_weight=0.25),
    )

    def plan(self, state, workload):
        names = sorted(workload.subscriptions)
        yield
        yield
        return tuple(Assignment(name, (Target("b1", (0,)),), "all") for name in names)


@pytest.fixture
def state():
    state = CoordinationState()
    names = (BUSY, IDLE, RESTING)
    plan = tuple(Assignment(name, (Target("b1", (0,)),)) for name in names)
    loads = {BUSY: TaskLoad(cpu=0.5), IDLE: TaskLoad(cpu=0.1), RESTING: TaskLoad(cpu=0.3)}
    for at, said in enumerate(
        (
            Join("b1", "node-a"),
            TermClaim("b1", 1),
            Plan("b1", 1, -1, plan),
            Loads("b1", 0.6, 1.0, loads),
            Plan("b1", 1, 2, (Assignment(NEW, (Target("b2", (0,)),)),)),
        )
    ):
        state.apply(at, 100 * at, said)
    return state


@pytest.fixture
def workload():
    return Workload({BUSY: Ownable(1), NEW: Ownable(1), RESTING: Ownable(1, is_suspended=True)})


async def test_a_dry_run_tells_what_a_new_planner_would_change(state, workload):
    before = state.snapshot()
    dry_run = PlanDryRun(lambda: workload, Planner, PlannerSettings())
    proposal = await dry_run.propose(state)
    assert [each.subscription for each in proposal.assignments] == [BUSY, NEW, RESTING]
    assert (proposal.unplaced, proposal.has_more) == (3, True)
    assert state.snapshot() == before


def test_work_weighs_what_was_measured_and_new_work_as_the_usual(state, workload):
    weights = PlanDryRun(lambda: workload, Planner, PlannerSettings(idle_weight=0.25)).weights(
        state
    )
    assert weights.subscriptions[BUSY] == pytest.approx(500.0)
    assert weights.subscriptions[IDLE] == pytest.approx(100.0)
    assert weights.subscriptions[NEW] == pytest.approx(300.0)
    assert weights.of_task("shop.other$x", 1, 1) == 0.25


async def test_nothing_is_proposed_while_the_metadata_is_unknown(state):
    dry_run = PlanDryRun(lambda: None, Planner, PlannerSettings())
    with pytest.raises(Unavailable, match="metadata"):
        await dry_run.propose(state)
    assert dry_run.weights(state).subscriptions[BUSY] == pytest.approx(500.0)


async def test_a_proposal_weighs_work_and_nodes_as_its_planner_did(state, workload):
    proposal = await PlanDryRun(lambda: workload, Planner, PlannerSettings()).propose(state)
    tasks = {name: proposal.weights.of_task(name, 1, 1) for name in (BUSY, NEW, RESTING, IDLE)}
    assert tasks == {BUSY: 480.0, NEW: 300.0, RESTING: 0.25, IDLE: 0.25}
    assert proposal.capacities == {"b1": 2.0}


class Cluster:
    """Owned work that a planner has spread, and what its nodes have measured since."""

    def __init__(self, seed, nodes, works, strategy):
        rng = random.Random(seed)
        self.state = CoordinationState()
        self.settings = PlannerSettings(strategy, stable_s=0.0)
        boots = [f"b{at}" for at in range(nodes)]
        wanted = {f"shop.t{at}$s": Ownable(rng.randint(1, 4)) for at in range(works)}
        self.say(*(Join(boot, f"node-{boot}", rng.choice([1.0, 4.0])) for boot in boots))
        self.say(TermClaim("b0", 1))
        assignments = at_once(self.planner().plan(self.state, Workload(wanted)))
        self.say(Plan("b0", 1, self.state.plan_offset, assignments))
        self.workload = Workload(
            {
                name: Ownable(
                    each.partitions, is_suspended=each.partitions == 1 and rng.random() < 0.3
                )
                for name, each in wanted.items()
            }
        )
        for boot in boots:
            own = {
                name: TaskLoad(cpu=rng.uniform(0.0, 0.3))
                for name, ownership in self.state.subscriptions.items()
                if any(grant.boot == boot for grant in ownership.grants)
            }
            cpu = sum(load.cpu for load in own.values()) * rng.choice([0.7, 1.0, 1.5])
            self.say(Loads(boot, cpu, rng.choice([1.0, 2.0, 4.0]), own))

    def say(self, *saids):
        for said in saids:
            at = self.state.position
            self.state.apply(at, 100 * at, said)

    def planner(self):
        return WorkloadPlanner(self.settings, lambda _name: 0.0)


@given(
    st.integers(0, 2**32),
    st.integers(2, 5),
    st.integers(2, 20),
    st.sampled_from(list(Strategy)),
)
async def test_a_plan_for_balance_alone_never_shows_a_larger_skew(seed, nodes, works, strategy):
    cluster = Cluster(seed, nodes, works, strategy)
    dry_run = PlanDryRun(lambda: cluster.workload, cluster.planner, cluster.settings)
    view = at_once(plan_view_in_steps(cluster.state, await dry_run.propose(cluster.state)))
    assert view.after.max_to_mean <= view.before.max_to_mean + 0.001
