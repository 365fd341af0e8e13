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
            granted += count * budget.take(count)
        assert granted * 100 <= burst * 100 + sent * percent


def take_all(budget: HedgeBudget) -> int:
    taken = 0
    while budget.take(1):
        taken += 1
    return taken


@given(st.integers(1, 100), st.integers(1, 50), st.integers(1, 10_000))
def test_what_is_earned_is_granted_up_to_the_burst(percent, burst, sent) -> None:
    budget = HedgeBudget(percent, burst)
    assert take_all(budget) == burst
    budget.earn(sent)
    assert take_all(budget) == min(sent * percent // 100, burst)


def test_what_is_too_much_at_once_costs_nothing() -> None:
    budget = HedgeBudget(5, 10)
    assert not budget.take(11)
    assert budget.take(10)


def test_a_hundredth_is_not_lost_however_small_the_steps() -> None:
    budget = HedgeBudget(7, 1_000)
    take_all(budget)
    for _ in range(1_000):
        budget.earn(1)
    assert take_all(budget) == 70
