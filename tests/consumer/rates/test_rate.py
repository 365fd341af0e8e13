import bisect

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.rates.limit import RateLimit


@given(
    rate=st.integers(1, 2_000),
    gaps_s=st.lists(st.floats(0, 0.5), min_size=1, max_size=60),
    greed=st.floats(0.1, 1.0),
)
def test_no_second_holds_more_than_the_rate(rate, gaps_s, greed):
    limit, now_s, times_s = RateLimit(rate), 1_000.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        count = min(limit.available(now_s), max(1, int(limit.available(now_s) * greed)))
        limit.take(now_s, count)
        times_s += [now_s] * count
    for at, start_s in enumerate(times_s):
        # Half-open windows, less what rounding of a float near 1,000 may move.
        assert bisect.bisect_left(times_s, start_s + 1 - 1e-6) - at <= rate


@given(rate=st.integers(1, 5_000))
def test_who_always_takes_what_there_is_gets_at_least_ninety_seven_percent(rate):
    limit, now_s, taken = RateLimit(rate), 0.0, 0
    while now_s < 10:
        count = limit.available(now_s)
        limit.take(now_s, count)
        taken += count
        wait_s = limit.wait_s(now_s)
        assert wait_s > 0
        now_s += wait_s
    assert taken >= 0.97 * rate * 10 - 1


@given(rate=st.integers(1, 5_000), now_s=st.floats(0, 1e7))
def test_after_the_wait_there_is_something_to_take(rate, now_s):
    limit = RateLimit(rate)
    limit.take(now_s, limit.available(now_s))
    for _ in range(20):
        wait_s = limit.wait_s(now_s)
        if wait_s == 0:
            break
        now_s += wait_s
    assert limit.available(now_s) >= 1


def test_a_new_limit_holds_from_now_on():
    limit = RateLimit(1_000)
    limit.take(0, limit.available(0))
    limit.change(1)
    assert limit.available(0.5) <= 1
    limit.take(0.5, limit.available(0.5))
    assert limit.available(1.4) == 0


@given(rate=st.integers(1, 2_000), begin_s=st.floats(0, 0.9))
def test_a_limit_that_begins_anew_keeps_the_second_that_another_life_began(rate, begin_s):
    times_s = []
    first, second = RateLimit(rate), RateLimit(rate)
    second.drain(begin_s)
    for limit, now_s, end_s in ((first, 0.0, begin_s), (second, begin_s, 3.0)):
        while now_s < end_s:
            count = limit.available(now_s)
            limit.take(now_s, count)
            times_s += [now_s] * count
            now_s += max(limit.wait_s(now_s), 1e-4)
    for at, start_s in enumerate(times_s):
        assert bisect.bisect_left(times_s, start_s + 1 - 1e-6) - at <= rate
