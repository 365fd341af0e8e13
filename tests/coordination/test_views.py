"""Views of hand-made states: what people are shown is what the state says."""

import pytest
from msgspec.structs import replace

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
from hermes_actors.coordination.reasons import NEW, Reason
from hermes_actors.coordination.room import OwnershipLimits, drained, is_drain_ignored
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import tally_in_steps
from hermes_actors.coordination.views import (
    change_view,
    member_views,
    move_view,
    skew_of_members,
    subscription_view,
    unassigned_reason,
)
from hermes_actors.coordination.weights import Weights, weights_of
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


def members(state, weights, draining=()):
    return member_views(state, tally(state, weights), draining)


def orders(*targets, name=ORDERS):
    reasons = (Reason(NEW, {"owners": len(targets)}),)
    return Assignment(name, tuple(Target(*target) for target in targets), reasons)


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
    first, second = members(book.state, Weights({ORDERS: 30.0}), ["node-b"])
    assert (first.node, first.boot, first.version, first.cores) == ("node-a", "b1", "1.0", 4.0)
    assert (first.is_leader, first.is_draining, second.is_draining) == (True, False, True)
    assert (first.tasks, first.targets, first.partitions) == (1, 1, 2)
    assert (first.cpu, first.cpu_available) == (0.5, 3.5)
    assert (second.cpu, second.cpu_available) == (None, None)
    assert first.weight == pytest.approx(20.0)
    assert second.weight == pytest.approx(10.0)
    assert (first.heard_ago_ms, first.lease_left_ms) == (0, 3_000)
    assert (second.heard_ago_ms, second.lease_left_ms) == (700, 2_300)
    assert second.member_for_s == pytest.approx(0.7)


def test_a_subscription_is_shown_with_its_owners_their_partitions_and_shares(book):
    view = subscription_view(book.state, ORDERS, Weights({ORDERS: 30.0}))
    first, second = view.owners
    assert (first.node, first.partitions, first.share, first.wanted_share) == (
        "node-a", (0, 2), 0.75, 0.75,
    )  # fmt: skip
    assert (second.node, second.partitions, second.epoch) == ("node-b", (1,), 3)
    assert (view.weight, first.weight, second.weight) == (30.0, 20.0, 10.0)
    assert (view.waiting, view.moved_ago_s, view.planned_at_offset) == ((), None, 3)
    assert not first.is_to_release


def test_who_waits_is_shown_with_whom_he_waits_for_and_since_when(book):
    book.say(Join("b3", "node-c", 4.0))
    book.plan(orders(("b3", (0, 2)), ("b2", (1,))))
    book.pass_s(2, "b1", "b2", "b3")
    view = subscription_view(book.state, ORDERS, Weights())
    leaving, staying = view.owners
    assert (leaving.node, leaving.is_to_release) == ("node-a", True)
    assert (staying.node, staying.is_to_release) == ("node-b", False)
    (waiting,) = view.waiting
    assert (waiting.node, waiting.partitions) == ("node-c", (0, 2))
    assert waiting.waits_for == ("node-a",)
    assert waiting.waiting_for_s == pytest.approx(2.0, abs=0.1)
    (member,) = [each for each in members(book.state, Weights()) if each.node == "node-c"]
    assert (member.tasks, member.targets) == (0, 1)
    book.say(Release("b1", ORDERS, 3))
    after = subscription_view(book.state, ORDERS, Weights())
    assert after.waiting == ()
    assert {each.node for each in after.owners} == {"node-b", "node-c"}


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
    ("weight", "heaviest", "ratios"),
    [
        (30.0, 5.0, (1.5, 1.5)),
        # The heaviest task alone is more than the mean: nobody could do better.
        (30.0, 120.0, (1.5, 1.0)),
        (0.0, 0.0, (1.0, 1.0)),
    ],
)
def test_skew_is_beside_the_mean_and_beside_what_is_possible(book, weight, heaviest, ratios):
    one, other = members(book.state, Weights())
    one = replace(one, weight=weight * one.cores)
    other = replace(other, weight=0.0)
    skew = skew_of_members([one, other], heaviest)
    assert (skew.max_to_mean, skew.max_to_ideal, skew.nodes) == (*ratios, 2)


def test_what_has_no_room_says_so_and_the_way_out(book):
    few = OwnershipLimits(tasks_max=1)
    for name in ("shop.more$one", "shop.more$two"):
        reason = unassigned_reason(book.state, name, (), few)
        assert reason == (
            "no node has room: nodes: 2, each with its maximum of tasks (1); start more "
            "nodes, or raise consumers.balancer.tasks_per_node_max"
        )
    # What is drained has no room either; what is there has it.
    assert "nodes: 1" in str(unassigned_reason(book.state, PAGES, ["node-b"], few))
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


def test_a_task_weighs_its_part_of_what_is_measured_and_something_when_idle(book):
    assert [each.weight for each in members(book.state, Weights())] == [0.2, 0.2]
    book.say(Loads("b1", 0.5, 3.5, {ORDERS: TaskLoad(cpu=0.015)}))
    book.say(Loads("b2", 0.5, 3.5, {ORDERS: TaskLoad(cpu=0.015)}))
    weights = weights_of(book.state)
    assert weights.subscriptions == {ORDERS: pytest.approx(30.0)}
    assert tally(book.state, weights).heaviest == pytest.approx(20.0)


def test_a_move_is_shown_in_seconds_since_the_epoch_with_its_reason_as_data_and_text(book):
    (move,) = book.state.moves
    shown = move_view(move)
    assert shown.moved_at == pytest.approx(T0_MS / 1_000 + 0.4)
    assert (shown.subscription, shown.reason, shown.term) == (ORDERS, "new, owners: 2", 1)
    assert shown.reasons == (Reason(NEW, {"owners": 2}),)
    assert (shown.before, shown.after) == ((), ("node-a", "node-b"))


def test_a_planned_change_is_shown_with_the_owners_before_and_after(book):
    change = change_view(book.state, orders(("b2", (0, 1, 2))))
    assert [(each.node, each.partitions) for each in change.before] == [
        ("node-a", (0, 2)), ("node-b", (1,)),
    ]  # fmt: skip
    assert [(each.node, each.partitions) for each in change.after] == [("node-b", (0, 1, 2))]
    assert change.moves == 1
    only_shares = change_view(book.state, orders(("b1", (0, 2), 0.5), ("b2", (1,), 0.5)))
    assert only_shares.moves == 0
