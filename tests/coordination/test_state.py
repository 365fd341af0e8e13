"""The fold of the coordination log: members, leaders, plans, grants, shares, loads."""

import pytest

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Loads,
    Plan,
    RateState,
    Release,
    Said,
    Stopping,
    Target,
    TaskLoad,
    TermClaim,
    Undecodable,
)
from hermes_actors.coordination.reasons import Reason
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import NOTHING, Changed

SUB = "shop.orders$push"
OTHER = "shop.orders$audit"


class Story:
    """Appends records a while apart, and folds them."""

    def __init__(self) -> None:
        self.state = CoordinationState()
        self.at_ms = 1_700_000_000_000

    def say(self, said: Said | None, after_s: float = 0.0) -> Changed:
        self.at_ms += int(after_s * 1_000)
        return self.state.apply(self.state.position, self.at_ms, said)

    def begin(self, *boots: str) -> "Story":
        """They join; the first leads in term 1."""
        for boot in boots:
            self.say(Join(boot, f"node-{boot}"))
        self.say(TermClaim(boots[0], 1))
        return self

    def plan(self, *targets: Target, sub: str = SUB, reason: str = "", leader: str = "") -> Changed:
        state = self.state
        reasons = (Reason("balance", {"weight": reason}),) if reason else ()
        assignment = Assignment(sub, targets, reasons)
        return self.say(Plan(leader or state.leader, state.term, state.plan_offset, (assignment,)))

    def beat(self, *boots: str, for_s: float) -> None:
        """So much log time passes, with heartbeats."""
        for _ in range(int(for_s * 2)):
            self.say(None, 0.5)
            for boot in boots:
                self.say(Heartbeat(boot, 1))

    def owners(self, sub: str = SUB) -> dict[str, tuple[int, ...]]:
        return {grant.boot: grant.partitions for grant in self.state.grants(sub)}


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_member_is_gone_after_more_than_three_seconds_of_log_time_without_a_heartbeat(story):
    story.begin("a", "b")
    for _ in range(3):
        story.say(Heartbeat("a", 1), 1.0)
    assert set(story.state.members) == {"a", "b"}
    changed = story.say(Heartbeat("a", 2), 0.001)
    assert changed.members
    assert set(story.state.members) == {"a"}
    assert story.state.departed[-1].node == "node-b"
    assert story.state.departed[-1].is_expired
    assert story.state.expired == 1


def test_a_life_that_is_over_cannot_join_again(story):
    story.begin("a", "b")
    story.say(Leave("b"))
    assert story.say(Join("b", "node-b")) is NOTHING
    assert story.say(Join("b2", "node-b")).members


def test_an_hour_without_records_expires_nobody(story):
    story.begin("a", "b")
    story.say(Heartbeat("a", 1), 3_600.0)
    story.say(Heartbeat("b", 1))
    assert set(story.state.members) == {"a", "b"}
    assert story.state.clock_s == 1.0


def test_timestamps_that_step_back_do_not_move_log_time(story):
    story.begin("a")
    story.say(Heartbeat("a", 1), 0.5)
    story.say(None, -3_600.0)
    story.say(None, 0.25)
    assert story.state.clock_s == 0.75


def test_the_first_claim_of_the_next_term_wins(story):
    story.say(Join("a", "node-a"))
    story.say(Join("b", "node-b"))
    assert story.say(TermClaim("b", 1)).leader
    assert story.say(TermClaim("a", 1)) is NOTHING
    assert (story.state.leader, story.state.term) == ("b", 1)


def test_partitions_that_are_held_are_granted_when_they_are_released(story):
    story.begin("a", "b")
    story.plan(Target("a", (0, 1)))
    epoch = story.state.grants(SUB)[0].epoch
    story.plan(Target("b", (0, 1)))
    assert story.owners() == {"a": (0, 1)}
    assert story.state.must_release("a", SUB)
    assert story.state.waiting(SUB) == (Target("b", (0, 1)),)
    story.say(Release("a", SUB, epoch, RateState("adapt", 12.5)))
    assert story.owners() == {"b": (0, 1)}
    assert story.state.grants(SUB)[0].epoch == story.state.position - 1
    assert story.state.rate_of(SUB) == RateState("adapt", 12.5)
    assert story.state.waiting(SUB) == ()


def test_an_owner_with_the_same_partitions_keeps_its_grant_and_epoch(story):
    story.begin("a", "b")
    story.plan(Target("a", (0, 1)))
    epoch = story.state.grants(SUB)[0].epoch
    story.plan(Target("a", (1, 0), 0.5), Target("b", (2,), 0.5))
    assert story.state.grants_of("a")[SUB].epoch == epoch
    assert story.state.grants_of("a")[SUB].share == 0.5
    assert not story.state.must_release("a", SUB)


def test_a_release_that_comes_twice_does_not_free_the_next_grant(story):
    story.begin("a", "b")
    story.plan(Target("a", (0,)))
    release = Release("a", SUB, story.state.grants(SUB)[0].epoch)
    # The target stands, so it is granted again at once, in a new epoch.
    story.say(release)
    assert story.owners() == {"a": (0,)}
    story.plan(Target("b", (0,)))
    assert story.say(release) is NOTHING
    assert story.owners() == {"a": (0,)}


def test_a_target_that_is_not_a_member_yet_is_granted_when_it_joins(story):
    story.begin("a")
    story.plan(Target("b", (0,)))
    assert story.owners() == {}
    assert story.say(Join("b", "node-b")) == Changed((SUB,), members=True)
    assert story.owners() == {"b": (0,)}


def test_a_subscription_without_targets_and_grants_is_forgotten(story):
    story.begin("a")
    story.plan(Target("a", (0,)))
    epoch = story.state.grants(SUB)[0].epoch
    story.plan()
    assert story.state.must_release("a", SUB)
    story.say(Release("a", SUB, epoch))
    assert SUB not in story.state.subscriptions
    assert not story.state.grants_of("a")


@pytest.mark.parametrize("wrong", ["boot", "term", "base"])
def test_a_stale_plan_changes_nothing(story, wrong):
    story.begin("a", "b")
    story.plan(Target("a", (0,)))
    state = story.state
    plan = Plan(
        "b" if wrong == "boot" else "a",
        state.term - (wrong == "term"),
        -1 if wrong == "base" else state.plan_offset,
        (Assignment(SUB, ()),),
    )
    assert story.say(plan) is NOTHING
    assert state.targets_of(SUB) == (Target("a", (0,)),)


@pytest.mark.parametrize(
    "targets",
    [
        (Target("a", (0,)), Target("a", (1,))),
        (Target("a", (0,)), Target("b", (0,))),
        (Target("a", (0, 0)),),
        (Target("a", (-1,)),),
        (Target("a", ()),),
        (Target("a", (0,), 1.5),),
        (Target("a", (0,), -0.1),),
    ],
)
def test_an_assignment_that_makes_no_sense_is_left_out(story, targets):
    story.begin("a", "b")
    good = Assignment(OTHER, (Target("b", (0,)),))
    story.say(Plan("a", 1, -1, (Assignment(SUB, targets), good)))
    assert story.state.targets_of(SUB) == ()
    assert story.owners(OTHER) == {"b": (0,)}


def test_a_share_that_rises_waits_until_the_others_can_no_longer_use_theirs(story):
    story.begin("a", "b")
    story.plan(Target("a", (0,), 0.8), Target("b", (1,), 0.2))
    assert story.state.share_of(SUB, "a") == 0.8
    story.plan(Target("a", (0,), 0.3), Target("b", (1,), 0.7))
    assert story.state.share_of(SUB, "a") == 0.3
    assert story.state.share_of(SUB, "b") == pytest.approx(0.2)
    story.beat("a", "b", for_s=2.5)
    assert story.state.share_of(SUB, "b") == pytest.approx(0.2)
    assert SUB in story.say(None, 0.5).subscriptions
    assert story.state.share_of(SUB, "b") == pytest.approx(0.7)


def test_what_was_released_or_expired_counts_no_more(story):
    story.begin("a", "b")
    story.plan(Target("a", (0,), 1.0))
    epoch = story.state.grants(SUB)[0].epoch
    story.plan(Target("b", (0,), 1.0))
    assert story.state.share_of(SUB, "b") == 0.0
    story.say(Release("a", SUB, epoch))
    assert story.state.share_of(SUB, "b") == 1.0
    assert story.state.share_of(SUB, "a") == 0.0


def test_loads_are_smoothed_and_outlive_a_move(story):
    story.begin("a", "b")
    story.plan(Target("a", (0,)))
    story.say(Loads("a", 0.5, 2.0, {SUB: TaskLoad(100, 1_000, 0.1, 0.5)}))
    assert story.state.subscriptions[SUB].load.messages == 100
    story.beat("a", "b", for_s=10)
    story.say(Loads("a", 0.5, 2.0, {SUB: TaskLoad(800, 8_000, 0.8, 0.9)}))
    assert story.state.subscriptions[SUB].load.messages == pytest.approx(200)
    assert story.state.grants(SUB)[0].load.used == 0.9
    epoch = story.state.grants(SUB)[0].epoch
    story.plan(Target("b", (0,)))
    story.say(Release("a", SUB, epoch))
    assert story.state.subscriptions[SUB].load.messages == pytest.approx(200)
    assert story.state.members["a"].load.cpu == 0.5


def test_moves_are_told_with_their_reason_and_the_nodes(story):
    story.begin("a", "b")
    story.plan(Target("a", (0,)), reason="first")
    story.plan(Target("a", (0,), 0.5))
    story.plan(Target("b", (0,)), reason="node a left")
    moves = [
        (move.reasons[0].params["weight"], move.before, move.after) for move in story.state.moves
    ]
    assert moves == [("first", (), ("node-a",)), ("node a left", ("node-a",), ("node-b",))]
    assert story.state.subscriptions[SUB].moved_log_ms == story.state.clock_ms


def test_what_a_stopping_node_releases_is_not_its_own_again(story: Story) -> None:
    story.begin("a", "b")
    story.plan(Target("b", (0, 1)))
    story.plan(Target("b", (0,)), sub=OTHER)
    assert story.say(Stopping("b")) == Changed((), members=True)
    assert story.owners() == {"b": (0, 1)}
    story.say(Release("b", SUB, story.state.grants(SUB)[0].epoch))
    assert story.owners() == {}
    assert story.owners(OTHER) == {"b": (0,)}
    story.plan(Target("a", (0, 1)))
    assert story.owners() == {"a": (0, 1)}
    # What is planned for it all the same waits for nobody.
    story.plan(Target("b", (0, 1)), sub="shop.orders$late")
    assert story.owners("shop.orders$late") == {}
    assert CoordinationState.restored(story.state.snapshot()) == story.state


def test_a_leader_that_stops_leads_no_more_and_cannot_claim(story: Story) -> None:
    story.begin("a", "b")
    assert story.say(Stopping("a")) == Changed((), members=True, leader=True)
    story.say(TermClaim("a", 2))
    assert story.state.leader == ""
    story.say(TermClaim("b", 2))
    assert story.state.leader == "b"
    assert story.say(Stopping("a")) == NOTHING
    assert story.say(Stopping("stranger")) == NOTHING


def test_a_state_restored_from_a_snapshot_is_equal_and_goes_on_alike(story):
    story.begin("a", "b")
    story.plan(Target("a", (0,), 0.8), Target("b", (1,), 0.2))
    story.say(Loads("a", 0.5, 2.0, {SUB: TaskLoad(100, 1_000, 0.1, 0.5)}))
    story.plan(Target("a", (0,), 0.3), Target("b", (1,), 0.7))
    restored = CoordinationState.restored(story.state.snapshot())
    assert restored == story.state
    for said in (None, Leave("a"), Heartbeat("b", 4), None, None):
        story.at_ms += 800
        offset = story.state.position
        changed = story.state.apply(offset, story.at_ms, said)
        assert restored.apply(offset, story.at_ms, said) == changed
        assert restored == story.state
        assert restored.share_of(SUB, "b") == story.state.share_of(SUB, "b")


def test_a_snapshot_of_a_large_cluster_fits_into_few_records(story):
    story.begin(*(f"boot-{number}" for number in range(50)))
    boots = list(story.state.members)
    assignments = tuple(
        Assignment(
            f"group.topic-{number}$subscription-{number}",
            (
                Target(boots[number % 50], (0, 1, 2, 3, 4), 0.5),
                Target(boots[(number + 7) % 50], (5, 6, 7, 8, 9), 0.5),
            ),
        )
        for number in range(3_000)
    )
    story.say(Plan(boots[0], 1, -1, assignments))
    assert len(story.state.snapshot()) < 200_000


@pytest.mark.parametrize("packed", [b"", b"hc1\n", b"hc1\nxyz", b"hc2\nxyz"])
def test_a_snapshot_that_is_damaged_or_foreign_is_refused(packed):
    with pytest.raises(Undecodable):
        CoordinationState.restored(packed)
