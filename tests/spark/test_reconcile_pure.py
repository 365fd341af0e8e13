"""The fate of a message from its facts, and settled offsets from a subscription's commits."""

import itertools
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.commits import CommitOwner, encode
from hermes_spark.reconcile.flags import (
    DATACENTRES_MAX,
    WAYS,
    Fact,
    Fate,
    causes_of,
    fate_of,
    place,
    places_of,
)
from hermes_spark.reconcile.result import (
    EXIT_CODES,
    Combination,
    Result,
    SubscriptionCount,
    Verdict,
    subscription_results,
    topic_results,
)
from hermes_spark.reconcile.settled import PartitionSettled, subscriptions_of, tails
from hermes_spark.snapshot import Committed, Datacentre, EmbeddedLog, PartitionRange, Snapshot

LOCAL, FALLBACK, HEDGE, SPOOL, FOREIGN = range(5)


@given(st.sets(st.tuples(st.integers(0, DATACENTRES_MAX - 1), st.integers(0, len(WAYS) - 1))))
def test_places_are_told_from_their_bits(places):
    flags = sum(place(*each) for each in places)
    assert flags < 2**63
    assert sorted(places_of(flags)) == sorted((dc, WAYS[way]) for dc, way in places)
    assert (fate_of(flags) is Fate.STORED) == bool(places)


YOUNG, OLD, EXPECTED = Fact.YOUNG, Fact.BEFORE_RETENTION, Fact.EXPECTED
SAID = [Fact.ACKNOWLEDGED | each for each in (EXPECTED, YOUNG, OLD, YOUNG | OLD)]
SAID += [Fact.KEPT | each for each in (Fact(0), YOUNG, OLD, YOUNG | OLD)]
"""The facts that a line of a list can give."""


@given(st.lists(st.sampled_from(SAID), min_size=1), st.booleans())
def test_only_what_201_was_said_of_and_must_be_there_is_lost(lines, is_dead_lettered):
    facts = reduce(or_, lines, Fact.DEAD_LETTERED if is_dead_lettered else Fact(0))
    is_lost = any(each & EXPECTED for each in lines) and not is_dead_lettered
    assert (fate_of(facts) is Fate.LOST) == is_lost
    assert fate_of(facts | place(0, LOCAL)) is Fate.STORED


def test_what_must_be_there_is_lost_whatever_was_said_of_it_at_other_times():
    later = Fact.ACKNOWLEDGED | Fact.YOUNG | Fact.BEFORE_RETENTION
    assert fate_of(later) is Fate.PENDING
    assert fate_of(later | Fact.EXPECTED) is Fate.LOST


@pytest.mark.parametrize(
    ("places", "copies", "causes"),
    [
        ([(0, LOCAL)], 1, ()),
        ([(0, LOCAL), (1, HEDGE)], 2, ("hedge",)),
        ([(1, HEDGE), (0, SPOOL)], 2, ("spool",)),
        ([(0, LOCAL), (1, FALLBACK), (0, SPOOL)], 3, ("fallback", "spool")),
        ([(0, LOCAL)], 2, ("again",)),
        ([(0, LOCAL), (1, LOCAL)], 2, ("again",)),
        ([(0, LOCAL), (1, HEDGE)], 3, ("hedge", "again")),
        ([(0, FOREIGN), (1, FOREIGN)], 2, ("again",)),
    ],
)
def test_a_further_copy_has_the_way_that_it_came_by_as_its_cause(places, copies, causes):
    assert causes_of(sum(place(*each) for each in places), copies) == causes


@st.composite
def partitions(draw):
    start = draw(st.integers(0, 20))
    end = start + draw(st.integers(0, 40))
    at = position = draw(st.integers(0, end))
    intervals = []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=6)):
        if at + gap + length > end:
            break
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    return PartitionSettled("dc1", PartitionRange(0, start, end), position, tuple(intervals))


@given(partitions())
def test_what_is_unsettled_is_what_is_stored_and_in_no_interval(each):
    settled = {*range(each.position), *(n for one in each.intervals for n in range(*one))}
    gaps = list(each.unsettled())
    told = [offset for gap in gaps for offset in range(gap.start, gap.end)]
    assert told == [n for n in range(each.range.start, each.range.end) if n not in settled]
    assert all(one.end < other.start for one, other in itertools.pairwise(gaps))
    assert each.beyond == 0


@pytest.mark.parametrize(
    ("position", "intervals", "beyond"), [(8, (), 3), (2, ((4, 9),), 4), (5, (), 0)]
)
def test_what_is_settled_beyond_the_logs_end_is_counted(position, intervals, beyond):
    assert PartitionSettled("dc1", PartitionRange(0, 0, 5), position, intervals).beyond == beyond


def commit(position, incarnation=9, seek=0):
    return Committed(0, position, encode(position, (), CommitOwner(7, incarnation, 1, seek)))


def snapshot_of(**groups):
    """Two datacentres with ten records of shop.orders each, and these commits by datacentre."""
    topics = {"shop.orders": [PartitionRange(0, 0, 10)]}
    return Snapshot(
        99,
        {
            dc: Datacentre(EmbeddedLog(dc), topics=topics, groups=groups.get(dc, {}))
            for dc in ("dc1", "dc2")
        },
    )


def test_a_subscription_is_known_by_its_group_and_others_groups_are_left_out():
    group = {"shop_orders_my__bills": {"shop.orders": [commit(4, seek=2)]}}
    others = {
        "shop_orders_": {"shop.orders": [commit(1)]},
        "shop_orders_a_b": {"shop.orders": [commit(1)]},
        "elsewhere": {"shop.orders": [commit(1)], "plain": [commit(1)]},
        "shop_orders_my__bills.redrive": {"_hermes.dlq.shop": [commit(1)]},
    }
    (found,) = subscriptions_of(snapshot_of(dc1=group | others))
    assert (found.topic, found.name, found.retransmissions) == ("shop.orders", "my_bills", 2)
    assert [each.position for each in found.partitions] == [4, None]


def test_a_commit_of_an_earlier_life_says_nothing():
    snapshot = snapshot_of(
        dc1={"shop_orders_a": {"shop.orders": [commit(4)]}},
        dc2={"shop_orders_a": {"shop.orders": [commit(8, incarnation=8)]}},
    )
    (found,) = subscriptions_of(snapshot)
    assert [each.position for each in found.partitions] == [4, None]
    cut = tails(snapshot, [found])
    assert cut.datacentres["dc1"].topics == {"shop.orders": [PartitionRange(0, 4, 10)]}
    assert cut.datacentres["dc2"].topics == {}


def test_commits_of_before_a_subscription_was_made_again_or_deleted_say_nothing():
    snapshot = snapshot_of(
        dc1={"shop_orders_a": {"shop.orders": [commit(4, incarnation=10)]}},
        dc2={"shop_orders_a": {"shop.orders": [commit(8, incarnation=9, seek=3)]}},
    )
    for incarnation, positions in ((9, [4, None]), (10, [4, None]), (11, [None, None])):
        (found,) = subscriptions_of(snapshot, {"shop.orders$a": incarnation})
        assert [each.position for each in found.partitions] == positions
        assert found.retransmissions == 0
    assert subscriptions_of(snapshot, {"shop.orders$a": None, "shop.orders$b": 1}) == []


def test_a_commit_of_kafkas_own_tools_counts():
    snapshot = snapshot_of(dc1={"shop_orders_a": {"shop.orders": [Committed(0, 3)]}})
    (found,) = subscriptions_of(snapshot)
    assert [each.position for each in found.partitions] == [3, None]


def result(*combinations, has_lists=True, subscriptions=()):
    topics = topic_results(combinations, ["dc1", "dc2"], {})
    return Result(99, ["dc1", "dc2"], has_lists, topics, list(subscriptions))


STORED = Combination("shop.orders", Fact.ACKNOWLEDGED | place(0, LOCAL), 1, 5)


@pytest.mark.parametrize(
    ("found", "verdict", "reason"),
    [
        (result(STORED), Verdict.CLEAN, "All acknowledged messages are stored: 5 messages"),
        (
            result(STORED, Combination("shop.orders", Fact.ACKNOWLEDGED | EXPECTED, 0, 2)),
            Verdict.LOST,
            "2 messages are acknowledged and in no datacentre's log: lost",
        ),
        (
            result(STORED, Combination("shop.orders", Fact.KEPT, 0, 1)),
            Verdict.UNKNOWN,
            "1 message is in a node's spool (202) and in no log yet, or lost from the spool",
        ),
        (
            result(STORED, Combination("shop.bills", place(1, LOCAL), 1, 3)),
            Verdict.UNKNOWN,
            "Of 1 topic no list has the acknowledged messages: shop.bills",
        ),
        (
            result(has_lists=False),
            Verdict.UNKNOWN,
            (
                "No list of acknowledged messages was given, so messages that are stored nowhere "
                "cannot be found; give --acknowledged"
            ),
        ),
    ],
)
def test_the_verdict_is_clean_only_when_that_was_looked_for_everywhere(found, verdict, reason):
    assert (found.verdict, found.reasons()) == (verdict, [reason])
    assert EXIT_CODES[verdict] == {"clean": 0, "lost": 1, "unknown": 3}[verdict]


def test_a_log_that_lost_its_end_is_a_loss():
    snapshot = snapshot_of(dc1={"shop_orders_a": {"shop.orders": [Committed(0, 14)]}})
    late = subscription_results(subscriptions_of(snapshot), [])
    found = result(STORED, subscriptions=late)
    assert found.verdict is Verdict.LOST
    assert found.reasons() == [
        "4 messages are settled by a subscription but in no log: the log has lost its end"
    ]
    assert [(each.records, each.unknown) for each in late[0].datacentres] == [(10, 0), (10, 10)]


def test_the_summary_says_who_is_behind_or_that_nobody_is():
    commits = {"shop_orders_a": {"shop.orders": [commit(4)]}}
    snapshot = snapshot_of(dc1=commits, dc2=commits)
    subscriptions = subscriptions_of(snapshot)
    settled = result(STORED, subscriptions=subscription_results(subscriptions, []))
    assert settled.summary()[-1] == (
        "1 subscription, none with anything unsettled, 0 open dead letters"
    )
    counts = [SubscriptionCount("shop.orders", "a", "dc1", unsettled=6, dead_letters=1)]
    late = result(STORED, subscriptions=subscription_results(subscriptions, counts))
    assert late.summary()[-1] == (
        "1 subscription, 1 of them with 6 records not settled, 1 open dead letter"
    )
