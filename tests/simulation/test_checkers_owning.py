"""The checkers of ownership can fail, and the ledger that they judge by keeps the rules."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Plan,
    Release,
    Said,
    Target,
    TermClaim,
)
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, encode
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.owning import (
    BalancerSettles,
    Ledgers,
    OneOwner,
    OwnersAreFound,
    PartsAreOfOne,
)
from hermes_chaos.sim.checkers.pushing import RateIsKept, RetriesWait
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import (
    Allowed,
    Attempted,
    Calmed,
    Committing,
    Ended,
    Event,
    Healed,
    Rested,
    Stored,
    Troubled,
    coordination_of,
)
from hermes_chaos.sim.history.ledger import Ledger
from hermes_chaos.sim.history.standing import Coordinated, Named
from hermes_chaos.sim.workload.subject import Audience, Subject

S = "g.t$s"
SUBJECT = Subject({"g.t": Ack.ALL}, [Audience(S, "g.t", "s", rate=4)])
OLD, NEW = "dc1-n1#1", "dc1-n2#1"


def plan(boot: str, base: int, *targets: Target, term: int = 1) -> Plan:
    return Plan(boot, term, base, (Assignment(S, targets),))


def log(*said: Said | tuple[int, Said], first: int = 0, at_s: float = 0.0) -> list[Event]:
    """Records, each with its timestamp where one is given, else with that of the one before."""
    records: list[Event] = []
    timestamp_ms = int(at_s * 1_000)
    for offset, each in enumerate(said, first):
        if isinstance(each, tuple):
            timestamp_ms, each = each
        records.append(Coordinated("dc1", offset, timestamp_ms, each, timestamp_ms / 1_000))
    return records


ONE, TWO = Target("one", (0, 1)), Target("two", (0, 1))
BEGUN: list[Event] = [
    Named(OLD, "one"),
    Named(NEW, "two"),
    Stored(("dc1", "g_t", 0), 0, "id0", b""),
    Stored(("dc1", "g_t", 1), 0, "id1", b""),
    *log(Join("one", "n1"), Join("two", "n2"), TermClaim("one", 1), plan("one", -1, ONE)),
]
MOVED = log(plan("one", 3, TWO), first=4)


def ledger_of(events: Sequence[Event]) -> Ledger:
    ledger = Ledger()
    for event in events:
        if isinstance(event, Coordinated):
            ledger.fold(event)
    return ledger


def owner_of(*events: Event) -> tuple[str, int]:
    holding = ledger_of(events).holding(S, 0)
    return ("", -1) if holding is None else (holding.boot, holding.epoch)


# The ledger


def test_a_plan_of_the_leader_makes_owners() -> None:
    assert owner_of(*BEGUN) == ("one", 3)


def test_a_new_owner_waits_for_the_release_of_this_very_grant() -> None:
    assert owner_of(*BEGUN, *MOVED) == ("one", 3)
    early = log(Release("one", S, 2), Release("two", S, 3), first=5)
    assert owner_of(*BEGUN, *MOVED, *early) == ("one", 3)
    assert owner_of(*BEGUN, *MOVED, *log(Release("one", S, 3), first=5)) == ("two", 5)


def test_a_new_owner_waits_for_the_end_of_the_lease() -> None:
    beats = [(ms, Heartbeat("two", 1)) for ms in (1_000, 2_000, 3_000)]
    assert owner_of(*BEGUN, *MOVED, *log(*beats, first=5)) == ("one", 3)
    beats.append((3_001, Heartbeat("two", 1)))
    assert owner_of(*BEGUN, *MOVED, *log(*beats, first=5)) == ("two", 8)


def test_the_log_s_clock_moves_log_time_by_a_second_at_most_and_never_back() -> None:
    jump = log((9_000_000, Heartbeat("two", 1)), (0, Heartbeat("two", 2)), first=4)
    ledger = ledger_of([*BEGUN, *jump])
    assert ledger.clock_ms == 1_000
    assert list(ledger.members) == ["one", "two"]


def test_what_an_expiry_frees_goes_by_the_plan_before_the_record_that_shows_it() -> None:
    # The planner goes on; the owner has been silent since it was granted all.
    begun = log(
        Join("one", "n1"), Join("two", "n2"), TermClaim("two", 1), plan("two", -1, ONE)
    ) + log(plan("two", 3, TWO), first=4)
    beats = log(*[(ms, Heartbeat("two", 1)) for ms in (1_000, 2_000, 3_000)], first=5)
    both = plan("two", 4, Target("two", (0,)), Target("one", (1,)))
    ledger = ledger_of([*begun, *beats, *log((3_001, both), first=8)])
    holding = ledger.holding(S, 1)
    assert holding is not None
    assert (holding.boot, holding.partitions, holding.epoch) == ("two", frozenset((0, 1)), 8)


@pytest.mark.parametrize(
    "said",
    [
        plan("two", 3, TWO),
        plan("one", -1, TWO),
        plan("one", 3, TWO, term=2),
        TermClaim("two", 2),
        Join("two", "n2"),
    ],
    ids=["not the leader's", "on another plan", "of another term", "while one leads", "again"],
)
def test_what_is_not_valid_changes_nothing(said: Said) -> None:
    after = ledger_of([*BEGUN, *log(said, first=4), *log(Release("one", S, 3), first=5)])
    assert after.holding(S, 0) == replace(ledger_of(BEGUN).holdings[S][0], epoch=5)


def test_who_leaves_owns_nothing_and_does_not_come_back() -> None:
    left = [*BEGUN, *log(Leave("one"), first=4)]
    assert owner_of(*left) == ("", -1)
    again = log(Join("one", "n1"), TermClaim("two", 2), plan("two", 3, TWO, term=2), first=5)
    assert owner_of(*left, *again) == ("two", 7)
    assert list(ledger_of([*left, *again]).members) == ["two"]


# One owner


def one_owner(*events: Event) -> OneOwner:
    ledgers = Ledgers()
    checker = OneOwner(SUBJECT, ledgers)
    for event in events:
        ledgers.watch(event)
        checker.watch(event)
    checker.finish()
    return checker


def pushed(node: str = OLD, message_id: str = "id0", at_s: float = 1.0) -> Attempted:
    return Attempted(node, 1, S, message_id, 0, at_s)


def committing(life: str, epoch: int, partition: int = 0) -> Committing:
    commit = Commit(1, encode(1, (), CommitOwner(1, 1, epoch)))
    return Committing(life, "dc1", "s", {partition: commit}, 1.0)


RELEASED = log(Release("one", S, 3), first=5)
EXPIRED = log(*((ms, Heartbeat("two", 1)) for ms in (1_000, 2_000, 3_000, 3_001)), first=5)


def test_an_owner_pushes_and_commits() -> None:
    good = one_owner(*BEGUN, pushed(), committing(OLD, 3), *MOVED, pushed(), *RELEASED)
    assert good.violations == []
    assert good.examined == 3


def test_what_a_former_owner_had_under_way_may_end_and_is_counted() -> None:
    attempt = pushed()
    checker = one_owner(*BEGUN, attempt, *MOVED, *EXPIRED, Ended(attempt, 200, "", 4.0))
    assert checker.violations == []
    assert checker.ended_late == 1


def test_a_push_by_another_life_of_the_owner_s_node_is_found() -> None:
    (found,) = one_owner(*BEGUN, pushed("dc1-n1#2")).violations
    assert found.startswith("dc1-n1#2 pushed id0")


@pytest.mark.parametrize("end", [RELEASED, EXPIRED], ids=["released", "expired"])
def test_a_commit_that_a_former_owner_begins_is_found(end: list[Event]) -> None:
    (found,) = one_owner(*BEGUN, *MOVED, *end, committing(OLD, 3)).violations
    assert found.startswith(f"{OLD} committed 1 of partition 0 for {S} at 1.000 in the name of 3")


def test_a_commit_in_the_name_of_another_grant_is_found() -> None:
    assert len(one_owner(*BEGUN, committing(OLD, 2)).violations) == 1


# Owners are found


def owners_are_found(*events: Event) -> list[str]:
    ledgers = Ledgers()
    checker = OwnersAreFound(SUBJECT, ledgers, partitions=2)
    for event in events:
        ledgers.watch(event)
        checker.watch(event)
    return checker.violations


def beats(count: int, first: int = 5) -> list[Event]:
    """Half a second apart, from the second node."""
    return log(*((500 * n, Heartbeat("two", n)) for n in range(1, count + 1)), first=first)


LEFT = log(Leave("one"), first=4)


@pytest.mark.parametrize("where", ["dc1", "dc1-n2", coordination_of("dc1")])
def test_what_is_broken_explains_that_nobody_owns_it_as_long_as_it_lasts(where: str) -> None:
    broken = Troubled(where, Fault.COORDINATION_CUT.value, 0.0)
    events = [*BEGUN, broken, *LEFT, *beats(20)]
    assert owners_are_found(*events) == []
    late = log(*((10_000 + 500 * n, Heartbeat("two", n)) for n in range(20)), first=30)
    assert len(owners_are_found(*events, Calmed(where, 10.0), *late)) == 2


def test_without_a_member_nobody_can_own_it() -> None:
    gone = log(Leave("one"), Leave("two"), first=4)
    assert owners_are_found(*BEGUN, *gone, *beats(20, first=6)) == []


def test_what_is_not_owned_ten_seconds_after_the_last_fault_is_found() -> None:
    (found,) = owners_are_found(*BEGUN, Healed(-5.0), *LEFT, *beats(10))
    assert found == f"nobody owns {S}/0, {S}/1 in dc1 at 5.000"


def test_what_is_not_owned_at_rest_is_found() -> None:
    assert owners_are_found(*BEGUN, Rested(1.0)) == []
    assert len(owners_are_found(*BEGUN, *LEFT, Rested(1.0))) == 1


# The balancer settles


def balancer_settles(*events: Event) -> list[str]:
    ledgers = Ledgers()
    checker = BalancerSettles(ledgers)
    for event in events:
        ledgers.watch(event)
        checker.watch(event)
    checker.finish()
    return checker.violations


def test_one_move_at_rest_may_follow_weights_that_follow_measures() -> None:
    back = log(Release("one", S, 3), plan("one", 4, ONE), first=5)
    assert balancer_settles(*BEGUN, *MOVED, Rested(1.0)) == []
    assert balancer_settles(*BEGUN, Rested(1.0), *MOVED) == []
    (found,) = balancer_settles(*BEGUN, Rested(1.0), *MOVED, *back)
    assert found == "all was at rest in dc1, and the plan at 6 moves something"


def test_other_shares_at_rest_are_no_move() -> None:
    shares = log(plan("one", 3, Target("one", (0, 1), 0.5)), first=4)
    assert balancer_settles(*BEGUN, Rested(1.0), *shares) == []


def test_a_node_that_owns_much_more_than_others_is_found() -> None:
    many = Plan("one", 1, 3, tuple(Assignment(f"g.t${n}", (ONE,)) for n in range(7)))
    (found,) = balancer_settles(*BEGUN, *log(many, first=4), Rested(1.0))
    assert found == "the nodes of dc1 own {'n1': 8, 'n2': 0}, and carry {'n1': 1.6, 'n2': 0}"


def test_one_that_costs_as_much_as_fourteen_others_may_have_a_node_for_itself() -> None:
    light = [Assignment(f"g.t${n}", (ONE,)) for n in range(14)]
    plan = Plan("one", 1, 3, (*light, Assignment(S, (TWO,))))
    events = [*BEGUN, *log(plan, Release("one", S, 3), first=4)]
    heavy = Rested(1.0, {"dc1": {S: 3.2, "g.t$1": 1.0}})
    assert balancer_settles(*events, heavy) == []
    (found,) = balancer_settles(*events, Rested(1.0, {"dc1": {S: 0.1}}))
    assert found.endswith("and carry {'n1': 2.8, 'n2': 0.2}")


# Parts of a rate


def test_parts_that_are_more_than_the_whole_are_found() -> None:
    checker = PartsAreOfOne(SUBJECT)
    checker.watch(Allowed("dc1", S, {OLD: 1.5, NEW: 2.5}, 1.0))
    assert checker.violations == []
    checker.watch(Allowed("dc1", S, {OLD: 2.0, NEW: 2.5}, 2.0))
    (found,) = checker.violations
    assert found.startswith(f"of 4 messages a second for {S} the owners take")


# What was under way while a node was away


@pytest.mark.parametrize("where", ["dc1-n1", "dc1", coordination_of("dc1")])
def test_the_same_attempt_once_more_needs_no_wait_after_a_node_was_away(where: str) -> None:
    def retried(retries: int, *before: Event, status: int = 0) -> list[str]:
        checker = RetriesWait(SUBJECT)
        first = replace(pushed(), retries=1)
        again = replace(pushed(at_s=2.001), number=2, retries=retries)
        for event in (*before, first, Ended(first, status, "", 2.0), again):
            checker.watch(event)
        return checker.violations

    away = Troubled(where, Fault.NODE_PAUSE.value, 1.0, lasts_s=1.0)
    assert retried(1, away) == []
    assert len(retried(1)) == 1
    assert len(retried(2, away)) == 1
    assert len(retried(1, away, status=500)) == 1, "what was answered counts"


# The rate of all owners together


def rate(*attempts: tuple[str, float]) -> list[str]:
    checker = RateIsKept(SUBJECT)
    for node, at_s in attempts:
        checker.watch(pushed(node, at_s=at_s))
    return checker.violations


def test_another_datacentre_has_a_rate_of_its_own() -> None:
    assert rate(*((f"dc{n % 2 + 1}-n1#1", n / 10) for n in range(8))) == []
