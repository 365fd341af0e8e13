"""Chaos experiments strike as often, as long and where their policies say."""

import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.fallback.chaos import Strike, roll
from hermes_actors.model.topic import Chaos, ChaosMode, ChaosPolicy

DCS = ["dc1", "dc2", "dc3"]
POLICIES = st.builds(
    ChaosPolicy,
    probability=st.integers(0, 100),
    delay_from=st.integers(0, 1_000),
    delay_to=st.integers(0, 1_000),
    complete_with_error=st.booleans(),
)


@given(POLICIES, st.dictionaries(st.sampled_from([*DCS, "dc9"]), POLICIES), st.integers(0, 999))
def test_global_strikes_all_or_none_and_each_delay_lies_within_the_bounds(
    policy, policies, seed
) -> None:
    for mode in ChaosMode:
        strikes = roll(Chaos(mode, policy, policies), DCS, random.Random(seed))
        if mode is ChaosMode.DISABLED:
            assert strikes == {}
        if mode is ChaosMode.GLOBAL:
            assert list(strikes) in ([], DCS)
        assert set(strikes) <= set(DCS)
        for dc, strike in strikes.items():
            applied = policy if mode is ChaosMode.GLOBAL else policies[dc]
            low, high = sorted((applied.delay_from, applied.delay_to))
            assert low <= strike.delay_s * 1_000 + 1e-6
            assert strike.delay_s * 1_000 <= high + 1e-6
            assert strike.fails == applied.complete_with_error
            assert applied.probability > 0


def test_bounds_that_are_equal_are_a_fixed_delay() -> None:
    chaos = Chaos(ChaosMode.GLOBAL, ChaosPolicy(100, 50, 50, True))
    assert roll(chaos, ["dc1"], random.Random(0)) == {"dc1": Strike(0.05, True)}


def test_datacentres_roll_for_themselves_with_their_own_probability() -> None:
    chaos = Chaos(
        ChaosMode.DATACENTER,
        None,
        {"dc1": ChaosPolicy(30), "dc2": ChaosPolicy(30), "dc3": ChaosPolicy(100)},
    )
    rng = random.Random(5)
    rolls = [roll(chaos, DCS, rng) for _ in range(2_000)]
    assert 500 < sum("dc1" in each for each in rolls) < 700
    assert 130 < sum("dc1" in each and "dc2" in each for each in rolls) < 230
    assert all("dc3" in each for each in rolls)


def test_global_without_a_policy_strikes_nothing() -> None:
    assert roll(Chaos(ChaosMode.GLOBAL), DCS, random.Random(0)) == {}
