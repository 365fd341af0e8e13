"""Quotas hold, rise again, and say when to come back."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_actors.config import ThroughputConfig
from hermes_actors.errors import ErrorCode
from hermes_actors.publisher.quota import (
    TIME_CONSTANT_S,
    Average,
    Quotas,
    next_limits,
)

TOPICS = ("shop.a", "shop.b", "shop.c", "shop.d")
RULE = ThroughputConfig(
    dynamic_max_bytes_per_s=1_000,
    dynamic_threshold_bytes_per_s=500,
    dynamic_desired_bytes_per_s=400,
    dynamic_idle_bytes_per_s=0.5,
)
rates = st.dictionaries(st.sampled_from(TOPICS), st.floats(0, 2_000))
limits = st.dictionaries(st.sampled_from(TOPICS), st.floats(1, 999))


def dynamic(**changed: int) -> Quotas:
    settings = {
        "dynamic_max_bytes_per_s": 1_000,
        "dynamic_threshold_bytes_per_s": 500,
        "dynamic_desired_bytes_per_s": 400,
        **changed,
    }
    return Quotas(ThroughputConfig(type="dynamic", **settings), 0.0)  # type: ignore[arg-type]


def fixed(limit: int) -> Quotas:
    return Quotas(ThroughputConfig(type="fixed", fixed_max_bytes_per_s=limit), 0.0)


@given(st.integers(1, 10_000), st.floats(0.5, 20))
def test_the_average_of_a_steady_stream_comes_to_its_rate(size: int, every_s: float) -> None:
    average = Average()
    steps = int(600 / every_s)
    for number in range(steps):
        average.add(size, number * every_s)
    middle_s = (steps - 0.5) * every_s
    assert average.per_s(middle_s) == pytest.approx(size / every_s, rel=0.02)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), max_size=20))
def test_the_average_never_counts_more_than_what_came(steps: list[tuple[float, int]]) -> None:
    average, now_s, total = Average(), 0.0, 0
    for pause_s, size in steps:
        now_s += pause_s
        total += size
        assert average.add(size, now_s) <= total / TIME_CONSTANT_S + 1e-6
        assert average.per_s(now_s + 60) < average.per_s(now_s) or total == 0


def test_a_message_far_over_the_limit_is_refused_after_its_body_and_so_is_the_next_before_it() -> (
    None
):
    quotas = fixed(10)
    assert quotas.refusal("shop.a", 1.0) is None
    refused = quotas.count("shop.a", 6_000, 1.0)
    assert refused is not None
    assert (refused.status, refused.code) == (429, ErrorCode.THROUGHPUT_QUOTA_VIOLATION)
    assert "100 bytes/s" in refused.message
    assert "limit of 10 bytes/s" in refused.message
    assert quotas.refusal("shop.a", 1.0) is not None
    assert quotas.refusal("shop.b", 1.0) is None


@given(st.integers(1, 10**6), st.integers(1, 10**9))
@example(1, 120)
@example(10, 11 * 60)
def test_who_waits_as_long_as_told_is_taken(limit: int, size: int) -> None:
    quotas = fixed(limit)
    refused = quotas.count("shop.a", size, 1.0)
    assert (refused is not None) == (math.floor(size / 60) > limit)
    if refused is not None:
        wait_s = int(dict(refused.headers)["retry-after"])
        assert quotas.refusal("shop.a", 1.0 + wait_s) is None
        assert quotas.refusal("shop.a", 1.0 + wait_s / 4) is not None or wait_s < 5


@given(rates, limits)
def test_limits_fall_only_above_the_threshold_and_stay_in_their_bounds(
    now: dict[str, float], before: dict[str, float]
) -> None:
    after = next_limits(now, before, RULE)
    total = sum(now.values())
    for topic in TOPICS:
        old, new = (
            before.get(topic, RULE.dynamic_max_bytes_per_s),
            after.get(topic, RULE.dynamic_max_bytes_per_s),
        )
        assert 1 <= new <= RULE.dynamic_max_bytes_per_s
        if total <= RULE.dynamic_threshold_bytes_per_s:
            assert new >= old
        elif new != old:
            busy = [rate for rate in now.values() if rate > RULE.dynamic_idle_bytes_per_s]
            assert new == RULE.dynamic_desired_bytes_per_s / len(busy)
            assert now[topic] >= sum(busy) / len(busy) * (1 - 1e-6)


@given(rates)
@example(dict.fromkeys(TOPICS[:3], 342.2404154932543))
def test_above_the_threshold_somebody_is_always_lowered(now: dict[str, float]) -> None:
    if sum(now.values()) > RULE.dynamic_threshold_bytes_per_s:
        after = next_limits(now, {}, RULE)
        assert after
        # Those that were lowered, at their new limits, share no more than what is desired.
        assert sum(after.values()) <= RULE.dynamic_desired_bytes_per_s + 1e-9


@given(limits, st.data())
def test_raising_alone_never_brings_the_total_above_the_threshold(
    before: dict[str, float], data: st.DataObject
) -> None:
    # All topics send as much as they may.
    now = {t: data.draw(st.floats(0, limit)) for t, limit in before.items()}
    if sum(now.values()) > RULE.dynamic_threshold_bytes_per_s:
        return
    pressed = [topic for topic, limit in before.items() if now[topic] > limit / 2]
    after = next_limits(now, before, RULE)
    raised = sum(after.get(t, RULE.dynamic_max_bytes_per_s) - before[t] for t in pressed)
    assert sum(now.values()) + raised <= RULE.dynamic_threshold_bytes_per_s + 1e-6


@given(limits)
def test_while_nothing_is_published_every_limit_comes_back(before: dict[str, float]) -> None:
    lowered = before
    for _ in range(10):  # 2**10 is more than the maximum above the least limit.
        lowered = next_limits({}, lowered, RULE)
    assert lowered == {}


@given(st.lists(st.tuples(st.floats(0, 90), st.sampled_from(TOPICS), st.integers(0, 200_000))))
def test_checks_that_were_late_come_to_the_same_as_checks_in_time(
    steps: list[tuple[float, str, int]],
) -> None:
    lazy, timely = dynamic(), dynamic()
    now_s = 0.0
    next_s = 30.0
    for pause_s, topic, size in steps:
        now_s += pause_s
        while next_s <= now_s:
            timely.refusal("shop.timer", next_s)
            next_s += 30.0
        one, other = lazy.count(topic, size, now_s), timely.count(topic, size, now_s)
        assert (one is None) == (other is None)
        for each in TOPICS:
            assert lazy.limit_of(each) == pytest.approx(timely.limit_of(each))


def test_a_loud_topic_is_lowered_leaves_the_quiet_one_alone_and_is_raised_again() -> None:
    quotas = dynamic()
    now_s = 0.0
    while now_s < 600:
        quotas.count("shop.loud", 800, now_s)
        quotas.count("shop.quiet", 10, now_s)
        now_s += 1
    assert quotas.limit_of("shop.loud") <= 500
    assert quotas.limit_of("shop.quiet") == 1_000
    assert quotas.refusal("shop.loud", now_s) is not None
    assert quotas.refusal("shop.quiet", now_s) is None
    quotas.refusal("shop.quiet", now_s + 3_600)
    assert quotas.limit_of("shop.loud") == 1_000


def test_all_topics_together_have_a_limit_too() -> None:
    quotas = dynamic()
    for topic in TOPICS:
        quotas.count(topic, 18_000, 0.0)
    refused = quotas.refusal("shop.new", 0.0)
    assert refused is not None
    assert "of all topics" in refused.message
    assert "limit of 1000 bytes/s" in refused.message


def test_a_topic_at_rest_is_forgotten() -> None:
    quotas = fixed(10)
    for number in range(100):
        quotas.count(f"shop.t{number}", 10, 0.0)
    quotas.refusal("shop.t0", 3_000.0)
    assert quotas._rates == {}
