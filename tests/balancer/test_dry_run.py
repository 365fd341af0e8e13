"""A dry run asks a new planner what it would do, and weighs work as it does."""

import pytest

from hermes_actors.balancer.dry_run import DryRun
from hermes_actors.balancer.leader import Wanted, Workload
from hermes_actors.balancer.workload.problem import Planned, Settings
from hermes_actors.coordination.commands import (
    Assignment,
    Claim,
    Join,
    Loads,
    Plan,
    Target,
    TaskLoad,
)
from hermes_actors.coordination.state import State
from hermes_actors.errors import Unavailable

BUSY, IDLE, NEW, RESTING = (f"shop.orders${name}" for name in ("busy", "idle", "new", "resting"))


class Planner:
    """Gives everything to one boot, in two steps."""

    latest = Planned((), unplaced=3, has_more=True)

    def plan(self, state, workload):
        names = sorted(workload.subscriptions)
        yield
        yield
        return tuple(Assignment(name, (Target("b1", (0,)),), "all") for name in names)


@pytest.fixture
def state():
    state = State()
    names = (BUSY, IDLE, RESTING)
    plan = tuple(Assignment(name, (Target("b1", (0,)),)) for name in names)
    loads = {BUSY: TaskLoad(cpu=0.5), IDLE: TaskLoad(cpu=0.1), RESTING: TaskLoad(cpu=0.3)}
    for at, said in enumerate(
        (
            Join("b1", "node-a"),
            Claim("b1", 1),
            Plan("b1", 1, -1, plan),
            Loads("b1", 0.6, 1.0, loads),
            Plan("b1", 1, 2, (Assignment(NEW, (Target("b2", (0,)),)),)),
        )
    ):
        state.apply(at, 100 * at, said)
    return state


@pytest.fixture
def workload():
    return Workload({BUSY: Wanted(1), NEW: Wanted(1), RESTING: Wanted(1, is_suspended=True)})


async def test_a_dry_run_tells_what_a_new_planner_would_change(state, workload):
    before = state.snapshot()
    dry_run = DryRun(lambda: workload, Planner, Settings())
    proposal = await dry_run.propose(state)
    assert [each.subscription for each in proposal.assignments] == [BUSY, NEW, RESTING]
    assert (proposal.unplaced, proposal.has_more) == (3, True)
    assert state.snapshot() == before


def test_work_weighs_what_was_measured_and_new_work_as_the_usual(state, workload):
    weights = DryRun(lambda: workload, Planner, Settings(idle_weight=0.25)).weights(state)
    assert weights.subscriptions[BUSY] == pytest.approx(500.0)
    assert weights.subscriptions[IDLE] == pytest.approx(100.0)
    assert weights.subscriptions[NEW] == pytest.approx(300.0)
    assert weights.of_task("shop.other$x", 1, 1) == 0.25


async def test_nothing_is_proposed_while_the_metadata_is_unknown(state):
    dry_run = DryRun(lambda: None, Planner, Settings())
    with pytest.raises(Unavailable, match="metadata"):
        await dry_run.propose(state)
    assert dry_run.weights(state).subscriptions[BUSY] == pytest.approx(500.0)
