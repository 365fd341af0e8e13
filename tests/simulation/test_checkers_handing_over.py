"""The checkers of fences, of last and late commits, and of lost ends can fail."""

from collections.abc import Iterable

import pytest

from hermes_actors.coordination.commands import Release
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, Interval, LastRead, encode
from hermes_actors.model.dead_letter import Letter
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.checkers.committing import LateCommitsAreMended, SettledStaySettled
from hermes_chaos.sim.checkers.fencing import FencesAreKept
from hermes_chaos.sim.environment.clock import EPOCH_MS
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import (
    Adopted,
    Attempted,
    Calmed,
    Committed,
    Dropped,
    Ended,
    Event,
    Lettered,
    Lettering,
    Overtaken,
    Sought,
    Stored,
    Troubled,
    coordination_of,
)
from hermes_chaos.sim.history.standing import Coordinated, Named, Renewed, Skewed
from hermes_chaos.sim.workload.subject import Audience, Subject

NAME, PLACE = "g.t$s", ("dc1", "g_t", 0)
SUBJECT = Subject({"g.t": Ack.ALL}, [Audience(NAME, "g.t", "group")])
OLD, NEW = "dc1-n1#1", "dc1-n2#1"
STORED = [Stored(PLACE, offset, f"id{offset}", b"", "g.t") for offset in range(5)]


def found(checker: Checker, events: Iterable[Event]) -> list[str]:
    for event in events:
        checker.watch(event)
    checker.finish()
    return checker.violations


def commit(position: int, *intervals: Interval, epoch: int = 1, seek: int = 0) -> Commit:
    return Commit(position, encode(position, intervals, CommitOwner(1, 1, epoch, seek)))


def committed(position: int, *intervals: Interval, epoch: int = 1, seek: int = 0) -> Committed:
    return Committed(PLACE, "group", commit(position, *intervals, epoch=epoch, seek=seek))


def attempted(offset: int, node: str = NEW, retries: int = 0, at_s: float = 5.0) -> Attempted:
    return Attempted(node, 1, NAME, f"id{offset}", retries, at_s)


def delivered(offset: int, at_s: float = 1.0) -> Ended:
    return Ended(attempted(offset, OLD, at_s=at_s), 200, "", at_s)


def released(at_s: float = 6.0) -> list[Event]:
    return [Named(OLD, "old"), Coordinated("dc1", 9, 0, Release("old", NAME, 1), at_s)]


def letter(at_ms: int) -> Letter:
    values = ("dc1", NAME, 1, "g_t", 0, 3, 0, None, b"", (), "id3", "expired", "", 1, 500, at_ms)
    return Letter(*values)


# Settled stay settled


@pytest.mark.parametrize(("offset", "is_wrong"), [(1, True), (2, False), (3, True), (4, False)])
def test_what_a_commit_covers_is_not_pushed_by_who_begins_with_it(
    offset: int, is_wrong: bool
) -> None:
    events = [*STORED, committed(2, (3, 4)), Adopted(NEW, NAME), attempted(offset)]
    assert bool(found(SettledStaySettled(SUBJECT), events)) is is_wrong


def test_a_commit_that_came_after_the_beginning_proves_nothing() -> None:
    events = [*STORED, committed(0), Adopted(NEW, NAME), committed(4), attempted(1)]
    assert found(SettledStaySettled(SUBJECT), events) == []


@pytest.mark.parametrize(("seek", "is_wrong"), [(0, False), (3, False), (4, True), (5, True)])
def test_nobody_begins_with_the_commit_of_who_has_not_heard_of_a_retransmission(
    seek: int, is_wrong: bool
) -> None:
    sought = Sought(OLD, NAME, 4, None, 0, 2.0)
    last = committed(4, seek=seek)
    events = [*STORED, committed(2), sought, committed(0, seek=4), last, Adopted(NEW, NAME)]
    assert bool(found(SettledStaySettled(SUBJECT), [*events, attempted(3)])) is is_wrong


@pytest.mark.parametrize(
    "excuse",
    [
        Sought(NEW, NAME, 1, None, 0, 2.0),
        Lettered("dc1", letter(0), 2.0),
        Stored(PLACE, 5, "id3", b"", "g.t"),
        Troubled("dc1", Fault.STALE_COMMITS, 2.0),
        committed(3, epoch=0),
    ],
    ids=["retransmitted", "given up", "stored twice", "stale commits", "a lower one"],
)
def test_what_may_be_pushed_again_is_no_repetition(excuse: Event) -> None:
    events = [*STORED, committed(4), Adopted(NEW, NAME), excuse, attempted(3)]
    assert found(SettledStaySettled(SUBJECT), events) == []


def test_who_began_with_a_stale_commit_has_no_newer_one_when_the_subscription_changes() -> None:
    misled = [Troubled("dc1", Fault.STALE_COMMITS, 2.0), Adopted(NEW, NAME), Calmed("dc1", 2.5)]
    events = [*STORED, committed(4), *misled]
    assert found(SettledStaySettled(SUBJECT), [*events, Adopted(NEW, NAME), attempted(3)]) == []
    again = [*events, Adopted(OLD, NAME), attempted(3, OLD)]
    assert found(SettledStaySettled(SUBJECT), again)
    handed_over = [Named(NEW, "new"), Coordinated("dc1", 9, 0, Release("new", NAME, 1), 3.0)]
    back = [*events, *handed_over, Adopted(NEW, NAME), attempted(3)]
    assert found(SettledStaySettled(SUBJECT), back)


def test_who_hands_over_has_committed_all_that_it_has_delivered() -> None:
    events = [*STORED, delivered(0), delivered(1), committed(1)]
    (violation,) = found(SettledStaySettled(SUBJECT), [*events, *released()])
    assert violation.endswith("committed id1 at 1 of ('dc1', 'g_t', 0)")
    assert found(SettledStaySettled(SUBJECT), [*events, committed(2), *released()]) == []


def test_what_was_delivered_and_lost_by_the_log_nobody_commits() -> None:
    events = [*STORED, delivered(3), Dropped(PLACE, 2), Stored(PLACE, 2, "new", b"", "g.t")]
    assert found(SettledStaySettled(SUBJECT), [*events, committed(3), *released()]) == []
    kept = [*STORED, delivered(3), Dropped(PLACE, 4), committed(3)]
    assert found(SettledStaySettled(SUBJECT), [*kept, *released()])


@pytest.mark.parametrize("where", ["dc1", "dc1-n1", coordination_of("dc1")])
def test_trouble_may_keep_the_last_commit_away(where: str) -> None:
    events = [*STORED, delivered(1), committed(1), Troubled(where, Fault.LOG_CUT, 3.0)]
    assert found(SettledStaySettled(SUBJECT), [*events, *released()]) == []
    long_ago = [*STORED, delivered(1), committed(1), Troubled(where, Fault.LOG_CUT, 0.1, 0.2)]
    assert found(SettledStaySettled(SUBJECT), [*long_ago, *released()])


@pytest.mark.parametrize(
    ("read", "is_wrong"),
    [(LastRead(3, 3, 1), False), (LastRead(3, 9, 2), True), (LastRead(1, 1, 1), True)],
    ids=["the lost record", "what came instead", "one that is still there"],
)
def test_a_commit_that_names_a_lost_record_as_read_last_says_nothing_of_what_came_instead(
    read: LastRead, is_wrong: bool
) -> None:
    said, again = (
        Committed(PLACE, "group", Commit(4, encode(4, (), CommitOwner(1, 1, epoch), last_read=r)))
        for epoch, r in ((1, LastRead(3, 3, 1)), (2, read))
    )
    lost = [Dropped(PLACE, 2), *(Stored(PLACE, at, f"new{at}", b"", "g.t") for at in (2, 3))]
    events = [*STORED, said, *lost, again, Adopted(NEW, NAME)]
    pushed = Attempted(NEW, 1, NAME, "new3", 0, 5.0)
    assert bool(found(SettledStaySettled(SUBJECT), [*events, pushed])) is is_wrong


# Late commits


@pytest.mark.parametrize(("last", "is_wrong"), [((), True), ((committed(1, seek=7),), False)])
def test_a_late_commit_of_before_a_retransmission_says_less_wherever_it_is(
    last: tuple[Committed, ...], is_wrong: bool
) -> None:
    late = commit(9)
    events = [
        committed(1, seek=7),
        Committed(PLACE, "group", late),
        Overtaken(PLACE, "group", late),
        *last,
    ]
    assert bool(found(LateCommitsAreMended(SUBJECT), events)) is is_wrong


@pytest.mark.parametrize(("end", "is_wrong"), [(2, False), (4, True)])
def test_a_late_commit_takes_nothing_back_of_what_the_log_has_lost(
    end: int, is_wrong: bool
) -> None:
    late = commit(2)
    events = [
        committed(4, epoch=2),
        Dropped(PLACE, end),
        Committed(PLACE, "group", late),
        Overtaken(PLACE, "group", late),
    ]
    checker = LateCommitsAreMended(SUBJECT)
    assert bool(found(checker, events)) is is_wrong


# Fences


def test_a_letter_is_decided_and_kept_within_fences() -> None:
    before: list[Event] = [Renewed(OLD, 1.0, 1.5)]
    heard = [*before, Renewed(OLD, 7.5, 8.0)]
    waited = Lettering(OLD, "dc1", letter(EPOCH_MS + 2_900), 9.0)
    assert found(FencesAreKept(), [*heard, waited]) == []
    assert found(FencesAreKept(), [*before, waited])
    late = Lettering(OLD, "dc1", letter(EPOCH_MS + 4_900), 9.0)
    assert found(FencesAreKept(), [*heard, late])
    never = Lettering(OLD, "dc1", letter(EPOCH_MS + 9_900), 9.0)
    assert found(FencesAreKept(), [*heard, never])


@pytest.mark.parametrize(("decided_s", "is_wrong"), [(0.9, True), (2.9, False), (3.1, True)])
@pytest.mark.parametrize("skew_ms", [0, 2_000, -1_000])
@pytest.mark.parametrize("then_ms", [-2_500, -500, 1_500])
def test_a_letter_is_decided_by_the_clock_as_it_was_though_it_waits_until_that_is_set(
    then_ms: int, skew_ms: int, decided_s: float, *, is_wrong: bool
) -> None:
    stamped = letter(EPOCH_MS + skew_ms + int(decided_s * 1_000))
    events = [
        Skewed("dc1-n1", skew_ms, 0.5),
        Renewed(OLD, 1.0, 1.5),
        Skewed("dc1-n1", then_ms, 3.2),
        Renewed(OLD, 7.5, 8.0),
        Lettering(OLD, "dc1", stamped, 9.0),
    ]
    assert bool(found(FencesAreKept(), events)) is is_wrong
