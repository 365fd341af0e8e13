"""The restart decision as properties: intensity, bounds of the back-off, reset, kinds."""

import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.actors.restart import (
    INFRASTRUCTURE,
    TENANT,
    RestartHistory,
    RestartKind,
    RestartPolicy,
)

gaps = st.lists(st.floats(0, 200, allow_nan=False), min_size=1, max_size=60)
policies = st.builds(
    RestartPolicy,
    restarts_max=st.one_of(st.none(), st.integers(0, 6)),
    period_s=st.floats(1, 120),
    backoff_first_s=st.floats(0.01, 1),
    backoff_max_s=st.floats(1, 300),
)


@given(policy=policies, gaps=gaps, seed=st.integers())
def test_a_delay_is_never_outside_the_bounds_of_the_policy(
    policy: RestartPolicy, gaps: list[float], seed: int
) -> None:
    history, rng, now_s = RestartHistory(policy), random.Random(seed), 0.0
    for gap in gaps:
        now_s += gap
        delay_s = history.next_delay_s(now_s, failed=True, rng=rng)
        if delay_s is None:
            break
        assert policy.backoff_first_s / 2 <= delay_s <= policy.backoff_max_s


@given(policy=policies, gaps=gaps)
def test_it_gives_up_exactly_when_more_restarts_fall_into_one_period(
    policy: RestartPolicy, gaps: list[float]
) -> None:
    history, now_s = RestartHistory(policy), 0.0
    failures: list[float] = []
    for gap in gaps:
        now_s += gap
        failures.append(now_s)
        delay_s = history.next_delay_s(now_s, failed=True, rng=random.Random(1))
        recent = [at for at in failures if at > now_s - policy.period_s]
        too_many = policy.restarts_max is not None and len(recent) > policy.restarts_max
        assert (delay_s is None) == too_many
        assert history.gave_up == too_many
        if too_many:
            break


@given(seed=st.integers(), count=st.integers(1, 40))
def test_without_jitter_the_ceiling_doubles_up_to_the_maximum(seed: int, count: int) -> None:
    policy = RestartPolicy(restarts_max=None, backoff_first_s=0.1, backoff_max_s=30)
    history, rng = RestartHistory(policy), random.Random(seed)
    for number in range(count):
        delay_s = history.next_delay_s(float(number), failed=True, rng=rng)
        ceiling_s = min(30, 0.1 * 2**number)
        assert delay_s is not None
        assert ceiling_s / 2 <= delay_s <= ceiling_s


def test_actors_that_failed_together_do_not_come_back_together() -> None:
    rng = random.Random(7)
    delays = {RestartHistory(TENANT).next_delay_s(0, failed=True, rng=rng) for _ in range(100)}
    assert len(delays) == 100


def test_a_long_good_life_resets_the_back_off() -> None:
    policy = RestartPolicy(restarts_max=None, period_s=60, backoff_first_s=1, backoff_max_s=100)
    history, rng = RestartHistory(policy), random.Random(1)
    for number in range(10):
        history.next_delay_s(float(number), failed=True, rng=rng)
    still_long = history.next_delay_s(9 + 200.0, failed=True, rng=rng)
    short_again = history.next_delay_s(9 + 200.0 + 200.1, failed=True, rng=rng)
    assert still_long is not None
    assert still_long >= 50
    assert short_again is not None
    assert short_again <= 1


@given(gaps=gaps)
def test_a_tenant_never_gives_up(gaps: list[float]) -> None:
    history, now_s = RestartHistory(TENANT), 0.0
    for gap in gaps * 5:
        now_s += gap / 100
        delay_s = history.next_delay_s(now_s, failed=True, rng=random.Random(1))
        assert delay_s is not None
        assert delay_s <= 300
    assert not history.gave_up


def test_infrastructure_gives_up_after_five_restarts_in_a_minute() -> None:
    history = RestartHistory(INFRASTRUCTURE)
    delays = [history.next_delay_s(float(n), failed=True, rng=random.Random(n)) for n in range(6)]
    assert [delay is None for delay in delays] == [False] * 5 + [True]


def test_a_normal_end_restarts_a_permanent_child_only() -> None:
    rng = random.Random(1)
    restarted = {
        kind: RestartHistory(RestartPolicy(kind=kind)).next_delay_s(0, failed=False, rng=rng)
        is not None
        for kind in RestartKind
    }
    assert restarted == {
        RestartKind.PERMANENT: True,
        RestartKind.TRANSIENT: False,
        RestartKind.TEMPORARY: False,
    }


def test_a_temporary_child_is_not_restarted_and_that_is_no_giving_up() -> None:
    history = RestartHistory(RestartPolicy(kind=RestartKind.TEMPORARY))
    assert history.next_delay_s(0, failed=True, rng=random.Random(1)) is None
    assert not history.gave_up
