"""The checkers of publishing through outages: each can fail, and fails for its own reason only."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.answering import OtherDatacentreServes, PublishesAreAnswered
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.checkers.delivering import PayloadsAreIntact
from hermes_chaos.sim.checkers.duplicating import DuplicatesHaveCauses, HedgesAreFew
from hermes_chaos.sim.checkers.ordering import SpoolKeepsOrder
from hermes_chaos.sim.checkers.publishing import AcknowledgedAreStored, RefusedAreNowhere
from hermes_chaos.sim.checkers.recovering import LostLogsAreSpared
from hermes_chaos.sim.checkers.repeating import IdempotencyIsKept
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import (
    Calmed,
    Counted,
    Dropped,
    Event,
    Expired,
    Handed,
    Published,
    Stored,
    Told,
    Troubled,
    disk_of,
    readiness_of,
)
from hermes_chaos.sim.workload.subject import Subject

LIFE = "dc1-n1#1"
SUBJECT = Subject(
    {"g.f": Ack.ALL, "g.p": Ack.ALL},
    [],
    falls_back=frozenset(("g.f",)),
    spooled=frozenset(("g.p",)),
    dcs=("dc1", "dc2"),
)
MAYBE_KEPT = {"code": "SENDING_TO_KAFKA_TIMEOUT"}
"""The answer where a disk that fails may have taken the message all the same."""

HOME, AWAY = ("dc1", "g.f", 0), ("dc2", "g.f", 0)


def body_of(serial: int) -> bytes:
    return b'{"serial": %d}' % serial


def published(serial: int, status: int | None = 201, *, lasted_s: float = 0.0) -> Published:
    return Published(
        serial,
        "g.f",
        body_of(serial),
        "dc1-n1",
        status,
        f"id{serial}",
        dc="dc1",
        key="k",
        life=LIFE,
        began_s=float(serial),
        ended_s=serial + lasted_s,
    )


def stored(serial: int, offset: int, place: tuple[str, str, int] = HOME) -> Stored:
    return Stored(place, offset, f"id{serial}", body_of(serial), "g.f", "k", "dc1", "local")


def handed(*ids: str, dc: str = "dc1", via: str = "local", at_s: float = 1.0) -> Handed:
    return Handed(LIFE, dc, "g.f", ids, (via,) * len(ids), at_s)


def told(*ids: str, dc: str = "dc1", at_s: float = 2.0) -> Told:
    return Told(LIFE, dc, "g.f", ids, at_s)


def found_by(checker: Checker, events: Sequence[Event]) -> list[str]:
    for event in events:
        checker.watch(event)
    checker.finish()
    return checker.violations


# 202


def keeping(*kept: str) -> AcknowledgedAreStored:
    return AcknowledgedAreStored(SUBJECT, lambda _node, message_id: message_id in kept)


def test_a_202_is_in_no_log_yet_but_on_the_disk_and_in_a_log_at_the_end() -> None:
    assert found_by(keeping("id1"), [published(1, 202), stored(1, 0)]) == []


def test_a_201_needs_a_log_whatever_the_disk_has() -> None:
    (found,) = found_by(keeping("id1"), [published(1)])
    assert "was answered 201" in found


def test_a_leader_change_may_take_a_copy_of_what_the_disk_still_has() -> None:
    events = [stored(1, 0), published(1, 202), Dropped(HOME, 0), stored(1, 0)]
    assert found_by(keeping("id1"), events) == []
    assert len(found_by(keeping("id1"), events[:-1])) == 1


def test_a_node_may_hear_late_of_a_copy_that_a_leader_change_has_taken_unless_all_had_it() -> None:
    events = [published(1, 202), stored(1, 0), Dropped(HOME, 0), told("id1")]
    of_leader = Subject({"g.f": Ack.LEADER}, [])
    assert found_by(AcknowledgedAreStored(of_leader, lambda _node, _id: True), events) == []
    assert len(found_by(keeping("id1"), events)) == 1


def test_retention_may_take_what_was_kept_and_stored() -> None:
    assert found_by(keeping("id1"), [published(1, 202), stored(1, 0), Expired(HOME, 1)]) == []


def test_the_refusal_of_a_repeat_says_nothing_of_the_first() -> None:
    again = replace(published(1, 409), is_repeat=True)
    assert found_by(RefusedAreNowhere(), [stored(1, 0), again]) == []
    assert len(found_by(RefusedAreNowhere(), [stored(1, 0), published(1, 409)])) == 1


# Answers


BOTH = (Troubled("dc1", Fault.DC_LOST.value, 5.0), Troubled("dc2", Fault.LOG_CUT.value, 5.0))


@pytest.mark.parametrize(
    ("topic", "troubles", "is_found"),
    [
        ("g.f", (), True),
        ("g.f", BOTH[:1], True),
        ("g.f", BOTH, False),
        ("g.f", (BOTH[0], Troubled(readiness_of("dc2"), Fault.NOT_READY.value, 5.0)), False),
        ("g.f", (Troubled("dc1-n1", Fault.NODE_KILL.value, 10.2, lasts_s=0.0),), False),
        ("g.p", BOTH, True),
        ("g.p", (BOTH[0], Troubled(disk_of("dc1-n1"), Fault.DISK_FULL.value, 5.0)), False),
        ("g.p", (BOTH[0], Troubled(disk_of("dc1-n2"), Fault.DISK_FULL.value, 5.0)), True),
        ("g.p", (BOTH[0], Troubled(disk_of("dc1-n1"), Fault.ACTOR_CRASH.value, 9.9, 0.1)), False),
        ("g.p", (BOTH[0], Troubled(disk_of("dc1-n1"), Fault.ACTOR_CRASH.value, 9.7, 0.1)), True),
        ("g.p", (BOTH[0], Troubled("dc1-n1", Fault.ACTOR_CRASH.value, 9.9, 0.1, "g.f")), True),
        ("g.p", (Troubled(disk_of("dc1-n1"), Fault.ACTOR_CRASH.value, 9.9, 0.1),), True),
        ("g.p", (Troubled(disk_of("dc1-n1"), Fault.DISK_FULL.value, 5.0),), True),
    ],
)
def test_a_publish_may_fail_only_when_nothing_that_its_topic_may_use_works(
    topic: str, troubles: tuple[Event, ...], is_found: bool
) -> None:
    failed = replace(published(10, 503, lasted_s=0.5), topic=topic)
    found = found_by(PublishesAreAnswered(SUBJECT, 100, 100), [*troubles, failed])
    assert len(found) == is_found


@pytest.mark.parametrize(
    ("changed", "troubles", "is_found"),
    [
        ({}, (), True),
        ({"topic": "g.f"}, (), False),
        ({}, (Troubled(disk_of("dc1-n1"), Fault.DISK_SLOW.value, 5.0),), False),
        ({"key": ""}, (Troubled(disk_of("dc1-n1"), Fault.DISK_SLOW.value, 5.0),), True),
        (MAYBE_KEPT, (Troubled(disk_of("dc1-n1"), Fault.DISK_FAILING.value, 5.0),), False),
        (MAYBE_KEPT, (), True),
        (
            {**MAYBE_KEPT, "topic": "g.f"},
            (Troubled(disk_of("dc1-n1"), Fault.DISK_FAILING.value, 5.0),),
            True,
        ),
    ],
)
def test_a_key_whose_older_messages_wait_may_be_refused_where_no_more_can_wait(
    changed: dict[str, object], troubles: tuple[Event, ...], is_found: bool
) -> None:
    refused = replace(published(10, 503), **{"topic": "g.p", "code": "OTHER", **changed})
    found = found_by(PublishesAreAnswered(SUBJECT, 100, 100), [*troubles, refused])
    assert len(found) == is_found


@pytest.mark.parametrize(
    ("changed", "troubles", "is_found"),
    [
        ({}, (), True),
        ({"is_repeat": True}, (), False),
        ({}, BOTH[:1], False),
        ({"key": ""}, (*BOTH[:1], Calmed("dc1", 8.0)), True),
        ({}, (*BOTH[:1], Calmed("dc1", 8.0)), False),
    ],
)
def test_a_message_is_not_kept_while_its_log_works(
    changed: dict[str, object], troubles: tuple[Event, ...], is_found: bool
) -> None:
    kept = replace(published(10, 202), topic="g.p", **changed)  # type: ignore[arg-type]
    found = found_by(PublishesAreAnswered(SUBJECT, 100, 100), [*troubles, kept])
    assert len(found) == is_found


@pytest.mark.parametrize(
    ("changed", "is_found"),
    [({}, False), ({"key": ""}, True), ({"began_s": 17.0}, True), ({"life": "dc1-n1#0"}, True)],
)
def test_after_a_start_messages_may_wait_behind_those_that_an_earlier_life_kept(
    changed: dict[str, object], is_found: bool
) -> None:
    lives = [
        replace(published(serial, 201), life=f"dc1-n1#{life}") for serial, life in ((5, 0), (11, 1))
    ]
    kept = replace(published(12, 202), **{"topic": "g.p", "life": "dc1-n1#1", **changed})
    assert len(found_by(PublishesAreAnswered(SUBJECT, 100, 100), [*lives, kept])) == is_found


@pytest.mark.parametrize(
    ("status", "lasted_s", "is_found"),
    [(201, 0.3, False), (201, 0.45, True), (202, 0.01, True), (500, 0.01, True), (400, 0.0, False)],
)
def test_another_datacentre_answers_in_time_for_one_whose_log_is_away(
    status: int, lasted_s: float, is_found: bool
) -> None:
    served = published(10, status, lasted_s=lasted_s)
    found = found_by(OtherDatacentreServes(SUBJECT, 100, 100), [*BOTH[:1], served])
    assert len(found) == is_found


@pytest.mark.parametrize(
    ("changed", "between", "is_found"),
    [
        ({}, (), False),
        ({"key": "j"}, (), True),
        ({"node": "dc1-n2"}, (), True),
        ({"status": 503}, (), True),
        ({}, (told("id10", at_s=11.5),), True),
        ({}, (told("id10", at_s=12.0),), False),
        ({}, (replace(told("id10", at_s=11.5), life="dc1-n1#0"),), False),
        ({"began_s": 13.5, "ended_s": 13.5}, (), True),
    ],
)
def test_what_joins_older_messages_of_its_key_on_the_disk_has_their_cause(
    changed: dict[str, object], between: tuple[Event, ...], is_found: bool
) -> None:
    first, second = published(10, 202), replace(published(12, 202), **changed)  # type: ignore[arg-type]
    found = found_by(OtherDatacentreServes(SUBJECT, 100, 100), [*BOTH[:1], first, *between, second])
    assert len(found) == 1 + is_found


def test_nothing_is_claimed_of_an_outage_of_all_nor_right_after_one() -> None:
    late = published(10, 202, lasted_s=0.01)
    checker = OtherDatacentreServes(SUBJECT, 100, 100)
    assert found_by(checker, [*BOTH, Calmed("dc2", 7.0), late]) == []
    assert checker.examined == 0


# Idempotency keys


def keyed(serial: int, status: int, **others: object) -> Published:
    request = replace(published(serial, status), message_id="once", idempotency_key="key")
    return replace(request, **others)  # type: ignore[arg-type]


def test_after_a_failed_first_request_the_key_is_free() -> None:
    assert found_by(IdempotencyIsKept(), [keyed(1, 503), keyed(2, 201)]) == []


# Order


def test_no_order_is_claimed_of_what_overlaps_nor_of_other_keys() -> None:
    swapped = [stored(2, 0), stored(1, 1), published(1, 202, lasted_s=3.0)]
    assert found_by(SpoolKeepsOrder(), [*swapped, published(2)]) == []
    other = replace(published(5), key="other", message_id="id2")
    assert found_by(SpoolKeepsOrder(), [*swapped, other]) == []


# Duplicates and hedges


def test_a_message_handed_on_before_a_log_has_told_of_it_has_a_cause() -> None:
    checker = DuplicatesHaveCauses(SUBJECT)
    hedged = [handed("a"), handed("a", dc="dc2", via="hedge", at_s=1.5), told("a", at_s=1.5)]
    assert found_by(checker, hedged) == []
    assert checker.examined == 1


def test_a_topic_that_does_not_fall_back_stays_at_home() -> None:
    abroad = replace(handed("a", dc="dc2"), topic="g.p")
    (found,) = found_by(DuplicatesHaveCauses(SUBJECT), [abroad])
    assert "which does not fall back" in found


@pytest.mark.parametrize(("said", "is_found"), [(1.0, False), (0.0, True), (2.0, True)])
def test_what_is_known_to_be_stored_twice_is_counted(said: float, is_found: bool) -> None:
    name = "hermes_frontend_topic_duplicated_message_total"
    twice = [
        handed("a", "b"),
        handed("a", dc="dc2", via="hedge", at_s=1.5),
        told("a", "b"),
        told("a", dc="dc2"),
        Counted(LIFE, ((name, {"cause": "hedge"}, said),), is_whole=True),
    ]
    assert len(found_by(DuplicatesHaveCauses(SUBJECT), twice)) == is_found


@pytest.mark.parametrize(("crashes", "is_found"), [(0, True), (1, False)])
def test_a_producer_that_starts_again_has_another_burst_of_hedges(
    crashes: int, is_found: bool
) -> None:
    crash = Troubled("dc1-n1", Fault.ACTOR_CRASH.value, 1.0, 2.0, "g.f")
    hedged = ("hermes_frontend_fallback_messages_total", {"cause": "hedge"}, 2.0)
    events = [handed("a", "b"), *[crash] * crashes, Counted(LIFE, (hedged,), is_whole=True)]
    assert len(found_by(HedgesAreFew(SUBJECT, 5, 1), events)) == is_found


# Away, and back


def given(dc: str, first: int, count: int, at_s: float) -> Handed:
    return handed(*(f"id{number}" for number in range(first, first + count)), dc=dc, at_s=at_s)


def batches(dc: str, first: int, count: int, at_s: float, size: int = 1) -> list[Handed]:
    return [given(dc, number, size, at_s) for number in range(first, first + count * size, size)]


def failing(number: int) -> tuple[Handed, Told]:
    at_s = 5.0 + number / 10
    failed = replace(told(at_s=at_s + 0.05), ids=(f"id{number}",))
    return given("dc1", number, 1, at_s), failed


SILENT = (given("dc1", 0, 4, 5.0), given("dc1", 4, 4, 5.1))
FAILED = tuple(event for number in range(5) for event in failing(number))


@pytest.mark.parametrize("before", [SILENT, FAILED])
@pytest.mark.parametrize(
    ("to_the_lost", "size", "is_found"), [(6, 1, False), (6, 20, False), (7, 1, True)]
)
def test_a_log_that_is_known_to_be_away_gets_a_batch_now_and_then(
    before: tuple[Event, ...], to_the_lost: int, size: int, is_found: bool
) -> None:
    to_others = batches("dc2", 300, 20 - to_the_lost, 5.7)
    events = [*before, *batches("dc1", 100, to_the_lost, 5.6, size), *to_others]
    checker = LostLogsAreSpared(SUBJECT)
    assert len(found_by(checker, events)) == is_found
    assert checker.examined == 20


@pytest.mark.parametrize(
    "before",
    [
        SILENT[:1],
        (given("dc1", 0, 7, 5.0),),
        (given("dc1", 0, 4, 5.0), given("dc1", 4, 4, 5.4)),
        FAILED[:-2],
        (*FAILED[:4], told("id9", at_s=5.25), *FAILED[4:]),
        (*SILENT, told("id4", "id5", "id6", "id7", at_s=5.5)),
        (*SILENT, Troubled("dc2", Fault.LOG_SILENT.value, 4.0)),
        (*SILENT, Troubled(readiness_of("dc2"), Fault.NOT_READY.value, 4.0)),
        (replace(SILENT[0], topic="g.p"), replace(SILENT[1], topic="g.p")),
    ],
)
def test_nothing_is_claimed_while_the_log_may_work_or_no_other_does(
    before: tuple[Event, ...],
) -> None:
    checker = LostLogsAreSpared(SUBJECT)
    assert found_by(checker, [*before, *batches("dc1", 100, 40, 5.6)]) == []
    assert checker.examined == 0


def test_what_was_begun_before_its_log_was_known_to_be_away_may_be_there_too() -> None:
    again = [given("dc1", 0, 8, 5.0), *batches("dc1", 20, 30, 5.1), *batches("dc2", 20, 30, 5.6)]
    checker = LostLogsAreSpared(SUBJECT)
    events = [*again, given("dc1", 8, 1, 5.6), *batches("dc1", 20, 30, 5.7)]
    assert found_by(checker, events) == []


def test_what_the_spool_sends_again_is_not_spared_by_a_breaker() -> None:
    checker = LostLogsAreSpared(SUBJECT)
    spooled = [handed(str(number), via="spool", at_s=5.6) for number in range(40)]
    assert found_by(checker, [*SILENT, *spooled]) == []


# Payloads in the logs


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"body": b'{"serial": 1, "x": 1}'}, "bytes"),
        ({"topic": "g.p"}, "topic"),
        ({"key": "j"}, "key"),
        ({"trace": "00-1"}, "trace context"),
        ({"dc": "dc2"}, "datacentre"),
    ],
)
def test_a_record_that_is_not_what_was_published_is_found(
    changed: dict[str, object], what: str
) -> None:
    checker = PayloadsAreIntact(SUBJECT)
    checker.begin(published(1))
    assert found_by(checker, [stored(1, 0)]) == []
    (found,) = found_by(checker, [replace(stored(1, 1), **changed)])  # type: ignore[arg-type]
    assert f"with the {what} " in found
