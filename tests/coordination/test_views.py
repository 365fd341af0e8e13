"""Views of hand-made states: what people are shown is what the state says."""

import pytest

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Loads,
    Plan,
    Release,
    Target,
    TaskLoad,
    TermClaim,
)
from hermes_actors.coordination.plan_views import NodePlanView, Proposal, plan_view_in_steps
from hermes_actors.coordination.room import OwnershipLimits, drained, is_drain_ignored
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import PlannerWeights, tally_in_steps
from hermes_actors.coordination.views import (
    LoadView,
    member_views,
    move_view,
    skew_of,
    skew_of_members,
    subscription_view,
    unassigned_reason,
)
from hermes_actors.runtime.turns import at_once

ORDERS = "shop.orders$billing"
PAGES = "shop.pages$search"
T0_MS = 1_700_000_000_000


class Book:
    """A state, and its records as they are appended."""

    def __init__(self):
        self.state = CoordinationState()
        self.at = 0
        self.ms = T0_MS

    def say(self, *saids, after_ms=100):
        for said in saids:
            self.ms += after_ms
            self.state.apply(self.at, self.ms, said)
            self.at += 1

    def pass_s(self, seconds, *boots):
        """Log time goes on; these live."""
        for number in range(2 * seconds):
            self.say(*(Heartbeat(boot, number) for boot in boots), after_ms=500 // len(boots))

    def plan(self, *assignments, boot="b1"):
        state = self.state
        self.say(Plan(boot, state.term, state.plan_offset, assignments))


def tally(state, weights):
    return at_once(tally_in_steps(state, weights))


def plan_view(state, proposal):
    return at_once(plan_view_in_steps(state, proposal))


def members(state, weights, draining=()):
    return member_views(state, tally(state, weights), draining)


def orders(*targets, reason="new: 2 owners", name=ORDERS):
    return Assignment(name, tuple(Target(*target) for target in targets), reason)


@pytest.fixture
def book():
    """Two nodes, b1 leads, and one subscription on both."""
    book = Book()
    book.say(Join("b1", "node-a", 4.0, "1.0"), Join("b2", "node-b", 2.0, "1.1"), TermClaim("b1", 1))
    book.plan(orders(("b1", (0, 2), 0.75), ("b2", (1,), 0.25)))
    return book


def test_members_are_shown_by_node_with_what_they_have(book):
    book.say(Loads("b1", 0.5, 3.5, {ORDERS: TaskLoad(10.0, 2_048.0, 0.25, 0.5)}))
    book.say(Heartbeat("b1", 1), after_ms=400)
    first, second = members(book.state, PlannerWeights({ORDERS: 30.0}), ["node-b"])
    assert (first.node, first.boot, first.version, first.cores) == ("node-a", "b1", "1.0", 4.0)
    assert (first.is_leader, first.is_draining, second.is_draining) == (True, False, True)
    assert (first.tasks, first.targets, first.partitions) == (1, 1, 2)
    assert first.load == LoadView(10.0, 2_048.0, 0.25)
    assert (first.cpu, first.cpu_available) == (0.5, 3.5)
    assert (second.cpu, second.cpu_available) == (None, None)
    assert first.weight == pytest.approx(20.0)
    assert second.weight == pytest.approx(10.0)
    assert (first.heard_ago_ms, first.lease_left_ms) == (0, 3_000)
    assert (second.heard_ago_ms, second.lease_left_ms) == (700, 2_300)
    assert second.member_for_s == pytest.approx(0.7)


def test_a_subscription_is_shown_with_its_owners_their_partitions_and_shares(book):
    view = subscription_view(book.state, ORDERS, PlannerWeights({ORDERS: 30.0}))
    first, second = view.owners
    assert (first.node, first.partitions, first.share, first.wanted_share) == (
        "node-a", (0, 2), 0.75, 0.75,
    )  # fmt: skip
    assert (second.node, second.partitions, second.epoch) == ("node-b", (1,), 3)
    assert (view.weight, first.weight, second.weight) == (30.0, 20.0, 10.0)
    assert (view.waiting, view.moved_ago_s, view.planned_at_offset) == ((), None, 3)
    assert not first.is_to_release


def test_a_subscription_that_nobody_knows_has_nobody(book):
    view = subscription_view(book.state, PAGES, PlannerWeights())
    assert (view.owners, view.waiting, view.load, view.weight) == ((), (), None, 0.0)


def test_who_waits_is_shown_with_whom_he_waits_for_and_since_when(book):
    book.say(Join("b3", "node-c", 4.0))
    book.plan(orders(("b3", (0, 2)), ("b2", (1,)), reason="node-c joined"))
    book.pass_s(2, "b1", "b2", "b3")
    view = subscription_view(book.state, ORDERS, PlannerWeights())
    leaving, staying = view.owners
    assert (leaving.node, leaving.is_to_release) == ("node-a", True)
    assert (staying.node, staying.is_to_release) == ("node-b", False)
    (waiting,) = view.waiting
    assert (waiting.node, waiting.partitions) == ("node-c", (0, 2))
    assert waiting.waits_for == "node node-a to release partitions 0, 2"
    assert waiting.waiting_for_s == pytest.approx(2.0, abs=0.1)
    (member,) = [each for each in members(book.state, PlannerWeights()) if each.node == "node-c"]
    assert (member.tasks, member.targets) == (0, 1)
    book.say(Release("b1", ORDERS, 3))
    after = subscription_view(book.state, ORDERS, PlannerWeights())
    assert after.waiting == ()
    assert {each.node for each in after.owners} == {"node-b", "node-c"}


def test_who_is_to_have_what_and_is_gone_waits_for_the_leader(book):
    book.say(Leave("b2"))
    (waiting,) = subscription_view(book.state, ORDERS, PlannerWeights()).waiting
    assert waiting.node == "node-b"
    assert "the leader" in waiting.waits_for
    assert "no member" in waiting.waits_for


def test_why_nobody_runs_something(book):
    state = book.state
    assert unassigned_reason(state, ORDERS) is None
    assert unassigned_reason(state, PAGES) == "the leader has not planned it yet"
    book.say(Leave("b1"))
    assert "no leader" in str(unassigned_reason(state, PAGES))
    book.say(Leave("b2"))
    assert "no node" in str(unassigned_reason(state, PAGES))
    assert "no node" in str(unassigned_reason(state, ORDERS))


@pytest.mark.parametrize(
    ("nodes", "heaviest", "ratios"),
    [
        ([("a", 30.0, 1.0), ("b", 10.0, 1.0)], 5.0, (1.5, 1.5)),
        # The heaviest task alone is more than the mean: nobody could do better.
        ([("a", 30.0, 1.0), ("b", 10.0, 1.0)], 30.0, (1.5, 1.0)),
        # Twice the cores may carry twice as much.
        ([("a", 20.0, 2.0), ("b", 10.0, 1.0)], 1.0, (1.0, 1.0)),
        ([("a", 0.0, 1.0), ("b", 0.0, 1.0)], 0.0, (1.0, 1.0)),
        ([], 0.0, (1.0, 1.0)),
    ],
)
def test_skew_is_beside_the_mean_and_beside_what_is_possible(nodes, heaviest, ratios):
    skew = skew_of(nodes, heaviest)
    assert (skew.max_to_mean, skew.max_to_ideal) == ratios
    assert skew.nodes == len(nodes)


def test_drained_nodes_do_not_count_as_badly_loaded_ones(book):
    weights = PlannerWeights({ORDERS: 30.0})
    everybody = skew_of_members(members(book.state, weights), 20.0)
    assert (everybody.nodes, everybody.highest_node) == (2, "node-a")
    without = skew_of_members(members(book.state, weights, ["node-b"]), 20.0)
    assert (without.nodes, without.max_to_mean) == (1, 1.0)
    both = skew_of_members(members(book.state, weights, ["node-a", "node-b"]), 20.0)
    assert both.nodes == 2


def test_what_has_no_room_says_so_and_the_way_out(book):
    few = OwnershipLimits(tasks_max=1)
    for name in ("shop.more$one", "shop.more$two"):
        reason = unassigned_reason(book.state, name, (), few)
        assert reason == (
            "no node has room: all 2 nodes have as many tasks as a node may have (1); start more "
            "nodes, or raise consumers.balancer.tasks_per_node_max"
        )
    # What is drained has no room either; what is there has it.
    assert "the one node" in str(unassigned_reason(book.state, PAGES, ["node-b"], few))
    assert unassigned_reason(book.state, ORDERS, (), few) is None
    roomy = OwnershipLimits(tasks_max=2)
    assert unassigned_reason(book.state, PAGES, (), roomy) == "the leader has not planned it yet"


def test_a_drain_counts_only_beside_a_node_that_is_not_drained(book):
    state = book.state
    assert drained(state, ["node-a"]) == ("node-a",)
    assert drained(state, ["node-z"]) == ("node-z",)
    assert drained(state, ["node-b", "node-a"]) == ()
    assert [is_drain_ignored(state, asked) for asked in (["node-a"], ["node-a", "node-b"], [])] == [
        False, True, False,
    ]  # fmt: skip
    book.say(Leave("b2"))
    assert drained(state, ["node-a"]) == ()
    book.say(Leave("b1"))
    assert drained(state, ["node-a"]) == ()
    assert not is_drain_ignored(state, ["node-a"])


def test_the_least_of_a_task_counts_for_idle_work(book):
    weights = PlannerWeights({}, task_min=0.5)
    assert [each.weight for each in members(book.state, weights)] == [0.5, 0.5]
    assert tally(book.state, weights).heaviest == 0.5
    assert tally(book.state, PlannerWeights({ORDERS: 30.0})).heaviest == pytest.approx(20.0)


def test_a_move_is_shown_in_seconds_since_the_epoch(book):
    (move,) = book.state.moves
    shown = move_view(move)
    assert shown.moved_at == pytest.approx(T0_MS / 1_000 + 0.4)
    assert (shown.subscription, shown.reason, shown.term) == (ORDERS, "new: 2 owners", 1)
    assert (shown.before, shown.after) == ((), ("node-a", "node-b"))


def test_a_plan_is_shown_with_loads_before_and_after(book):
    book.plan(orders(("b1", (0,)), name=PAGES, reason="new: 1 owner"))
    proposal = Proposal(
        (orders(("b2", (0,)), name=PAGES, reason="weight 12 → node node-b"),),
        PlannerWeights({ORDERS: 6.0, PAGES: 12.0}),
        {"b1": 4.0, "b2": 1.0},
        has_more=True,
    )
    before = book.state.snapshot()
    view = plan_view(book.state, proposal)
    assert book.state.snapshot() == before
    (change,) = view.changes
    assert (change.subscription, change.reason) == (PAGES, "weight 12 → node node-b")
    assert ([each.node for each in change.before], change.moves) == (["node-a"], 1)
    assert [each.node for each in change.after] == ["node-b"]
    assert view.nodes == (
        NodePlanView("node-a", "b1", 4.0, 4.0, False, 2, 1, 16.0, 4.0),
        NodePlanView("node-b", "b2", 2.0, 1.0, False, 1, 2, 2.0, 14.0),
    )
    assert (view.before.highest_node, view.after.highest_node) == ("node-a", "node-b")
    assert (view.before.highest, view.after.highest) == (4.0, 14.0), "for each of its capacity"
    assert (view.moves, view.has_more, view.term, view.base) == (1, True, 1, 4)


def test_a_plan_that_only_changes_shares_moves_nothing(book):
    proposal = Proposal((orders(("b1", (0, 2), 0.5), ("b2", (1,), 0.5)),), PlannerWeights(), {})
    view = plan_view(book.state, proposal)
    assert (len(view.changes), view.moves) == (1, 0)
    assert [each.share for each in view.changes[0].after] == [0.5, 0.5]


def test_a_new_subscription_counts_after_the_plan_only(book):
    proposal = Proposal((orders(("b2", (0,)), name=PAGES),), PlannerWeights({PAGES: 3.0}), {})
    view = plan_view(book.state, proposal)
    assert [(each.tasks_before, each.tasks_after) for each in view.nodes] == [(1, 1), (1, 2)]
    assert view.changes[0].before == ()
    assert view.moves == 1
