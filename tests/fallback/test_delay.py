"""The hedge delay follows the log's speed, between its floor and its cap."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.delay import AdaptiveDelay

CAP_S, FLOOR_S = 0.250, 0.020
LATENCIES_S = st.floats(0.0, 20.0)


def make(mode: str = "adaptive", quantile: float = 0.99):
    config = FallbackConfig(
        hedge_mode=mode,
        speculative_send_delay_ms=250,
        hedge_floor_delay_ms=20,
        hedge_quantile_percent=round(quantile * 100),
    )
    return AdaptiveDelay(config)


@given(st.lists(st.tuples(LATENCIES_S, st.integers(1, 1_000), st.floats(0, 5)), max_size=60))
def test_the_delay_lies_between_floor_and_cap_whatever_was_observed(observed) -> None:
    delay, now_s = make(), 0.0
    for latency_s, count, pause_s in observed:
        now_s += pause_s
        delay.observe(latency_s, count, now_s)
        assert FLOOR_S <= delay.delay_s(now_s) <= CAP_S


@given(
    st.lists(
        st.tuples(st.floats(FLOOR_S, CAP_S / 1.2), st.integers(1, 100)), min_size=10, max_size=80
    ),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_the_delay_is_the_quantile_by_messages_at_most_a_tenth_too_high(observed, quantile) -> None:
    delay = make(quantile=quantile)
    messages = []
    for latency_s, count in observed:
        delay.observe(latency_s, count, 1.0)
        messages += [latency_s] * count
    if len(messages) < 100:
        assert delay.delay_s(1.0) == CAP_S
        return
    exact_s = sorted(messages)[math.ceil(quantile * len(messages)) - 1]
    assert exact_s * 0.999 <= delay.delay_s(1.0) <= exact_s * 1.1001


def test_the_delay_is_the_cap_until_enough_is_known() -> None:
    delay = make()
    assert delay.delay_s(0.0) == CAP_S
    delay.observe(0.030, 99, 0.0)
    assert delay.delay_s(0.1) == CAP_S
    for _ in range(9):
        delay.observe(0.030, 1, 0.1)
    assert 0.030 <= delay.delay_s(0.2) <= 0.034


def test_what_is_older_than_half_a_minute_is_forgotten() -> None:
    delay = make()
    for _ in range(20):
        delay.observe(0.200, 100, 1.0)
    for step in range(20):
        delay.observe(0.025, 10, 35.0 + step / 10)
    assert delay.delay_s(37.0) < 0.028
    assert delay.delay_s(100.0) == CAP_S


def test_a_fixed_delay_learns_nothing_and_off_waits_for_ever() -> None:
    fixed, off = make("fixed"), make("off")
    for _ in range(20):
        fixed.observe(0.040, 10, 1.0)
        off.observe(0.040, 10, 1.0)
    assert fixed.delay_s(1.0) == CAP_S
    assert off.delay_s(1.0) == math.inf
