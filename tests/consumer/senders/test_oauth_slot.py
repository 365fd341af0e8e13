"""Tokens over time: never one that has run out, never two requests at once, delays that grow."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.consumer.senders.oauth.tokens import BETWEEN_S_MIN, TokenSlot


def slot(initial_s=1.0, most_s=8.0):
    return TokenSlot(initial_s, most_s)


def give(made, now_s, number=1, lifetime_s=100.0):
    made.begin(now_s)
    made.succeed(now_s, number, b"x", lifetime_s)


def test_a_token_is_renewed_before_it_runs_out_and_used_meanwhile():
    made = slot()
    assert made.is_wanted(0.0)
    give(made, 0.0)
    assert not made.is_wanted(79.0)
    assert made.is_wanted(80.0)
    made.begin(80.0)
    assert made.token(99.0).number == 1
    made.succeed(85.0, 2, b"y", 100.0)
    assert made.token(85.0).number == 2


def test_a_long_life_is_renewed_a_minute_before_its_end_and_one_without_end_never():
    made = slot()
    give(made, 0.0, lifetime_s=86_400.0)
    assert not made.is_wanted(86_339.0)
    assert made.is_wanted(86_340.0)
    made = slot()
    give(made, 0.0, lifetime_s=None)
    assert not made.is_wanted(1e9)
    assert made.token(1e9).number == 1


def test_a_life_begins_when_the_token_was_asked_for():
    made = slot()
    made.begin(0.0)
    made.succeed(5.0, 1, b"x", 10.0)
    assert made.token(9.9) is not None
    assert made.token(10.0) is None


def test_requests_that_fail_wait_from_the_initial_delay_up_to_the_greatest():
    made, now_s, waits = slot(1.0, 4.0), 0.0, []
    for _ in range(5):
        made.begin(now_s)
        made.fail(now_s, "HTTP 500")
        waits.append(made.allowed_s - now_s)
        now_s = made.allowed_s
        assert not made.is_wanted(now_s - 0.01)
        assert made.is_wanted(now_s)
    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]
    give(made, now_s)
    assert made.problem == ""


def test_a_request_that_succeeds_ends_the_back_off_of_those_that_failed():
    made, now_s = slot(1.0, 60.0), 0.0
    for _ in range(5):
        made.begin(now_s)
        made.fail(now_s, "away")
        now_s = made.allowed_s
    # Nobody has a use for it: no endpoint accepts anything.
    give(made, now_s)
    made.begin(now_s + 90.0)
    made.fail(now_s + 90.0, "away again")
    assert made.allowed_s == now_s + 91.0


def test_a_good_token_that_is_refused_at_last_is_replaced_at_once():
    made = slot()
    give(made, 0.0)
    made.accept(1)
    made.reject(1)
    assert made.is_wanted(50.0, after=1)
    assert not made.is_wanted(50.0, after=0)


def test_a_new_token_that_is_refused_again_and_again_is_asked_for_less_and_less_often():
    made, now_s, waits = slot(1.0, 4.0), 0.0, []
    for number in range(1, 6):
        give(made, now_s, number)
        made.reject(number)
        # Of a hundred answers to pushes with one token only the first counts.
        made.reject(number)
        waits.append(made.allowed_s - now_s)
        now_s = made.allowed_s
    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]
    give(made, now_s, 6)
    made.accept(6)
    made.reject(6)
    assert made.allowed_s - now_s == 1.0


def test_who_has_not_seen_a_refusal_goes_on_with_the_token():
    made = slot()
    give(made, 0.0)
    made.reject(1)
    assert made.token(1.0) is not None
    assert made.token(1.0, after=1) is None


def test_a_delay_of_nothing_still_leaves_a_moment_between_two_requests():
    made = slot(0.0, 0.0)
    made.begin(0.0)
    made.fail(0.0, "refused")
    assert made.allowed_s == BETWEEN_S_MIN
    give(made, 1.0, lifetime_s=0.001)
    assert not made.is_wanted(1.05)


def test_a_token_hides_itself():
    made = slot()
    made.begin(0.0)
    made.succeed(0.0, 1, b"Authorization: Bearer hush\r\n", None)
    assert "hush" not in repr(made.token(0.0))


STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 30.0),
        st.sampled_from(["ask", "grant", "deny", "reject", "accept"]),
        st.sampled_from([None, 0.5, 3.0, 60.0, 1e6]),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS, st.floats(0.0, 5.0), st.floats(0.0, 20.0))
def test_no_history_brings_two_requests_at_once_or_a_token_past_its_end(steps, initial_s, most_s):
    made, now_s, number, refused = TokenSlot(initial_s, most_s), 0.0, 0, 0
    under_way, asked_s, ends_s = 0, 0.0, float("inf")
    last_end_s = float("-inf")
    for wait_s, step, lifetime_s in steps:
        now_s += wait_s
        token = made.token(now_s, refused)
        if token is not None:
            assert token.number > refused
            assert now_s < ends_s
        if step == "ask" and made.is_wanted(now_s, refused):
            assert under_way == 0
            assert now_s >= last_end_s + BETWEEN_S_MIN
            made.begin(now_s)
            under_way, asked_s = 1, now_s
        elif step == "grant" and under_way:
            number += 1
            made.succeed(now_s, number, b"x", lifetime_s)
            under_way, last_end_s = 0, now_s
            ends_s = float("inf") if lifetime_s is None else asked_s + lifetime_s
        elif step == "deny" and under_way:
            made.fail(now_s, "no")
            under_way, last_end_s = 0, now_s
        elif step == "reject":
            refused = number
            made.reject(number)
        elif step == "accept":
            made.accept(number)
        # Whatever happened, there is a time at which a token may be asked for again.
        assert made.allowed_s <= now_s + max(initial_s, most_s, BETWEEN_S_MIN)


@pytest.mark.parametrize("lifetime_s", [0.5, 1.0, 7.0, 300.0])
def test_the_margin_is_a_part_of_the_life(lifetime_s):
    made = slot()
    give(made, 0.0, lifetime_s=lifetime_s)
    assert 0 < made.token(0.0).renewed_s < lifetime_s
