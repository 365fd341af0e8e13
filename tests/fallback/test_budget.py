"""Hedging never adds more than its share."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.fallback.budget import HedgeBudget


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.lists(st.tuples(st.booleans(), st.integers(1, 500)), max_size=100),
)
def test_no_more_is_granted_than_the_burst_and_the_share_of_what_was_sent(
    percent, burst, steps
) -> None:
    budget = HedgeBudget(percent, burst)
    sent = granted = 0
    for is_sent, count in steps:
        if is_sent:
            budget.earn(count)
            sent += count
        else:
            given_now = budget.take(count)
            assert 0 <= given_now <= count
            granted += given_now
        assert granted * 100 <= burst * 100 + sent * percent


@given(st.integers(1, 100), st.integers(1, 50), st.integers(1, 10_000))
def test_what_is_earned_is_granted_up_to_the_burst(percent, burst, sent) -> None:
    budget = HedgeBudget(percent, burst)
    assert budget.take(10**6) == burst
    assert budget.take(1) == 0
    budget.earn(sent)
    assert budget.take(10**6) == min(sent * percent // 100, burst)


def test_a_hundredth_is_not_lost_however_small_the_steps() -> None:
    budget = HedgeBudget(7, 1_000)
    budget.take(1_000)
    for _ in range(1_000):
        budget.earn(1)
    assert budget.take(1_000) == 70
