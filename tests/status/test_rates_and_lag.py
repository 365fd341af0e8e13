import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.status.lag import INTERVAL_S, UNKNOWN, VALID_S, Ends, Reached
from hermes_actors.status.rates import WINDOW_S, Rates


def test_the_first_look_gives_no_rate_and_the_second_the_true_one():
    rates = Rates()
    assert rates.update("a", (100, 5), 0.0) == [0, 0]
    assert rates.update("a", (120, 5), 2.0) == [10_000, 0]
    assert rates.total == 10_000


def test_counters_that_are_known_to_have_been_zero_have_a_rate_at_the_first_look():
    rates = Rates()
    assert rates.update("a", (20, 0), 4.0, zero_s=2.0) == [10_000, 0]
    assert rates.total == 10_000


def test_a_rate_that_stops_falls_to_nothing():
    rates = Rates()
    rates.update("a", (0,), 0.0)
    rates.update("a", (1_000,), 1.0)
    assert rates.update("a", (1_000,), 1.0 + WINDOW_S) == [
        pytest.approx(1_000_000 / 2.718, abs=500)
    ]
    assert rates.update("a", (1_000,), 1_000.0) == [0]
    assert rates.total == 0


def test_a_counter_that_started_again_is_no_negative_rate():
    rates = Rates()
    rates.update("a", (1_000,), 0.0)
    assert rates.update("a", (3,), 1.0) == [0]
    assert rates.update("a", (13,), 2.0)[0] > 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.floats(0.1, 5)), max_size=40),
    st.sets(st.sampled_from("abc")),
)
def test_the_total_is_the_sum_and_rates_stay_within_what_happened(steps, kept):
    rates, counts, latest, now_s = Rates(), dict.fromkeys("abc", 0), {}, 0.0
    highest = 0.0
    seen_s = {}
    for key, grown, elapsed_s in steps:
        now_s += elapsed_s
        counts[key] += grown
        if key in seen_s:
            highest = max(highest, grown / (now_s - seen_s[key]))
        seen_s[key] = now_s
        latest[key] = rates.update(key, (counts[key],), now_s)[0]
        assert 0 <= latest[key] <= 1_000 * highest + 1
        assert rates.total == pytest.approx(sum(latest.values()), abs=len(latest))
    rates.keep_only(kept)
    left = [rate for key, rate in latest.items() if key in kept]
    assert rates.total == pytest.approx(sum(left), abs=len(latest))


def test_the_lag_is_what_lies_above_the_positions():
    ends = Ends()
    ends.follow(["t"])
    ends.note("t", {0: 10, 1: 5}, 0.0)
    assert ends.lag(Reached("t", {0: 7, 1: 5}), 1.0) == 3
    # A position may be newer than the end that was asked for.
    assert ends.lag(Reached("t", {0: 7, 1: 9}), 1.0) == 3


def test_the_lag_is_unknown_without_an_end_without_positions_and_with_an_old_end():
    ends = Ends()
    ends.follow(["t"])
    assert ends.lag(Reached("t", {0: 1}), 0.0) == UNKNOWN
    ends.note("t", {0: 10}, 0.0)
    assert ends.lag(Reached("t", {}), 0.0) == UNKNOWN
    assert ends.lag(Reached("t", {0: 1, 9: 0}), 0.0) == UNKNOWN
    assert ends.lag(Reached("t", {0: 1}), VALID_S + 1) == UNKNOWN
    ends.follow([])
    assert ends.lag(Reached("t", {0: 1}), 0.0) == UNKNOWN


def test_topics_are_asked_for_in_turn_new_ones_first():
    ends = Ends()
    ends.follow(["a", "b"])
    assert [ends.due(0.0), ends.due(0.2), ends.due(0.4)] == ["a", "b", None]
    ends.follow(["a", "b", "c"])
    assert [ends.due(0.6), ends.due(0.8)] == ["c", None]
    assert ends.due(INTERVAL_S) == "a"
    ends.follow(["c"])
    assert ends.due(INTERVAL_S + 0.4) is None
    assert ends.due(INTERVAL_S + 0.6) == "c"
