"""The checkers of order, filters, batches, dead letters and retransmissions can fail."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, LastRead, encode
from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.checkers.delivering import AcknowledgedAreDelivered, CommitsPassOnlySettled
from hermes_chaos.sim.checkers.giving_up import LettersCloseByDelivery, LettersHaveCauses
from hermes_chaos.sim.checkers.holding import (
    AttemptsAreFew,
    DeadEndpointsRest,
    SuspensionHalts,
)
from hermes_chaos.sim.checkers.publishing import AcknowledgedAreStored
from hermes_chaos.sim.checkers.pushing import RetriesWait
from hermes_chaos.sim.checkers.sequencing import OrderIsKept
from hermes_chaos.sim.history.events import (
    Adopted,
    Answer,
    Attempted,
    Closed,
    Committed,
    Dropped,
    Ended,
    Event,
    Halted,
    Lettered,
    Lettering,
    Published,
    Sought,
    Stored,
)
from hermes_chaos.sim.workload.subject import Audience, Subject

NODE = "dc1-n1#1"
PLACE = ("dc1", "g.t", 0)
S, EVEN, BATCH, BOTH, ROW = "g.t$s", "g.t$even", "g.t$batch", "g.t$both", "g.t$row"
SUBJECT = Subject(
    {"g.t": Ack.ALL},
    [
        Audience(S, "g.t", "s", keeps_letters=True, attempts_max=2, discard_on=(503,)),
        Audience(EVEN, "g.t", "even", keeps_letters=True, wants_even=True),
        Audience(BATCH, "g.t", "batch", keeps_letters=True, batch=(2, 2_000)),
        Audience(BOTH, "g.t", "both", keeps_letters=True, recipients=2),
        Audience(ROW, "g.t", "row", keeps_letters=True, is_ordered=True),
    ],
)


def found_by(checker: Checker, events: Sequence[Event]) -> list[str]:
    for event in events:
        checker.watch(event)
    checker.finish()
    return checker.violations


def stored(serial: int, key: str = "k") -> Stored:
    """The record at offset `serial`."""
    body = b'{"serial": %d}' % serial
    return Stored(PLACE, serial, f"id{serial}", body, "g.t", key, timestamp_ms=1_000 * serial)


def answer(
    serial: int, name: str = S, status: int = 200, host: str = "a", at_s: float = 1
) -> Answer:
    return Answer("dc1", name, f"id{serial}", status, host, at_s)


def letter(serial: int, reason: str = "attempts", status: int = 500, name: str = S) -> Letter:
    return Letter(
        "dc1", name, 1, "g.t", 0, serial, 0, None, b"", (), f"id{serial}", reason, "", 2, status, 0
    )


def lettered(serial: int, name: str = S, at_s: float = 1.0) -> Lettered:
    return Lettered("dc1", letter(serial, name=name), at_s)


def committed(
    position: int, group: str, seek: int = 0, epoch: int = 0, last_read: LastRead | None = None
) -> Committed:
    metadata = encode(position, (), CommitOwner(1, 1, epoch, seek), last_read=last_read)
    return Committed(PLACE, group, Commit(position, metadata))


def sought(number: int, offset: int, name: str = S, at_s: float = 5.0) -> Sought:
    return Sought(NODE, name, number, {0: offset}, None, at_s)


def pushed(
    offset: int, name: str = ROW, at_s: float = 1.0, retries: int = 0, node: str = NODE
) -> Attempted:
    return Attempted(node, offset, name, f"id{offset}", retries, at_s, sequence=(0, offset))


def published(serial: int) -> Published:
    return Published(serial, "g.t", b'{"serial": %d}' % serial, "n1", 201, f"id{serial}")


# Settled


def delivered() -> AcknowledgedAreDelivered:
    return AcknowledgedAreDelivered(SUBJECT, AcknowledgedAreStored(SUBJECT, lambda _n, _i: False))


def pending(*events: Event) -> set[str]:
    checker = delivered()
    for event in (stored(1), published(1), *events):
        checker.watch(event)
    return set(checker.pending())


def test_a_message_is_owed_until_it_is_delivered_kept_or_skipped() -> None:
    assert pending() == {S, BATCH, BOTH, ROW}, "a filter leaves it out for one"
    assert S not in pending(answer(1))
    assert S not in pending(lettered(1))
    assert S not in pending(sought(7, 2))
    assert S in pending(sought(7, 1))
    assert S in pending(answer(1, status=400)), "a refused one is to be a dead letter"


@pytest.mark.parametrize(
    ("position", "seek", "is_owed"), [(2, 7, False), (1, 7, True), (2, 0, True)]
)
def test_what_a_spool_kept_from_before_a_seek_by_time_is_skipped_where_that_went(
    position: int, seek: int, is_owed: bool
) -> None:
    by_time = Sought(NODE, S, 7, None, 2_000, 5.0)
    checker = delivered()
    for event in (published(1), by_time, stored(1), committed(position, "s", seek)):
        checker.watch(event)
    assert (S in checker.pending()) == is_owed


def test_a_message_for_two_is_owed_until_both_have_it() -> None:
    assert BOTH in pending(answer(1, BOTH), answer(1, BOTH, at_s=2))
    assert BOTH not in pending(answer(1, BOTH), answer(1, BOTH, host="b"))


def test_a_dead_letter_that_is_not_open_at_the_end_settles_nothing() -> None:
    checker = delivered()
    for event in (stored(1), published(1), lettered(1)):
        checker.watch(event)
    checker.keeps({S: {"id1"}})
    assert S not in checker.pending()
    checker.keeps({})
    assert S in checker.pending()


@pytest.mark.parametrize(
    ("settling", "is_found"),
    [
        ((answer(0),), False),
        ((lettered(0),), False),
        ((answer(0, status=503),), True),
        ((), True),
    ],
)
def test_a_commit_over_what_is_given_up_waits_for_its_dead_letter(
    settling: tuple[Event, ...], is_found: bool
) -> None:
    events = [stored(0), *settling, committed(1, "s")]
    assert bool(found_by(CommitsPassOnlySettled(SUBJECT), events)) == is_found


def test_a_commit_over_what_only_one_of_two_has_is_found() -> None:
    checker = CommitsPassOnlySettled(SUBJECT)
    (found,) = found_by(checker, [stored(0), answer(0, BOTH), committed(1, "both")])
    assert "over 1 unsettled offsets: 0" in found


@pytest.mark.parametrize(("number", "is_found"), [(2, False), (3, True)])
def test_only_a_commit_that_was_made_before_may_land_when_the_log_has_lost_its_end(
    number: int, is_found: bool
) -> None:
    before = [*map(stored, range(3)), *map(answer, range(3)), committed(2, "s")]
    events = [*before, Dropped(PLACE, 1), Stored(PLACE, 1, "new", b"", "g.t")]
    found = found_by(CommitsPassOnlySettled(SUBJECT), [*events, committed(number, "s")])
    assert bool(found) is is_found


LOST, NEWER = LastRead(2, 2_000, 1), LastRead(2, 9_000, 2)


@pytest.mark.parametrize(
    ("before", "again", "is_found"),
    [
        (committed(3, "s", last_read=LOST), committed(3, "s", 0, 1, LOST), False),
        # Of nothing else may it be said: neither of the record that came instead, nor of more,
        # nor of a lost record of which it was never said, nor by who names none.
        (committed(3, "s", last_read=LOST), committed(3, "s", 0, 1, NEWER), True),
        (committed(2, "s", last_read=LOST), committed(3, "s", 0, 1, LOST), True),
        (committed(3, "s"), committed(3, "s", 0, 1, LOST), True),
        (committed(3, "s"), committed(3, "s", 0, 1), True),
    ],
)
def test_a_new_owner_may_say_again_what_was_said_of_the_record_that_it_names_as_read_last(
    before: Committed, again: Committed, is_found: bool
) -> None:
    said = [*map(stored, range(3)), *map(answer, range(3)), before]
    events = [*said, Dropped(PLACE, 1), Stored(PLACE, 1, "new", b"", "g.t"), again]
    assert bool(found_by(CommitsPassOnlySettled(SUBJECT), events)) is is_found


def test_a_commit_may_pass_what_a_filter_leaves_out_and_nothing_else() -> None:
    checker = CommitsPassOnlySettled(SUBJECT)
    assert found_by(checker, [stored(1), stored(2), answer(2, EVEN)]) == []
    events: list[Event] = [stored(0), stored(1), committed(2, "even")]
    (found,) = found_by(CommitsPassOnlySettled(SUBJECT), events)
    assert found.endswith("unsettled offsets: 0")


# Order

ROWS = tuple(map(stored, range(3)))


def test_a_retransmission_begins_an_order_that_holds_too() -> None:
    before = [each for n in range(3) for each in (pushed(n), answer(n, ROW))]
    anew = (*before, sought(7, 1, ROW), Adopted(NODE, ROW, 5.0), pushed(1, at_s=6))
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, *anew, answer(1, ROW, at_s=7), pushed(2)]) == []
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, *anew, pushed(2)])


def test_who_slept_when_a_retransmission_was_heard_of_pushes_in_no_order_until_it_hears() -> None:
    asleep, heard = "dc1-n2#1", [sought(7, 1, ROW), Adopted(NODE, ROW, 5.0), pushed(1, at_s=6)]
    early = pushed(2, at_s=6.1, node=asleep)
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, *heard, early]) == []
    hears = [Sought(asleep, ROW, 7, {0: 1}, None, 6.1), Adopted(asleep, ROW, 6.1)]
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, *heard, *hears, early])


def test_a_retransmission_that_a_node_hears_of_again_begins_no_order() -> None:
    anew = [sought(7, 0, ROW), Adopted(NODE, ROW, 5.0), pushed(0, at_s=6), answer(0, ROW, at_s=7)]
    again = [sought(7, 0, ROW, at_s=8), Adopted(NODE, ROW, 8.0), pushed(1, at_s=9)]
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, *anew, *again]) == []


def test_messages_of_other_keys_wait_for_nobody() -> None:
    rows = [stored(0), stored(1, "other"), stored(2, "")]
    assert found_by(OrderIsKept(SUBJECT), [*rows, pushed(0), pushed(1), pushed(2)]) == []


def batch(*ids: str, body: bytes = b"", number: int = 1) -> Attempted:
    return Attempted(NODE, number, BATCH, f"b{number}", 0, 1.0, body=body, ids=ids)


def test_a_batch_before_an_earlier_message_is_settled_is_found() -> None:
    first, second = batch("id0", "id1"), batch("id2")
    took = [answer(0, BATCH), answer(1, BATCH)]
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, first, *took, second]) == []
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, first, second])


def test_a_batch_waits_for_no_letter_of_what_was_given_up_unread() -> None:
    given_up = letter(0, DiscardReason.TOO_LARGE, name=BATCH)
    handed = Lettering(NODE, "dc1", given_up, 1.0)
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, handed, batch("id1")]) == []
    assert found_by(OrderIsKept(SUBJECT), [*ROWS, handed, batch("id2")])


# Held back


def test_attempts_are_counted_also_when_the_product_does_not() -> None:
    ended = [Ended(pushed(0, S), 500, "", 1.0), Ended(pushed(0, S), 500, "", 2.0)]
    assert found_by(AttemptsAreFew(SUBJECT), [pushed(0, S), *ended, pushed(0, S, retries=1)])


def test_of_two_copies_of_a_message_nobody_counts_the_attempts() -> None:
    events = [pushed(0, S), Ended(pushed(0, S), 500, "", 1.0), pushed(0, S, retries=1)]
    ended = Ended(pushed(0, S, retries=1), 500, "", 2.0)
    more = [*events, ended, pushed(0, S, retries=1)]
    assert found_by(AttemptsAreFew(SUBJECT), [stored(0), *more])
    assert found_by(AttemptsAreFew(SUBJECT), [stored(0), stored(0), *more]) == []


def test_of_a_message_that_is_read_again_and_re_driven_nobody_counts_the_attempts() -> None:
    ended = [Ended(pushed(0, S), 500, "", 1.0), Ended(pushed(0, S), 500, "", 2.0)]
    twice: list[Event] = [pushed(0, S), lettered(0), *ended, pushed(0, S, retries=1)]
    assert found_by(AttemptsAreFew(SUBJECT), twice) == []
    early = Ended(pushed(0, S), 200, "", 1.0)
    retried = pushed(0, S, retries=1, at_s=1.01)
    assert found_by(RetriesWait(SUBJECT), [pushed(0, S), early, retried])
    assert found_by(RetriesWait(SUBJECT), [lettered(0), *twice, retried]) == []


@pytest.mark.parametrize(
    ("events", "is_found"),
    [
        ((pushed(0, S, at_s=5.9),), False),
        ((pushed(0, S, at_s=6.1),), True),
        ((pushed(0, S, at_s=6.1, node="dc1-n2#1"),), False),
        ((Halted(NODE, S, False, 6.0), pushed(0, S, at_s=6.1)), False),
    ],
)
def test_an_attempt_long_after_a_suspension_is_found(
    events: tuple[Event, ...], is_found: bool
) -> None:
    halted = Halted(NODE, S, True, 5.0)
    assert bool(found_by(SuspensionHalts(SUBJECT), [halted, *events])) == is_found


@pytest.mark.parametrize(("had_failed", "is_found"), [(45, False), (10, True), (0, True)])
@pytest.mark.parametrize("lasts_s", [3, 5])
def test_messages_that_had_failed_before_others_were_taken_show_later_that_an_endpoint_is_dead(
    had_failed: int, is_found: bool, lasts_s: int
) -> None:
    events: list[Event] = []
    for number in range(50 * lasts_s):
        serial = number % had_failed if had_failed > 20 else number
        attempt = pushed(serial, S, at_s=2 + number / 50)
        events += [attempt, Ended(attempt, 500, "", attempt.at_s + 0.01)]
    before: list[Event] = []
    for serial in range(had_failed):
        attempt = pushed(serial, S, at_s=1)
        before.append(Ended(attempt, 500, "", 1.01))
    before.append(Ended(pushed(1_000, S, at_s=1.5), 200, "", 1.6))
    found = found_by(DeadEndpointsRest(SUBJECT), [*before, *events])
    assert bool(found) is (is_found or lasts_s == 5)


# Dead letters


@pytest.mark.parametrize(
    ("given_up", "is_found"),
    [
        (letter(0), False),
        (letter(0, DiscardReason.DISCARD_STATUS, 503), False),
        (letter(0, DiscardReason.CLIENT_ERROR, 404), False),
        (letter(0, DiscardReason.CLIENT_ERROR, 500), True),
        (letter(0, DiscardReason.DISCARD_STATUS, 500), True),
        (letter(0, DiscardReason.EXPIRED, 500), True),
        (letter(0, DiscardReason.TOO_LARGE, 0), True),
        (letter(0, DiscardReason.UNDECODABLE, 0), True),
        (letter(0, status=502), True),
    ],
)
def test_a_message_that_is_given_up_without_a_cause_is_found(
    given_up: Letter, is_found: bool
) -> None:
    answers = [answer(0, status=status) for status in (404, 500, 503)]
    events: list[Event] = [*answers, Lettered("dc1", given_up, 1.0)]
    assert bool(found_by(LettersHaveCauses(SUBJECT), events)) == is_found


@pytest.mark.parametrize(("delivered_s", "is_found"), [(4.5, False), (3.5, True)])
def test_a_message_may_be_delivered_while_the_letter_of_another_attempt_is_being_stored(
    delivered_s: float, is_found: bool
) -> None:
    kept = lettered(0, at_s=5.0)
    handed = Lettering(NODE, "dc1", kept.letter, 4.0)
    closed = Closed("dc1", S, "redriven", (kept.letter.id,), 7.0)
    events = [answer(0, at_s=delivered_s), handed, kept, closed]
    assert bool(found_by(LettersCloseByDelivery(SUBJECT), events)) == is_found


@pytest.mark.parametrize(
    ("change", "is_found"),
    [({}, False), ({"at_ms": 6_500}, True), ({"attempts": 1}, True), ({"redrives": 1}, True)],
)
def test_a_copy_of_a_dead_letter_may_come_after_the_delivery_and_a_new_one_may_not(
    change: dict[str, int], is_found: bool
) -> None:
    kept = lettered(0, at_s=5.0)
    again = replace(kept, letter=structs.replace(kept.letter, **change), at_s=6.5)
    late_copy = replace(kept, at_s=6.8)
    closed = Closed("dc1", S, "redriven", (kept.letter.id,), 7.0)
    after_the_first, after_both = answer(0, at_s=6), answer(0, at_s=6.6)

    history = [kept, after_the_first, again, late_copy, closed]
    assert bool(found_by(LettersCloseByDelivery(SUBJECT), history)) == is_found
    history = [kept, again, after_both, late_copy, closed]
    assert found_by(LettersCloseByDelivery(SUBJECT), history) == []
    history = [answer(0, at_s=4), kept, again, late_copy, closed]
    assert len(found_by(LettersCloseByDelivery(SUBJECT), history)) == 1


@pytest.mark.parametrize(("up_to_ms", "is_found"), [(6_000, False), (6_500, True)])
def test_a_mark_closes_what_was_given_up_till_the_time_that_it_says(
    up_to_ms: int, is_found: bool
) -> None:
    kept = lettered(0, at_s=5.0)
    later = replace(kept, letter=structs.replace(kept.letter, at_ms=6_500), at_s=6.5)
    closed = Closed("dc1", S, "redriven", (kept.letter.id,), 7.0, (up_to_ms,))
    history = [kept, answer(0, at_s=6), later, closed]
    assert bool(found_by(LettersCloseByDelivery(SUBJECT), history)) == is_found
