"""Who needs more of a maximum rate gets what others do not need, and nobody starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.balancer.workload.shares import Use, floor_of, share_out

RATES = st.sampled_from([0.0, 1.0, 3.0, 50.0, 1_000.0, 100_000.0])
USES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(Use, st.floats(0.0, 1.0), st.one_of(st.none(), st.floats(0.0, 1.0))),
    min_size=1,
)


@given(RATES, USES)
def test_the_sum_is_one_at_most_and_nobody_is_below_the_floor(
    rate: float, owners: dict[str, Use]
) -> None:
    shares = share_out(rate, owners)
    assert list(shares) == list(owners)
    assert sum(shares.values()) <= 1 + 1e-9
    floor = floor_of(rate, len(owners))
    assert min(shares.values()) >= floor - 2e-6
    assert max(shares.values()) <= 1


@given(RATES, USES)
def test_a_busy_owner_never_gets_less_than_an_even_part_or_what_it_had(
    rate: float, owners: dict[str, Use]
) -> None:
    if sum(use.share for use in owners.values()) > 1:
        # After more than all was given away, everybody may have to give.
        return
    shares = share_out(rate, owners)
    for name, use in owners.items():
        if use.is_busy:
            assert shares[name] >= min(use.share, 1 / len(owners)) - 2e-6


def test_of_two_busy_owners_the_one_with_little_takes_nothing_that_is_the_others_due() -> None:
    shares = share_out(50, {"a": Use(0.02, 1.0), "b": Use(0.49, 1.0), "c": Use(0.49)})
    assert shares["c"] == 0.49
    assert shares["b"] >= 1 / 3 - 2e-6
    assert shares["a"] == pytest.approx(1 - 0.49 - 1 / 3, abs=1e-5)


@given(RATES, USES)
def test_sharing_again_with_the_same_needs_changes_nothing(
    rate: float, owners: dict[str, Use]
) -> None:
    """What an owner would use stays the same, so a smaller share is used to a greater part."""
    for _ in range(6):
        shares = share_out(rate, owners)
        owners = {
            name: Use(
                shares[name],
                None
                if use.used is None
                else min(1.0, use.used * use.share / max(shares[name], 1e-9)),
            )
            for name, use in owners.items()
        }
    assert share_out(rate, owners) == {name: use.share for name, use in owners.items()}


def test_a_busy_owner_gets_what_an_idle_one_does_not_need() -> None:
    shares = share_out(1_000, {"a": Use(0.5, 1.0), "b": Use(0.5, 0.1)})
    assert shares["b"] == pytest.approx(0.0575)
    assert shares["a"] == pytest.approx(0.9425)


def test_two_that_are_busy_share_evenly_what_the_third_leaves() -> None:
    shares = share_out(1_000, {"a": Use(0.6, 1.0), "b": Use(0.2, 1.0), "c": Use(0.2, 0.0)})
    assert shares == pytest.approx({"a": 0.49, "b": 0.49, "c": 0.02})


def test_while_nobody_is_busy_nothing_changes() -> None:
    assert share_out(1_000, {"a": Use(0.7, 0.5), "b": Use(0.1, 0.89)}) == {"a": 0.7, "b": 0.1}


def test_a_gain_of_less_than_a_tenth_is_not_worth_a_change() -> None:
    assert share_out(1_000, {"a": Use(0.5, 1.0), "b": Use(0.5, 0.84)}) == {"a": 0.5, "b": 0.5}


def test_an_owner_of_a_slow_subscription_has_one_message_a_second_or_an_even_part() -> None:
    assert share_out(4, {"a": Use(0.5, 1.0), "b": Use(0.5, 0.0)})["b"] == pytest.approx(0.25)
    assert share_out(1, {"a": Use(0.5, 1.0), "b": Use(0.5, 0.0)}) == {"a": 0.5, "b": 0.5}


def test_changing_needs_are_followed_within_a_few_rounds() -> None:
    needs = {"a": 0.7, "b": 0.2}
    shares = {"a": 0.5, "b": 0.5}
    for change in (needs, {"a": 0.2, "b": 0.75}, {"a": 0.5, "b": 0.45}, {"a": 0.9, "b": 0.9}):
        for _ in range(4):
            uses = {
                name: Use(shares[name], min(1.0, change[name] / shares[name])) for name in shares
            }
            shares = share_out(1_000, uses)
        served = {name: min(change[name], shares[name]) for name in shares}
        assert sum(served.values()) >= min(1.0, sum(change.values())) - 0.07
