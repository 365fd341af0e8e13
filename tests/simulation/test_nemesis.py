"""The plan of faults is drawn before the run, from the seed alone."""

import random

import pytest

from hermes_chaos.sim.faults.strikes import Fault, Strike, draw_plan
from tests.seeds import seeds


def plan_of(seed: int, strikes: int = 200) -> list[Strike]:
    rng = random.Random(seed)
    return draw_plan(rng, strikes=strikes, lasts_max_s=3.0, begin_s=5.0, end_s=9.0)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_plan_keeps_to_its_time_and_its_order(seed: int) -> None:
    plan = plan_of(seed)
    assert len(plan) == 200
    assert [strike.at_s for strike in plan] == sorted(strike.at_s for strike in plan)
    assert all(5.0 <= strike.at_s <= 9.0 for strike in plan)
    longest_s = dict.fromkeys(Fault, 6.0) | {Fault.SUBSCRIBER_DEAD: 12.0}
    assert all(0.0 <= strike.lasts_s <= longest_s[strike.fault] for strike in plan)
    assert all(0.0 <= number < 1.0 for strike in plan for number in (strike.where, strike.how))


def test_a_seed_has_one_plan() -> None:
    assert plan_of(1) == plan_of(1)
    assert plan_of(1) != plan_of(2)


def test_a_plan_has_only_the_faults_that_are_asked_for() -> None:
    faults = frozenset((Fault.DC_LOST, Fault.SKEW))
    plan = draw_plan(
        random.Random(1), strikes=50, lasts_max_s=3.0, begin_s=5.0, end_s=9.0, faults=faults
    )
    assert {strike.fault for strike in plan} == faults


def test_every_kind_of_fault_is_drawn() -> None:
    assert {strike.fault for strike in plan_of(1, 2_000)} == set(Fault)
