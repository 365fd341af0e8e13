"""The cache of an external registry's schemas: what it tells, and what it asks next."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.schema.known import (
    ASK_INTERVAL_S,
    ID_REQUESTS_PER_S,
    OUTAGE_PAUSE_MAX_S,
    KnownLimits,
    KnownSchemas,
    Listed,
    Lookup,
)
from hermes_actors.schema.source import SchemaVersion

LIMITS = KnownLimits(refresh_s=600, expiry_s=86_400)
TOPIC = "shop.orders"


def version(number, own_id=None, text='"string"'):
    return SchemaVersion(number, own_id or number, Schema(SchemaKind.AVRO, text))


def listed(*numbers):
    return Listed({number: version(number) for number in numbers})


def known_by(limits=LIMITS):
    return KnownSchemas(limits, random.Random(7))


def answered(known, answer=None, now_s=0.0, subject=TOPIC):
    """The subject is asked about and answered."""
    known.versions_of(subject, {}, now_s)
    assert known.next(now_s) == Lookup(subject)
    return known.listed(subject, answer or listed(1), now_s)


def nothing():
    pass


def test_a_subject_that_is_used_is_asked_about_once():
    known = known_by()
    assert known.versions_of(TOPIC, {}, 0) == {}
    assert known.versions_of(TOPIC, {}, 0) == {}
    assert known.next(0) == Lookup(TOPIC)
    assert known.next(0) is None
    assert known.listed(TOPIC, listed(1), 0) == (True, [])
    assert known.versions_of(TOPIC, {}, 0) == {1: version(1)}
    assert known.next(539) is None
    assert known.next(661) == Lookup(TOPIC)


def test_who_asks_for_a_subject_at_once_is_answered_together():
    known, told = known_by(), []
    assert known.ask(TOPIC, lambda: told.append(1), 0)
    assert known.ask(TOPIC, lambda: told.append(2), 0)
    assert known.next(0) == Lookup(TOPIC)
    assert known.ask(TOPIC, lambda: told.append(3), 0)
    assert known.next(0) is None
    _, waiting = known.listed(TOPIC, listed(1), 0)
    for done in waiting:
        done()
    assert told == [1, 2, 3]


def test_unknown_versions_named_a_thousand_times_a_second_are_one_request_a_second():
    known = known_by()
    answered(known)
    requests = 0
    for turn in range(10_000):
        now_s = turn / 1_000
        known.ask(TOPIC, nothing, now_s)
        while known.next(now_s) is not None:
            requests += 1
            known.listed(TOPIC, listed(1), now_s)
    assert requests <= 10 / ASK_INTERVAL_S


def test_unknown_ids_are_a_bounded_number_of_requests():
    known = known_by()
    requests = 0
    for turn in range(10_000):
        now_s = turn / 1_000
        assert known.by_id(turn + 1, now_s) is None
        while (lookup := known.next(now_s)) is not None:
            requests += 1
            known.found(lookup.schema_id, None, now_s)
    assert requests <= 11 * ID_REQUESTS_PER_S


def test_a_missing_id_is_not_asked_for_again_at_once():
    known = known_by()
    assert known.by_id(5, 0) is None
    assert known.next(0) == Lookup("", 5)
    known.found(5, None, 0)
    assert known.by_id(5, 1) is None
    assert known.next(1) is None
    assert known.is_missing(5)
    assert known.by_id(5, 61) is None
    assert known.next(61) == Lookup("", 5)
    known.found(5, version(1).schema, 61)
    assert known.by_id(5, 61) == version(1).schema


def test_an_id_that_two_subjects_have_with_different_texts_is_nobodys():
    known = known_by()
    answered(known, Listed({1: version(1, 7, '"string"')}))
    assert known.by_id(7, 0) is not None
    answered(known, Listed({1: version(1, 7, '"int"')}), subject="shop.returns")
    assert known.by_id(7, 0) is None
    assert known.next(0) is None


def test_what_is_known_goes_on_in_an_outage_until_it_expires():
    known = known_by()
    answered(known)
    now_s = 700.0
    while now_s < 86_399:
        assert known.versions_of(TOPIC, {}, now_s) == {1: version(1)}
        assert known.lack(TOPIC, now_s) == ""
        if (lookup := known.next(now_s)) is not None:
            known.failed(lookup, "refused", now_s, is_away=True)
        now_s += 60
    assert known.versions_of(TOPIC, {}, 86_401) == {}
    assert known.lack(TOPIC, 86_401) == "refused"
    assert known.sweep(lambda _: True, 86_401) == [TOPIC]
    known.ask(TOPIC, nothing, 86_500)
    assert known.next(86_500) == Lookup(TOPIC)
    changed, _ = known.listed(TOPIC, listed(1), 86_500)
    assert changed, "it can be used again"
    assert known.trouble == ""


def test_in_an_outage_one_request_in_a_while_tries():
    known = known_by()
    for number in range(1_000):
        known.versions_of(f"shop.t{number}", {}, 0)
    requests, now_s = 0, 0.0
    while now_s < 100:
        known.ask(f"shop.t{requests}", nothing, now_s)
        while (lookup := known.next(now_s)) is not None:
            requests += 1
            known.failed(lookup, "refused", now_s, is_away=True)
        now_s += 0.01
    assert requests < 8 + 100 / (OUTAGE_PAUSE_MAX_S * 0.9) + 1
    assert known.trouble == "refused"
    assert not known.ask("shop.t1", nothing, now_s), "it is answered at once"


def test_one_bad_answer_does_not_hold_the_others_up():
    known = known_by()
    known.versions_of("shop.bad", {}, 0)
    known.failed(known.next(0), "no JSON", 0, is_away=False)
    assert known.trouble == ""
    answered(known)


def test_what_management_has_registered_is_asked_for_at_once_and_until_it_is_there():
    known = known_by()
    answered(known)
    assert known.versions_of(TOPIC, {1: 1, 2: 2}, 5) == {1: version(1)}
    assert known.next(5) == Lookup(TOPIC)
    known.listed(TOPIC, listed(1), 5)
    assert known.next(5.9) is None
    assert known.next(6) == Lookup(TOPIC)
    known.listed(TOPIC, listed(1, 2), 6)
    assert known.next(500) is None


def test_a_change_during_a_look_up_is_looked_up_again():
    known = known_by()
    known.versions_of(TOPIC, {}, 0)
    known.next(0)
    known.versions_of(TOPIC, {1: 1}, 0)
    assert known.next(0) is None
    known.listed(TOPIC, Listed(), 0)
    assert known.next(0) == Lookup(TOPIC)


def test_a_subject_that_must_have_versions_lacks_them_while_nothing_is_known():
    known = known_by()
    known.versions_of(TOPIC, {1: 1}, 0)
    assert known.lack(TOPIC, 0) == "the registry has not answered yet"
    known.failed(known.next(0), "refused", 0, is_away=True)
    assert known.lack(TOPIC, 0) == "refused"
    known.next(10)
    known.listed(TOPIC, Listed(), 10)
    assert known.lack(TOPIC, 10) == "the registry has no versions of it"
    known.versions_of(TOPIC, {}, 10)
    assert known.lack(TOPIC, 10) == ""


def test_a_version_that_cannot_be_used_is_lacking():
    known = known_by()
    answered(known, Listed({}, "version 1 refers to other schemas"))
    assert known.lack(TOPIC, 0) == "version 1 refers to other schemas"


def test_subjects_and_bytes_are_bounded():
    known = known_by(KnownLimits(subjects_max=2, bytes_max=1_000))
    known.versions_of("a.a", {}, 0)
    known.versions_of("a.b", {}, 0)
    assert known.versions_of("a.c", {1: 1}, 0) == {}
    assert known.lack("a.c", 0) == "more than 2 subjects are in use"
    assert not known.ask("a.c", nothing, 0)
    lookup = known.next(0)
    known.listed(lookup.subject, Listed({1: version(1, text="x" * 2_000)}), 0)
    assert known.versions_of(lookup.subject, {1: 1}, 0) == {}
    assert "1000 bytes" in known.lack(lookup.subject, 0)
    assert known.known_bytes == 0


def test_subjects_that_nobody_uses_are_dropped():
    known = known_by()
    answered(known)
    assert known.known_bytes > 0
    assert known.sweep(lambda _: False, 601) == []
    assert len(known) == 0
    assert known.known_bytes == 0
    assert known.by_id(1, 601) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["use", "announce", "ask", "id", "pass", "answer", "fail", "away"]),
        st.integers(0, 4),
        st.floats(0, 700),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_requests_are_bounded_all_are_told_and_it_heals(steps):
    limits = KnownLimits(requests_max=2, subjects_max=4, bytes_max=10_000)
    known = known_by(limits)
    now_s, under_way, asked, told = 0.0, [], 0, 0

    def done():
        nonlocal told
        told += 1

    def settle(lookup, how, number):
        if how == "answer" and not lookup.subject:
            known.found(lookup.schema_id, None, now_s)
            waiting = []
        elif how == "answer":
            waiting = known.listed(lookup.subject, listed(*range(1, number)), now_s)[1]
        else:
            waiting = known.failed(lookup, "no", now_s, is_away=how == "away")
        for each in waiting:
            each()

    for what, number, pause_s in steps:
        subject = f"shop.t{number}"
        match what:
            case "use":
                known.versions_of(subject, {}, now_s)
            case "announce":
                known.versions_of(subject, {number: number + 1}, now_s)
            case "ask":
                asked += known.ask(subject, done, now_s)
            case "id":
                known.by_id(number, now_s)
            case "pass":
                now_s += pause_s
            case _ if under_way:
                settle(under_way.pop(number % len(under_way)), what, number)
        while (lookup := known.next(now_s)) is not None:
            assert lookup not in under_way, "one subject is one request"
            under_way.append(lookup)
        assert known.under_way == len(under_way) <= 2
        assert len(known) <= 4
        assert 0 <= known.known_bytes <= 10_000
        if not under_way:
            assert known.due_s() > now_s
    for _ in range(100):
        for lookup in under_way:
            settle(lookup, "answer", 3)
        under_way = []
        now_s += 60
        while (lookup := known.next(now_s)) is not None:
            under_way.append(lookup)
        if not under_way:
            break
    assert known.trouble == ""
    assert told == asked


@pytest.mark.parametrize("schema_id", [0, -1, 2**31])
def test_ids_that_no_registry_gives_are_not_asked_for(schema_id):
    known = known_by()
    assert known.by_id(schema_id, 0) is None
    assert known.next(0) is None
