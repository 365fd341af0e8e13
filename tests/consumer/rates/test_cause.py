"""A rate is lowered only as long as that helps: closed-loop models of endpoints with a backlog."""

import heapq
import random
from collections import deque

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hermes_actors.consumer.rates.cause import FailureCause, RoundCounts, Verdict
from hermes_actors.consumer.rates.control import Level, RateControl
from hermes_actors.consumer.rates.limit import RateLimit

TICK_S = 0.005
MAXIMUM = 10_000
OFFERED = 625
RETRY_S = 0.1


class Refusing:
    """Fails a share of what it is sent, whatever the rate; with `by_content` a message that is
    refused once is refused always.
    """

    def __init__(self, share, *, by_content=False, seed=1):
        self.rng = random.Random(seed)
        self.share, self.by_content = share, by_content
        self.refused = {}

    def takes(self, now_s, message):
        share = self.share(now_s) if callable(self.share) else self.share
        if not self.by_content:
            return self.rng.random() >= share
        return not self.refused.setdefault(message, self.rng.random() < share)


class Limited:
    """Takes up to `capacity` a second and fails what is beyond, and a share besides."""

    def __init__(self, capacity, share=0.0, *, seed=1):
        self.bucket, self.then_s = 0.0, 0.0
        self.capacity, self.others = capacity, Refusing(share, seed=seed)

    def takes(self, now_s, message):
        burst = max(1.0, self.capacity / 20)
        self.bucket = min(burst, self.bucket + (now_s - self.then_s) * self.capacity)
        self.then_s = now_s
        if self.bucket < 1.0:
            return False
        self.bucket -= 1.0
        return self.others.takes(now_s, message)


class Delivery:
    """`offered` messages a second, each tried again after `RETRY_S` until taken, or three times."""

    def __init__(
        self,
        endpoint,
        *,
        maximum=MAXIMUM,
        offered=OFFERED,
        latency_s=0.01,
        window=500,
        is_pressed=False,
    ):
        self.is_pressed = is_pressed
        self.endpoint, self.offered, self.latency_s = endpoint, offered, latency_s
        self.control, self.limit = RateControl(maximum, 0.0), RateLimit(maximum)
        self.window, self.now_s, self.arrived = window, 0.0, 0
        self.fresh, self.retries, self.flying = deque(), [], deque()
        self.latencies_s, self.sent_s, self.taken_s = [], [], []
        self.given_up = 0
        self.levels = [Level.FULL]
        self.rates = []

    def run(self, until_s):
        while self.now_s < until_s:
            self.now_s += TICK_S
            while self.arrived < self.offered * self.now_s:
                self.fresh.append((self.arrived, self.arrived / self.offered, 0, None))
                self.arrived += 1
            self._land()
            self._push()
            if self.control.level is not self.levels[-1]:
                self.levels.append(self.control.level)
            self.rates.append(self.control.rate)
        return self

    def _push(self):
        control, now_s = self.control, self.now_s
        while len(self.flying) < self.window and self.limit.available(now_s):
            is_retry = bool(self.retries) and self.retries[0][0] <= now_s
            if not (is_retry or self.fresh):
                return
            if not control.is_full:
                if not control.available(now_s):
                    return
                control.take(now_s)
            self.limit.take(now_s)
            message = heapq.heappop(self.retries)[1] if is_retry else self.fresh.popleft()
            is_taken = self.endpoint.takes(now_s, message[0])
            self.flying.append((now_s + self.latency_s, control.epoch, is_taken, message))
            self.sent_s.append(now_s)

    def _land(self):
        control, now_s = self.control, self.now_s
        while self.flying and self.flying[0][0] <= now_s:
            _, epoch, is_taken, (number, arrived_s, attempts, failed_s) = self.flying.popleft()
            if is_taken:
                self.latencies_s.append(now_s - arrived_s)
                self.taken_s.append(now_s)
                control.success_s = now_s
                if control.is_watching:
                    control.on_success(now_s, epoch)
                continue
            if control.on_failure(
                now_s,
                epoch,
                failed_before_s=failed_s,
                is_answered=True,
                is_pressed=self.is_pressed,
            ):
                failed_s = now_s
            if attempts == 2:
                self.given_up += 1
            else:
                again = (number, arrived_s, attempts + 1, failed_s)
                heapq.heappush(self.retries, (now_s + RETRY_S, again))

    @property
    def settled(self):
        return len(self.latencies_s) + self.given_up

    @property
    def backlog(self):
        return len(self.fresh)

    def p99_s(self):
        return sorted(self.latencies_s)[int(0.99 * len(self.latencies_s))]

    def taken_between(self, start_s, end_s):
        return sum(start_s <= at_s < end_s for at_s in self.taken_s)

    def sent_between(self, start_s, end_s):
        return sum(start_s <= at_s < end_s for at_s in self.sent_s)


def is_behind(run):
    return run.backlog > run.offered


@pytest.mark.parametrize("by_content", [False, True], ids=["by chance", "by content"])
@pytest.mark.parametrize("share", [0.03, 0.07, 0.1, 0.2, 0.4])
def test_a_share_that_fails_at_any_rate_makes_no_lag(share, by_content):
    """ADR 9 has the figures of this model: 10,000/s at most, 625/s offered, a minute."""
    run = Delivery(Refusing(share, by_content=by_content)).run(60)
    assert Level.SLOW not in run.levels
    # All but what is under way or waits for its next attempt.
    assert run.settled > 0.99 * run.arrived
    assert not is_behind(run)
    assert run.p99_s() < 4


@given(
    share=st.sampled_from([0.03, 0.07, 0.1, 0.2, 0.4]),
    by_content=st.booleans(),
    latency_s=st.sampled_from([0.01, 0.3]),
    seed=st.integers(0, 1_000),
)
# The same draws each time: of those with two fifths by chance a rare one stays slow, as below.
@pytest.mark.slow
@settings(deadline=None, max_examples=12, derandomize=True)
def test_a_share_that_fails_at_any_rate_lets_nothing_wait_after_half_a_minute(
    share, by_content, latency_s, seed
):
    # Below: that takes longer with one seed in five.
    assume(not (share == 0.4 and by_content))
    assert lets_nothing_wait(share, by_content, latency_s, seed)


@pytest.mark.parametrize(
    ("by_content", "seed"), [(True, 6), (False, 837)], ids=["by content", "by chance"]
)
def test_where_two_fifths_fail_it_may_take_a_minute_until_as_much_is_sent_as_comes(
    by_content, seed
):
    """At the lowest rate a few answers a second decide, and chance may have them decide late."""
    endpoint = Refusing(0.4, by_content=by_content, seed=seed)
    run = Delivery(endpoint, maximum=2_000, offered=300, latency_s=0.3).run(100)
    assert run.sent_between(60, 100) > 40 * 300


def lets_nothing_wait(share, by_content, latency_s, seed):
    endpoint = Refusing(share, by_content=by_content, seed=seed)
    run = Delivery(endpoint, maximum=2_000, offered=300, latency_s=latency_s).run(40)
    # What each message needs in attempts, and what an experiment costs, has been made up for.
    return run.backlog < 4 * 300 and run.sent_between(30, 40) > 0.9 * 10 * 300


def slowed(maximum, capacity, share, seed=0):
    """What an endpoint takes a second, as a part of what it could, and what it is sent, likewise,
    when it has been sent too much for 20 s.
    """
    run = Delivery(Limited(capacity, share, seed=seed), maximum=maximum, offered=1_000).run(40)
    taken, sent = run.taken_between(20, 40) / 20, run.sent_between(20, 40) / 20
    return taken / (capacity * (1 - share)), sent / capacity


@pytest.mark.parametrize("maximum", [1_000, 10_000])
@pytest.mark.parametrize("capacity", [250, 400, 550, 800])
@pytest.mark.parametrize("share", [0, 0.1])
def test_an_endpoint_that_is_sent_too_much_is_slowed_to_about_what_it_can_take(
    maximum, capacity, share
):
    taken, sent = slowed(maximum, capacity, share)
    assert taken > 0.75
    assert sent < 1.4


@pytest.mark.parametrize(("capacity", "seed"), [(250, 158), (400, 206), (800, 5)])
def test_chance_beside_an_overload_may_leave_it_with_a_quarter_and_never_sends_it_more(
    capacity, seed
):
    """Too little is excused, or a right excuse is lost: of 200 seeds 24 take less than three
    quarters at a capacity of 250, 4 at 400, none at 550 and 2 at 800, and the least is 0.27.
    """
    taken, sent = slowed(1_000, capacity, 0.1, seed)
    assert 0.25 < taken < 0.75
    assert sent < 1.4


@pytest.mark.parametrize("share", [0, 0.1])
@pytest.mark.parametrize("latency_s", [0.01, 0.5])
def test_an_endpoint_that_can_take_a_little_less_than_the_maximum_is_no_outage(share, latency_s):
    endpoint = Limited(900, share)
    run = Delivery(endpoint, maximum=1_000, offered=2_000, latency_s=latency_s, window=2_000)
    run.run(30)
    assert Level.SLOW not in run.levels
    assert run.taken_between(10, 30) > 0.95 * 20 * 900 * (1 - share)
    assert run.sent_between(10, 30) < 1.06 * 20 * 900


def test_an_endpoint_that_takes_a_fifth_of_what_it_is_sent_is_sent_that_and_not_one_a_second():
    run = Delivery(Limited(200), maximum=1_000, offered=1_000).run(5)
    assert Level.SLOW not in run.levels
    assert run.taken_between(1, 5) > 0.9 * 4 * 200
    assert run.sent_between(1, 5) < 1.5 * 4 * 200


def test_an_endpoint_that_can_take_less_than_the_lowest_rate_is_not_tried_over_and_over():
    run = Delivery(Limited(100)).run(60)
    assert run.taken_between(30, 60) > 0.9 * 30 * 100
    assert run.sent_between(30, 60) < 1.1 * 30 * MAXIMUM / 64


def test_who_says_that_it_is_too_much_is_sent_less_whatever_the_share():
    """429 and 503 are no matter of experiments."""
    run = Delivery(Refusing(0.2), is_pressed=True).run(20)
    assert run.control.rate == MAXIMUM / 64
    assert run.sent_between(10, 20) <= 10 * MAXIMUM / 64


def test_a_dead_endpoint_still_goes_down_the_control_at_once():
    run = Delivery(Refusing(1)).run(30)
    assert run.levels == [Level.FULL, Level.SLOW]
    assert run.sent_between(1, 30) <= 30


@pytest.mark.parametrize("share", [0, 0.03, 0.2])
def test_an_endpoint_that_comes_back_with_a_share_that_fails_gets_its_full_rate_again(share):
    run = Delivery(Refusing(lambda now_s: 1 if now_s < 15 else share)).run(45)
    assert Level.SLOW in run.levels
    assert run.levels[-1] is Level.FULL
    assert not is_behind(run)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_what_was_excused_does_not_keep_an_endpoint_that_dies_from_being_slowed(share):
    run = Delivery(Refusing(lambda now_s: share if now_s < 15 else 1)).run(30)
    assert run.levels[-1] is Level.SLOW
    assert run.sent_between(16, 30) <= 15


def test_a_share_that_changes_is_told_from_the_load_each_time():
    shares = [0.1, 0.3, 0.05, 0.2]
    run = Delivery(Refusing(lambda now_s: shares[int(now_s / 15) % 4])).run(60)
    assert Level.SLOW not in run.levels
    assert not is_behind(run)


def test_an_excuse_fades_when_less_fails():
    """An endpoint whose share was excused is slowed by an overload like any other afterwards."""
    endpoint = Limited(10_000, 0.3)
    run = Delivery(endpoint, maximum=1_000, offered=900).run(20)
    assert run.control.is_full
    endpoint.others.share = 0
    run.run(30)
    endpoint.capacity = 700
    run.run(60)
    assert run.taken_between(40, 60) > 0.9 * 20 * 700
    assert run.sent_between(40, 60) < 1.15 * 20 * 700


@given(
    share=st.sampled_from([0.07, 0.2, 0.4]),
    heals_s=st.floats(1, 15),
    latency_s=st.sampled_from([0.01, 0.4]),
    seed=st.integers(0, 1_000),
)
@example(share=0.4, heals_s=1.5, latency_s=0.4, seed=0)
@settings(deadline=None, max_examples=12)
def test_the_full_rate_is_back_within_ten_seconds_whatever_was_excused(
    share, heals_s, latency_s, seed
):
    endpoint = Refusing(lambda now_s: share if now_s < heals_s else 0, seed=seed)
    run = Delivery(endpoint, maximum=1_000, offered=300, latency_s=latency_s)
    run.run(heals_s + 10)
    assert run.control.is_full
    times_s = run.sent_s
    assert all(times_s[n + 1_000] - times_s[n] > 1 - 1e-6 for n in range(len(times_s) - 1_000))


def judged(cause, share, sent_per_s, *, now_s=0.0, outcomes=500, is_lowest=False):
    tally = RoundCounts(round(share * outcomes), outcomes, sent_per_s, sent_per_s * (1 - share))
    return cause.judge(tally, now_s, is_lowest=is_lowest)


def test_cuts_that_lower_nothing_end_and_the_share_is_excused():
    cause = FailureCause()
    verdicts = [judged(cause, 0.2, sent_per_s) for sent_per_s in (1_000, 800, 640, 512)]
    assert verdicts == [Verdict.FALL, Verdict.FALL, Verdict.FALL, Verdict.HOLD]
    assert not cause.excused
    assert judged(cause, 0.2, 512) is Verdict.HOLD
    assert cause.excused == pytest.approx(0.2)
    assert judged(cause, 0.2, 512) is Verdict.RISE
    # More of it as the rate rises is the load's.
    assert judged(cause, 0.35, 900) is Verdict.FALL


def test_cuts_that_lower_the_share_go_on():
    cause = FailureCause()
    assert judged(cause, 0.4, 1_000) is Verdict.FALL
    assert judged(cause, 0.2, 500) is Verdict.HOLD
    assert judged(cause, 0.2, 500) is Verdict.FALL
    assert not cause.excused


def test_what_fails_half_the_time_is_never_excused():
    cause = FailureCause()
    for _ in range(50):
        assert judged(cause, 0.5, 500) is Verdict.FALL
    assert not cause.excused


def test_cuts_of_what_is_allowed_prove_nothing_while_as_much_is_sent():
    cause = FailureCause()
    for _ in range(50):
        assert judged(cause, 0.3, 500) is Verdict.FALL
    assert not cause.excused


def test_an_excuse_after_which_nearly_all_fails_is_taken_back_for_a_minute():
    cause = FailureCause()
    for _ in range(3):
        judged(cause, 0.3, 150, is_lowest=True)
    assert cause.excused == pytest.approx(0.3)
    # More is taken as more is sent: so far the excuse was right.
    cause.on_overload(130.0, 1.0)
    assert cause.excused == pytest.approx(0.3)
    cause.on_overload(110.0, 1.0)
    assert not cause.excused
    for _ in range(50):
        assert judged(cause, 0.3, 150, now_s=59.0, is_lowest=True) is not Verdict.RISE
    assert not cause.excused
    for _ in range(3):
        judged(cause, 0.3, 150, now_s=62.0, is_lowest=True)
    assert cause.excused == pytest.approx(0.3)
