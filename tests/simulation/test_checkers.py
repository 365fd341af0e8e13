"""Each checker can fail, and fails for its own reason only."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hermes_actors.config import Config, FrontendConfig
from hermes_actors.coordination.commands import (
    Assignment,
    Join,
    Plan,
    Said,
    Target,
    TermClaim,
)
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, encode
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.checks import Checks
from hermes_chaos.sim.checkers.committing import SettledStaySettled
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import (
    Adopted,
    Allowed,
    Answer,
    Attempted,
    Calmed,
    Committed,
    Delivery,
    Dropped,
    Ended,
    Event,
    Handed,
    Healed,
    Published,
    Recalled,
    Rested,
    Stored,
    Troubled,
)
from hermes_chaos.sim.history.standing import Coordinated, Folded, Renewed
from hermes_chaos.sim.workload.subject import Audience, Subject

PLACE = ("dc1", "g.t", 0)
WAITING_MAX = 2
SUBJECT = Subject(
    {"g.t": Ack.ALL, "g.u": Ack.LEADER, "g.f": Ack.LEADER},
    [
        Audience("g.t$s", "g.t", "g_t_s", rate=3, inflight_max=2, backoff_ms=100),
        Audience("g.u$stubborn", "g.u", "g_u_stubborn", retries_client_errors=True),
    ],
    falls_back=frozenset(("g.f",)),
    dcs=("dc1", "dc2"),
)


def body_of(serial: int) -> bytes:
    return b'{"serial": %d}' % serial


def published(serial: int, status: int | None = 201, topic: str = "g.t") -> Published:
    return Published(
        serial,
        topic,
        body_of(serial),
        "n1",
        status,
        f"id{serial}",
        dc="dc1",
        began_s=float(serial),
        ended_s=float(serial),
    )


def stored(serial: int, offset: int, place: tuple[str, str, int] = PLACE) -> Stored:
    return Stored(place, offset, f"id{serial}", body_of(serial), place[1], dc="dc1", via="local")


def delivered(serial: int, subscription: str = "g.t$s") -> Delivery:
    return Delivery("dc1", subscription, f"id{serial}", body_of(serial), is_processed=True)


def answered(serial: int, status: int = 200, subscription: str = "g.t$s") -> Answer:
    return Answer("dc1", subscription, f"id{serial}", status)


def committed(position: int, *intervals: tuple[int, int]) -> Committed:
    return Committed(
        PLACE, "g_t_s", Commit(position, encode(position, intervals, CommitOwner(1, 1)))
    )


def attempted(number: int, at_s: float, retries: int = 0, message_id: str = "id1") -> Attempted:
    return Attempted("n1#1", number, "g.t$s", message_id, retries, at_s)


FAILED = attempted(1, 0.0)
RETRIED = attempted(2, 0.3, retries=1)

KILLED = Troubled("n1", Fault.NODE_KILL.value, 3.0, lasts_s=0.0)

# What each run has of everything else, so that no checker has nothing to examine.
AFTERWARDS, REPEATED = published(90, topic="g.f"), published(91, topic="g.f")
REPEATED.idempotency_key = "once"
ALL_OWNED = tuple(
    Assignment(audience.name, (Target("boot", tuple(range(10))),)) for audience in SUBJECT.audiences
)
SAID: tuple[Said, ...] = (
    Join("boot", "n1"),
    TermClaim("boot", 1),
    Plan("boot", 1, -1, ALL_OWNED),
)
FOLDED = Folded("dc1-n1#1", "dc1", "metadata", 0, 1, b"", 70.0, {"topic/g.t": (1, 1, "dc1", b"")})
KEYED = [replace(published(serial, topic="g.f"), key="k") for serial in (92, 93)]
REST: tuple[Event, ...] = (
    *(Renewed(life, 1_000.0, -1.0) for life in ("n1#1", "n1#2", "n2#1")),
    FOLDED,
    replace(FOLDED, life="dc1-n2#1"),
    *(replace(stored(92 + at, 2 + at, ("dc1", "g.f", 0)), key="k") for at in range(2)),
    *KEYED,
    *(Coordinated("dc1", offset, 0, said, 80.0) for offset, said in enumerate(SAID)),
    Rested(80.0),
    Allowed("dc1", "g.t$s", {"n1#1": 2.0, "n2#1": 1.0}, 80.0),
    Healed(80.0),
    Handed("dc1-n1#1", "dc1", "g.f", ("id90",), ("local",), 90.0),
    stored(90, 0, ("dc1", "g.f", 0)),
    AFTERWARDS,
    stored(91, 1, ("dc1", "g.f", 0)),
    REPEATED,
    replace(REPEATED, is_repeat=True, began_s=92.0, ended_s=92.0),
)

GOOD: tuple[Event, ...] = (
    *REST,
    stored(1, 0),
    published(1),
    FAILED,
    Ended(FAILED, 500, "", 0.1),
    RETRIED,
    delivered(1),
    answered(1),
    Ended(RETRIED, 200, "", 0.4),
    committed(1),
    published(2, 400),
)


def make_checks() -> Checks:
    config = Config(frontend=FrontendConfig(waiting_per_topic_max=WAITING_MAX))
    return Checks(SUBJECT, config, lambda _node, _message_id: False, lambda _place: 10)


def violations_of(events: Sequence[Event], *, began: Sequence[int] = (1, 2, 3)) -> list[str]:
    checks = make_checks()
    for serial in began:
        checks.payloads.begin(published(serial, None))
    for event in events:
        if isinstance(event, Published):
            checks.payloads.begin(event)
    for event in events:
        checks.watch(event)
    checks.settling.settled(1)
    checks.failures.started()
    return checks.finish()


def test_a_good_history_violates_nothing() -> None:
    assert violations_of(GOOD) == []


def test_a_run_in_which_nothing_happened_fails_in_every_checker() -> None:
    checks = make_checks()
    assert sorted(checks.finish()) == sorted(
        f"{checker.name}: nothing was examined" for checker in checks.all if not checker.is_rare
    )


def test_a_message_of_ack_all_that_leaves_with_its_leader_is_found() -> None:
    (found,) = violations_of((*GOOD, Dropped(PLACE, 0)))
    assert found.startswith("acknowledged are stored: message 1 of ack ALL left")


def test_a_copy_in_another_log_makes_up_for_a_dropped_one() -> None:
    other = ("dc2", "g.t", 0)
    assert violations_of((stored(1, 0, other), *GOOD, Dropped(PLACE, 0))) == []


def test_a_leader_change_may_take_what_was_acknowledged_at_leader() -> None:
    place = ("dc1", "g.u", 0)
    lost = (stored(3, 0, place), published(3, topic="g.u"), Dropped(place, 0))
    assert violations_of((*GOOD, *lost)) == []


def test_a_message_that_the_subscriber_refused_is_accounted_for() -> None:
    assert violations_of((*GOOD, stored(3, 1), published(3), answered(3, 422))) == []


def test_a_refusal_ends_nothing_where_client_errors_are_retried() -> None:
    place = ("dc1", "g.u", 0)
    refused = (
        stored(3, 0, place),
        published(3, topic="g.u"),
        answered(3, 400, "g.u$stubborn"),
    )
    (found,) = violations_of((*GOOD, *refused))
    assert found.startswith("acknowledged are delivered: g.u$stubborn never got 1")


def test_a_commit_over_a_message_whose_answer_was_lost_is_found() -> None:
    (found,) = violations_of((*GOOD, stored(3, 1), delivered(3), committed(2)))
    assert "over 1 unsettled offsets: 1" in found


def test_an_interval_over_settled_offsets_is_allowed() -> None:
    later = (stored(4, 1), stored(3, 2), delivered(3), answered(3), committed(1, (2, 3)))
    assert violations_of((*GOOD, *later), began=(1, 2, 3, 4)) == []


def test_a_commit_beyond_the_end_of_the_log_is_found() -> None:
    (found,) = violations_of((*GOOD, committed(9)))
    assert "over 8 unsettled offsets: 1, 2, 3, 4, 5" in found


@pytest.mark.parametrize("position", [1, 2])
def test_a_consumer_begins_with_the_commit_that_it_read(position: int) -> None:
    """Not with one of its predecessor that came afterwards, as when its subscription changes."""
    life, checker = "dc1-n1#2", SettledStaySettled(SUBJECT)
    adopted, known = Adopted(life, "g.t$s"), committed(position)
    read = Recalled(life, "dc1", "g_t_s", "g.t", {0: known.commit})
    again = replace(attempted(1, 5.0, message_id="id3"), node=life)
    for event in (stored(3, 1), known, adopted, read, committed(2), adopted, again):
        checker.watch(event)
    assert (checker.examined, len(checker.violations)) == (1, position - 1)


def test_a_foreign_groups_commit_is_nobodys_concern() -> None:
    foreign = Committed(PLACE, "somebody-else", Commit(99, ""))
    assert violations_of((*GOOD, foreign)) == []


@pytest.mark.parametrize(
    ("delivery", "why"),
    [
        (Delivery("dc1", "g.t$s", "id1", b"not json", True), "nobody published"),
        (Delivery("dc1", "g.t$s", "id1", b'{"serial": 77}', True), "nobody published"),
        (Delivery("dc1", "g.t$s", "id1", b'{"serial": 1, "x": 1}', True), "altered bytes"),
        (Delivery("dc1", "g.u$stubborn", "id1", body_of(1), True), "foreign topic"),
        (Delivery("dc1", "g.t$s", "id9", body_of(1), True), "an id that no log has"),
    ],
)
def test_a_delivery_of_something_else_than_was_published_is_found(
    delivery: Delivery, why: str
) -> None:
    (found,) = violations_of((*GOOD, delivery))
    assert found.startswith("payloads are intact: ")
    assert why in found


def failed(
    began_s: float, ended_s: float, status: int | None = 503, code: str = "SENDING_TO_KAFKA_TIMEOUT"
) -> Published:
    request = published(3, status)
    request.began_s, request.ended_s, request.code = began_s, ended_s, code
    return request


@pytest.mark.parametrize("status", [500, 503, None])
def test_a_publish_that_fails_while_all_is_well_is_found(status: int | None) -> None:
    (found,) = violations_of((*GOOD, failed(10.0, 10.4, status)))
    assert found.startswith(
        f"publishes are answered in time: message 3 for g.t was answered {status} "
    )
    assert "by n1 after 0.400 s at 10.400, and nothing was broken" in found


@pytest.mark.parametrize(
    ("began_s", "ended_s", "is_explained"),
    [
        (10.0, 10.4, False),
        (10.9, 11.1, True),
        (11.2, 11.3, True),
        (12.05, 12.4, True),
        (12.15, 12.5, False),
    ],
)
def test_a_faulty_log_explains_what_fails_meanwhile_and_shortly_after(
    began_s: float, ended_s: float, is_explained: bool
) -> None:
    fault = (Troubled("dc1", Fault.LOG_SILENT.value, 11.0), Calmed("dc1", 12.0))
    found = violations_of((*GOOD, *fault, failed(began_s, ended_s)))
    assert len(found) == (not is_explained)


@pytest.mark.parametrize(
    "trouble",
    [
        Troubled("dc2", Fault.LOG_SILENT.value, 9.0),
        Troubled("n2", Fault.NODE_KILL.value, 10.2, lasts_s=0.0),
        Troubled("n1", Fault.ACTOR_CRASH.value, 10.2, lasts_s=0.1, topic="g.u"),
        Troubled("dc1", Fault.COMMITS_FAILING.value, 9.0),
    ],
)
def test_trouble_off_the_path_of_a_publish_does_not_explain_it(trouble: Troubled) -> None:
    (found,) = violations_of((*GOOD, trouble, failed(10.0, 10.4)))
    assert found.startswith("publishes are answered in time: message 3 ")


@pytest.mark.parametrize(
    "trouble",
    [
        Troubled("n1", Fault.NODE_KILL.value, 10.2, lasts_s=0.0),
        Troubled("n1", Fault.ACTOR_CRASH.value, 9.5, lasts_s=0.45, topic="g.t"),
    ],
)
def test_the_end_of_a_node_or_of_its_producer_explains_a_failed_publish(trouble: Troubled) -> None:
    assert violations_of((*GOOD, trouble, failed(10.0, 10.4))) == []


@pytest.mark.parametrize(("others", "is_due"), [(WAITING_MAX, True), (WAITING_MAX - 1, False)])
def test_a_refusal_is_due_once_as_many_are_under_way_as_may_wait(others: int, is_due: bool) -> None:
    events: list[Event] = [*GOOD, failed(10.0, 10.0, 503, "OTHER")]
    for number in range(others):
        other = published(4 + number, 404)
        other.began_s, other.ended_s = 9.9, 10.1
        events.append(other)
    assert len(violations_of(events)) == (not is_due)


def test_a_refused_message_that_is_stored_is_found() -> None:
    (found,) = violations_of((*GOOD, stored(2, 1)))
    assert found == "refused are nowhere: message 2 was answered 400 and stored in dc1/g.t"


def test_a_refused_message_that_is_delivered_is_found() -> None:
    found = violations_of((*GOOD, stored(2, 1), delivered(2)))
    assert found == ["refused are nowhere: message 2 was answered 400 and delivered to g.t$s"]


def test_an_unanswered_message_may_be_stored_and_delivered() -> None:
    unknown = (stored(3, 1), published(3, None), delivered(3), answered(3))
    assert violations_of((*GOOD, KILLED, *unknown)) == []


def test_what_a_crashed_consumer_pushed_counts_against_its_successors_rate() -> None:
    pushes = [attempted(number, 5.0 + number / 10, message_id="id3") for number in range(3, 7)]
    events: list[Event] = []
    for push in pushes:
        events += [push, Ended(push, 200, "", push.at_s)]
    events.insert(4, Adopted("n1#1", "g.t$s"))
    (found,) = violations_of((*GOOD, *events))
    assert found.startswith("the rate is kept: n1#1 pushed 4 messages to g.t$s within a second")


def test_more_pushes_under_way_than_the_window_are_found() -> None:
    pushes = [attempted(number, float(number), message_id=f"id{number}") for number in (3, 4, 5)]
    assert violations_of((*GOOD, *pushes[:2])) == []
    (found,) = violations_of((*GOOD, *pushes))
    assert found.startswith("the window is kept: n1#1 has 3 pushes to g.t$s under way")


def test_pushes_of_a_crashed_consumer_are_not_in_its_successors_window() -> None:
    pushes = [attempted(number, float(number), message_id=f"id{number}") for number in (3, 4, 5)]
    assert violations_of((*GOOD, *pushes[:2], Adopted("n1#1", "g.t$s"), pushes[2])) == []


def test_the_end_of_an_orphaned_attempt_is_no_reason_to_wait() -> None:
    orphan, own = attempted(3, 1.0, message_id="id3"), attempted(4, 2.0, message_id="id3")
    again = attempted(5, 2.2, retries=1, message_id="id3")
    ends = (Ended(own, 500, "", 2.1), Ended(orphan, 500, "", 2.15))
    assert violations_of((*GOOD, orphan, own, *ends, again)) == []


def test_a_failure_that_nobody_injected_is_found() -> None:
    checks = make_checks()
    checks.failures.failed("error the consumer of g.t$s failed: KeyError(1)")
    assert any("KeyError" in each for each in checks.finish())


def test_a_run_that_does_not_settle_is_found() -> None:
    checks = make_checks()
    checks.settling.failed("messages are owed")
    assert "everything settles: messages are owed" in checks.finish()
