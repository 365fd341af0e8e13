"""The cache of an external registry's schemas: what it tells, and what it asks next."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.schema.known import (
    ASK_INTERVAL_S,
    IDS_PER_SWEEP,
    OUTAGE_PAUSE_MAX_S,
    KnownLimits,
    KnownSchemas,
    Listed,
)
from hermes_actors.schema.source import SchemaVersion

TOPIC = "shop.orders"


def version(number, text='"string"'):
    return SchemaVersion(number, number, Schema(SchemaKind.AVRO, text))


def listed(*numbers):
    return Listed({number: version(number) for number in numbers})


def known_by(**limits):
    return KnownSchemas(KnownLimits(**limits), random.Random(7))


def answered(known, answer=None, now_s=0.0):
    known.versions_of(TOPIC, {})
    assert known.next(now_s) == TOPIC
    return known.listed(TOPIC, answer or listed(1), now_s)


def used(_subject):
    return True


def nothing():
    pass


def test_a_subject_in_use_is_asked_for_once_and_again_after_the_refresh_interval():
    known = known_by()
    assert known.versions_of(TOPIC, {}) == known.versions_of(TOPIC, {}) == {}
    assert known.next(0) == TOPIC
    assert known.next(0) is None
    assert known.listed(TOPIC, listed(1), 0) == (True, [])
    assert known.versions_of(TOPIC, {}) == {1: version(1)}
    known.sweep(used, 539)
    assert known.next(539) is None
    known.sweep(used, 661)
    assert known.next(661) == TOPIC
    assert known.listed(TOPIC, listed(1), 0) == (False, [])


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
        if turn % 1_000 == 0:
            known.sweep(used, now_s)
        assert known.by_id(turn + 1, now_s) is None
        while (wanted := known.next(now_s)) is not None:
            requests += 1
            known.found(wanted, None, now_s)
    assert requests <= 10 * IDS_PER_SWEEP


def test_a_missing_id_is_asked_for_again_after_a_minute():
    known = known_by()
    assert known.by_id(5, 0) is None
    assert known.next(0) == 5
    known.found(5, None, 0)
    assert known.is_missing(5)
    assert known.by_id(5, 1) is None
    assert known.next(1) is None
    known.by_id(5, 61)
    assert known.next(61) == 5
    known.found(5, version(1).schema, 61)
    assert known.by_id(5, 61) == version(1).schema


@pytest.mark.parametrize("schema_id", [0, -1, 2**31])
def test_ids_that_no_registry_gives_are_not_asked_for(schema_id):
    known = known_by()
    assert known.by_id(schema_id, 0) is None
    assert known.next(0) is None


def test_known_versions_stay_in_use_in_an_outage_until_they_expire():
    known = known_by()
    answered(known)
    for now_s in range(700, 86_400, 60):
        assert known.sweep(used, now_s) == []
        assert known.versions_of(TOPIC, {}) == {1: version(1)}
        assert known.lack(TOPIC) == ""
        if (wanted := known.next(now_s)) is not None:
            known.failed(wanted, "refused", now_s, is_away=True)
    assert known.sweep(used, 86_401) == [TOPIC]
    assert known.versions_of(TOPIC, {}) == {}
    assert known.lack(TOPIC) == "refused", "nothing passes unchecked"
    assert known.next(86_500) == TOPIC
    assert known.listed(TOPIC, listed(1), 86_500)[0], "it can be used again"
    assert known.trouble == ""


def test_in_an_outage_one_request_in_a_while_tries_and_nobody_waits():
    known, told = known_by(), []
    for number in range(200):
        known.ask(f"shop.t{number}", lambda: told.append(1), 0)
    requests, now_s = 0, 0.0
    while now_s < 100:
        known.sweep(used, now_s)
        while (wanted := known.next(now_s)) is not None:
            requests += 1
            for done in known.failed(wanted, "refused", now_s, is_away=True):
                done()
        now_s += 1
    assert requests < 8 + 100 / (OUTAGE_PAUSE_MAX_S * 0.9) + 1
    assert known.trouble == "refused"
    assert len(told) == 200
    assert not known.ask("shop.t1", nothing, now_s)


def test_one_bad_answer_does_not_hold_the_others_up():
    known = known_by()
    known.versions_of("shop.bad", {})
    known.failed(known.next(0), "no JSON", 0, is_away=False)
    assert known.trouble == ""
    answered(known)


def test_a_version_that_management_has_registered_is_asked_for_until_it_is_there():
    known = known_by()
    answered(known)
    assert known.versions_of(TOPIC, {1: 1, 2: 2}) == {1: version(1)}
    assert known.next(5) == TOPIC
    known.versions_of(TOPIC, {1: 1, 2: 2, 3: 3})
    assert known.next(5) is None, "a subject has one request at a time"
    known.listed(TOPIC, listed(1), 5)
    assert known.next(5) == TOPIC, "the answer may be from before the change"
    known.listed(TOPIC, listed(1, 2), 5)
    known.sweep(used, 10)
    assert known.next(10) == TOPIC
    known.listed(TOPIC, listed(1, 2, 3), 10)
    known.sweep(used, 500)
    assert known.next(500) is None


def test_a_subject_that_must_have_versions_lacks_them_while_nothing_is_known():
    known = known_by()
    known.versions_of(TOPIC, {1: 1})
    assert known.lack(TOPIC) == "the registry has not answered yet"
    known.failed(known.next(0), "refused", 0, is_away=True)
    assert known.lack(TOPIC) == "refused"
    known.next(10)
    known.listed(TOPIC, Listed(), 10)
    assert known.lack(TOPIC) == "the registry has no versions of it"
    known.versions_of(TOPIC, {})
    assert known.lack(TOPIC) == ""
    known.next(10)
    known.listed(TOPIC, Listed({}, "version 1 refers to other schemas"), 10)
    assert known.lack(TOPIC) == "version 1 refers to other schemas"


def test_subjects_and_bytes_are_bounded():
    known = known_by(subjects_max=2, bytes_max=1_000)
    known.versions_of("a.a", {})
    known.versions_of("a.b", {})
    assert known.versions_of("a.c", {1: 1}) == {}
    assert known.lack("a.c") == "more than 2 subjects are in use"
    assert not known.ask("a.c", nothing, 0)
    assert known.next(0) == "a.a"
    known.listed("a.a", Listed({1: version(1, "x" * 2_000)}), 0)
    assert known.versions_of("a.a", {1: 1}) == {}
    assert "1000 bytes" in known.lack("a.a")
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
    known = known_by(requests_max=2, subjects_max=4, bytes_max=10_000)
    now_s, under_way, asked, told = 0.0, [], 0, []

    def settle(wanted, how, number):
        waiting = []
        if how != "answer":
            waiting = known.failed(wanted, "no", now_s, is_away=how == "away")
        elif isinstance(wanted, int):
            known.found(wanted, None, now_s)
        else:
            waiting = known.listed(wanted, listed(*range(1, number)), now_s)[1]
        for each in waiting:
            each()

    for what, number, pause_s in steps:
        subject = f"shop.t{number}"
        match what:
            case "use":
                known.versions_of(subject, {})
            case "announce":
                known.versions_of(subject, {number: number + 1})
            case "ask":
                asked += known.ask(subject, lambda: told.append(1), now_s)
            case "id":
                known.by_id(number, now_s)
            case "pass":
                now_s += pause_s
                known.sweep(lambda each: each != "shop.t1", now_s)
            case _ if under_way:
                settle(under_way.pop(number % len(under_way)), what, number)
        while (wanted := known.next(now_s)) is not None:
            assert wanted not in under_way, "one subject is one request"
            under_way.append(wanted)
        assert len(under_way) <= 2
        assert len(known) <= 4
        assert 0 <= known.known_bytes <= 10_000
    for wanted in under_way:
        settle(wanted, "answer", 3)
    now_s += 20
    while (wanted := known.next(now_s)) is not None:
        settle(wanted, "answer", 3)
    assert known.trouble == ""
    assert len(told) == asked
