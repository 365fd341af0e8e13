"""What a round of answers comes to, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.rates.cause import EVIDENCE_AGE_S, ROUND_S, Finding, Round

NEVER_S = float("-inf")


def a_round(failures, successes, *, at_s=0.0, pressed=0):
    it = Round(0.0)
    for n in range(failures):
        it.on_failure(at_s, NEVER_S, is_pressed=n < pressed)
    for _ in range(successes):
        it.on_success(at_s)
    return it


def find(it, now_s, success_s=NEVER_S, *, is_full=False, is_open=False):
    return it.find(now_s, success_s, is_full=is_full, is_open=is_open)


def test_enough_outcomes_tell_a_share_after_half_a_second():
    it = a_round(3, 17, pressed=2)
    assert find(it, 0.49) is Finding.NONE
    assert find(it, ROUND_S) is Finding.SHARE
    it.sent = 40
    assert it.tally(0.5) == (3, 20, 80.0, 34.0, 2)
    assert it.tally(0.5).share == 0.15


def test_few_outcomes_of_which_some_fail_are_gathered_for_two_seconds_and_lower_nothing():
    it = a_round(3, 10)
    assert find(it, 1.99) is Finding.NONE
    assert find(it, 2.0) is Finding.FEW


def test_few_outcomes_without_a_failure_are_calm():
    assert find(a_round(0, 1), 0.49) is Finding.NONE
    assert find(a_round(0, 1), ROUND_S) is Finding.CALM


def test_after_a_cut_a_round_begins_with_the_first_answer():
    it = a_round(3, 17)
    it.begin_with_an_answer(1.0)
    it.sent = 40
    it.on_success(2.0)
    assert find(it, 2.49) is Finding.NONE
    assert find(it, 2.5) is Finding.CALM
    # What was sent while nothing could have come back is not measured by what came.
    assert it.tally(2.5) == (0, 1, 0.0, 2.0, 0)


def test_outcomes_that_came_slowly_are_few():
    assert find(a_round(12, 13), 2.5) is Finding.SHARE
    assert find(a_round(12, 13), 2.6) is Finding.FEW


def test_at_full_rate_what_mostly_fails_is_gathered_for_a_minute():
    it = a_round(5, 1)
    assert find(it, 59.9, is_full=True) is Finding.NONE
    assert find(it, 59.9) is Finding.FEW
    assert find(it, EVIDENCE_AGE_S, is_full=True) is Finding.FEW


def test_what_is_a_minute_old_is_forgotten():
    it = a_round(9, 0)
    it.on_failure(EVIDENCE_AGE_S, NEVER_S, is_pressed=False)
    assert it.failures == 1
    assert it.age_s(EVIDENCE_AGE_S) == ROUND_S


@given(failures=st.integers(0, 40), successes=st.integers(0, 40), age_s=st.floats(0, 70))
def test_only_what_has_failures_lowers_a_rate(failures, successes, age_s):
    found = find(a_round(failures, successes), age_s)
    if found in (Finding.OUTAGE, Finding.OVERLOAD, Finding.FEW):
        assert failures > 0
    if found in (Finding.OVERLOAD, Finding.SHARE, Finding.CALM, Finding.FEW):
        assert age_s >= ROUND_S
    if found is Finding.CALM:
        assert failures == 0 or failures / (failures + successes) <= 0.01


@pytest.mark.parametrize(("is_open", "failures"), [(False, 10), (True, 30)])
def test_a_row_of_failures_is_an_outage_once_nothing_was_taken_for_half_a_second(is_open, failures):
    assert find(a_round(failures - 1, 0), 0.1, is_open=is_open) is Finding.NONE
    it = a_round(failures, 0)
    assert find(it, 0.1, is_open=is_open) is Finding.OUTAGE
    # So many come back in one instant from an endpoint that has just taken something, too.
    assert find(it, 0.1, 0.0, is_open=is_open) is Finding.NONE
    assert find(it, ROUND_S, 0.1, is_open=is_open) is Finding.NONE
    assert find(it, 0.6, 0.1, is_open=is_open) is Finding.OUTAGE


def test_a_row_of_failures_goes_on_in_the_next_round_and_ends_with_a_success():
    it = a_round(9, 0)
    it.begin(2.0)
    it.on_failure(3.0, NEVER_S, is_pressed=False)
    assert find(it, 3.0) is Finding.OUTAGE
    it.on_success(3.5)
    assert find(it, 4.1, 3.5) is Finding.FEW
    # A success of which it was not told ends it too: at full rate nobody counts them.
    it = a_round(9, 0)
    it.begin(2.0)
    it.on_failure(3.0, 1.0, is_pressed=False)
    assert find(it, 4.0, 1.0) is Finding.FEW


@pytest.mark.parametrize(("is_open", "surplus"), [(False, 10), (True, 30)])
def test_when_most_fails_over_a_whole_round_but_not_all_it_is_too_much(is_open, surplus):
    it = a_round(40 + surplus, 40)
    assert find(it, 0.49, 0.4, is_open=is_open) is Finding.NONE
    assert find(it, ROUND_S, 0.4, is_open=is_open) is Finding.OVERLOAD
    assert find(a_round(39 + surplus, 40), ROUND_S, is_open=is_open) is Finding.SHARE
