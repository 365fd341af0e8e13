"""How the rate follows an endpoint's answers: a simulated endpoint over the pure controller."""

import bisect
import heapq
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_actors.consumer.rates.control import Level, RateControl, RateControls
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.coordination.commands import RateState
from tests.seeds import seeds


class Endpoint:
    """Pushes all that is allowed, and hears of each after `latency_s`; there is always more.

    `fails(now_s)` says what becomes of a push: None (taken), "sick" or "dead"; `connects(now_s)`
    what becomes of a probe.
    """

    def __init__(self, maximum, *, fails, connects=lambda _now_s: True, latency_s=0.01, window=100):
        self.control = RateControl(maximum, 0.0)
        self.limit = RateLimit(maximum)
        self.fails, self.connects = fails, connects
        self.latency_s, self.window = latency_s, window
        self.now_s = 0.0
        self.sent_s, self.probed_s = [], []
        self.levels, self.rates = [(0.0, Level.FULL)], [(0.0, self.control.rate)]
        self.inflight_high = 0
        self._ends = []
        self._probe_ends_s = float("inf")
        self._sequence = 0

    def run(self, until_s):
        while self.now_s < until_s:
            self._land()
            self._probe()
            wait_s = self._push()
            ends_s = self._ends[0][0] if self._ends else float("inf")
            self.now_s = max(self.now_s + 1e-6, min(until_s, ends_s, self.now_s + wait_s))
            self._note()
        return self

    def _push(self):
        control, limit = self.control, self.limit
        while len(self._ends) < self.window:
            if not limit.available(self.now_s):
                return limit.wait_s(self.now_s)
            if not control.is_full and not control.available(self.now_s):
                wait_s = min(control.wait_s(self.now_s), control.connect_wait_s(self.now_s))
                return min(wait_s, self._probe_ends_s - self.now_s)
            limit.take(self.now_s)
            if not control.is_full:
                control.take(self.now_s)
            self.sent_s.append(self.now_s)
            self._sequence += 1
            end = (self.now_s + self.latency_s, self._sequence, control.epoch, self.now_s)
            heapq.heappush(self._ends, end)
            self.inflight_high = max(self.inflight_high, len(self._ends))
        return float("inf")

    def _probe(self):
        if self.control.connect_wait_s(self.now_s) <= 0:
            self.control.on_connecting(self.now_s)
            self.probed_s.append(self.now_s)
            self._probe_ends_s = self.now_s + self.latency_s
        if self._probe_ends_s <= self.now_s:
            self._probe_ends_s = float("inf")
            if self.connects(self.now_s):
                self.control.on_connected(self.now_s)

    def _land(self):
        while self._ends and self._ends[0][0] <= self.now_s:
            _, _, epoch, sent_s = heapq.heappop(self._ends)
            how = self.fails(sent_s)
            if how is None:
                self.control.success_s = self.now_s
                if self.control.is_watching:
                    self.control.on_success(self.now_s, epoch)
            else:
                self.control.on_failure(
                    self.now_s,
                    epoch,
                    failed_before_s=None,
                    is_answered=how != "dead",
                    is_pressed=how != "sick",
                )
            self._note()

    def _note(self):
        if self.levels[-1][1] is not self.control.level:
            self.levels.append((self.now_s, self.control.level))
        if self.rates[-1][1] != self.control.rate:
            self.rates.append((self.now_s, self.control.rate))

    def sent_between(self, start_s, end_s):
        return bisect.bisect_left(self.sent_s, end_s) - bisect.bisect_left(self.sent_s, start_s)

    def is_full_at(self):
        """When it came back to the full rate for the last time."""
        at_s, level = self.levels[-1]
        assert level is Level.FULL, self.levels
        return at_s


def chance(share, how, seed=1):
    rng = random.Random(seed)
    return lambda _now_s: how if rng.random() < share else None


@given(
    maximum=st.integers(1, 300),
    share=st.sampled_from([0, 0.01, 0.1, 0.4, 0.6, 1]),
    how=st.sampled_from(["sick", "dead"]),
    seed=st.integers(0, 1_000),
    heals_s=st.floats(0.5, 20),
    latency_s=st.sampled_from([0.001, 0.05, 0.6]),
)
def test_no_second_ever_holds_more_than_the_maximum(maximum, share, how, seed, heals_s, latency_s):
    failing = chance(share, how, seed)
    fails = lambda now_s: failing(now_s) if now_s < heals_s else None  # noqa: E731
    run = Endpoint(maximum, fails=fails, latency_s=latency_s).run(25)
    for at, start_s in enumerate(run.sent_s):
        assert bisect.bisect_left(run.sent_s, start_s + 1 - 1e-6) - at <= maximum


@given(
    maximum=st.sampled_from([1, 2, 10, 64, 65, 400, 1_500]),
    share=st.sampled_from([0.2, 0.45, 0.7, 1]),
    how=st.sampled_from(["sick", "dead"]),
    seed=st.integers(0, 1_000),
    outage_s=st.floats(3, 90),
    latency_s=st.sampled_from([0.001, 0.1, 0.5]),
)
@example(maximum=65, share=0.7, how="dead", seed=234, outage_s=73.0, latency_s=0.5)
@example(maximum=400, share=0.45, how="sick", seed=99, outage_s=17.0, latency_s=0.1)
@example(maximum=400, share=0.7, how="sick", seed=984, outage_s=78.25, latency_s=0.5)
def test_the_full_rate_is_back_within_ten_seconds_of_the_endpoints_health(
    maximum, share, how, seed, outage_s, latency_s
):
    failing = chance(share, how, seed)
    fails = lambda now_s: failing(now_s) if now_s < outage_s else None  # noqa: E731
    connects = lambda now_s: now_s >= outage_s  # noqa: E731
    run = Endpoint(maximum, fails=fails, connects=connects, latency_s=latency_s, window=2_000)
    run.run(outage_s + latency_s + 11)
    # Its first healthy answer comes a latency later.
    assert run.is_full_at() <= outage_s + latency_s + 10


@pytest.mark.parametrize("latency_s", [0.005, 1.0])
def test_a_dead_endpoint_gets_one_message_a_minute_and_a_probe_every_five_seconds(latency_s):
    run = Endpoint(
        1_000, fails=lambda _: "dead", connects=lambda _: False, latency_s=latency_s
    ).run(400)
    assert [level for _, level in run.levels] == [Level.FULL, Level.SLOW, Level.HEARTBEAT]
    assert run.levels[1][0] < 1.5
    assert run.levels[2][0] < 15
    assert 4 <= run.sent_between(60, 360) <= 6
    assert 54 <= sum(60 <= at_s < 360 for at_s in run.probed_s) <= 61


def test_a_sick_endpoint_stays_at_one_message_a_second():
    run = Endpoint(1_000, fails=lambda _: "sick").run(120)
    assert [level for _, level in run.levels] == [Level.FULL, Level.SLOW]
    assert 98 <= run.sent_between(20, 120) <= 101
    assert run.probed_s == []


def test_an_endpoint_that_begins_to_answer_with_errors_is_no_longer_dead():
    run = Endpoint(
        100,
        fails=lambda now_s: "dead" if now_s < 30 else "sick",
        connects=lambda now_s: now_s >= 30,
    ).run(60)
    assert [level for _, level in run.levels] == [
        Level.FULL,
        Level.SLOW,
        Level.HEARTBEAT,
        Level.SLOW,
    ]
    assert 30 <= run.levels[-1][0] <= 36


def test_half_open_levels_have_one_push_under_way():
    run = Endpoint(1_000, fails=lambda _: "dead", latency_s=7.0, connects=lambda _: True)
    run.run(8)
    assert run.control.level is Level.SLOW
    run.inflight_high = 0
    run.run(120)
    # What was sent before the fall has landed by then.
    assert run.inflight_high == 1
    assert run.control.level is Level.HEARTBEAT


@pytest.mark.parametrize("maximum", [50, 1_000])
@pytest.mark.parametrize("seed", seeds(5))
def test_one_percent_of_failing_messages_slows_nothing(seed, maximum):
    run = Endpoint(maximum, fails=chance(0.01, "sick", seed), window=1_000).run(60)
    assert run.rates == [(0.0, float(maximum))]


def test_a_share_of_failing_messages_lowers_the_rate_to_a_quarter_and_no_further():
    run = Endpoint(1_000, fails=chance(0.3, "sick")).run(60)
    assert {level for _, level in run.levels} == {Level.FULL, Level.ADAPTING}
    assert min(rate for _, rate in run.rates) == 250


@pytest.mark.parametrize("how", ["busy", "dead"])
@pytest.mark.parametrize("capacity", [30, 100])
def test_an_endpoint_that_is_sent_too_much_is_sent_about_what_it_can_take(capacity, how):
    limit = RateLimit(capacity)

    def fails(now_s):
        if not limit.available(now_s):
            return how
        limit.take(now_s)
        return None

    run = Endpoint(200, fails=fails).run(120)
    assert Level.HEARTBEAT not in {level for _, level in run.levels}
    assert 0.6 * capacity < run.sent_between(60, 120) / 60 < 1.5 * capacity


def test_no_answers_are_no_evidence_of_health():
    """Hermes lets an idle subscription climb to its full rate against a dead endpoint (D16)."""
    control = RateControl(1_000, 0.0)
    for _ in range(20):
        control.on_failure(1.0, control.epoch, failed_before_s=None, is_answered=True)
    assert control.level is Level.SLOW
    # An hour in which nothing is published.
    assert control.available(3_600.0) == 1
    assert control.level is Level.SLOW
    assert control.rate == 1.0


def push_all(control, now_s, failed_s):
    """Each message fails once more."""
    for n, before_s in enumerate(failed_s):
        if control.on_failure(now_s, control.epoch, failed_before_s=before_s, is_answered=True):
            failed_s[n] = now_s


@pytest.mark.parametrize(("count", "successes"), [(1, 1), (20, 1_000)])
def test_messages_that_fail_again_and_again_count_once_while_others_succeed(count, successes):
    control, now_s, failed_s = RateControl(1_000, 0.0), 0.0, [None] * count
    for _ in range(60):
        # Nothing else is on its way for two seconds, in which each is tried ten times.
        for _ in range(10):
            now_s += 0.2
            push_all(control, now_s, failed_s)
        for _ in range(successes):
            control.success_s = now_s
            if control.is_watching:
                control.on_success(now_s, control.epoch)
    assert control.is_full


@pytest.mark.parametrize(("count", "soonest_s", "latest_s"), [(1, 25, 30), (12, 0.5, 0.8)])
def test_messages_that_are_all_there_is_are_evidence_when_they_fail_again(
    count, soonest_s, latest_s
):
    control, now_s, failed_s = RateControl(1_000, 0.0), 0.0, [None] * count
    control.success_s = 0.0
    while control.is_full and now_s < 100:
        now_s += 0.1
        push_all(control, now_s, failed_s)
    assert control.level is Level.SLOW
    assert soonest_s <= now_s < latest_s


def test_a_dead_endpoint_is_found_out_however_little_there_is_to_push():
    control, now_s = RateControl(1_000, 0.0), 0.0
    for _ in range(10):
        now_s += 5.0
        control.on_failure(now_s, control.epoch, failed_before_s=None, is_answered=False)
    assert control.level is Level.SLOW


@pytest.mark.parametrize("maximum", [5, 100, 1_000])
def test_an_endpoint_that_dies_at_full_rate_is_probed_after_some_ten_failures(maximum):
    run = Endpoint(maximum, fails=lambda now_s: None if now_s < 10 else "sick", window=200).run(20)
    assert [level for _, level in run.levels] == [Level.FULL, Level.SLOW]
    assert run.levels[1][0] < 10.6 + 11 / maximum


def fallen(level=Level.HEARTBEAT):
    control = RateControl(1_000, 0.0)
    is_answered = level is Level.SLOW
    for _ in range(100):
        if control.level is level:
            break
        control.on_failure(1.0, control.epoch, failed_before_s=None, is_answered=is_answered)
    assert control.level is level
    return control


def test_what_was_sent_before_a_fall_says_nothing_after_it():
    control = RateControl(1_000, 0.0)
    before = control.epoch
    for _ in range(50):
        control.on_failure(1.0, before, failed_before_s=None, is_answered=False)
    assert control.level is Level.SLOW
    control.on_success(1.0, before)
    assert control.level is Level.SLOW


def test_a_connection_lets_the_next_message_go_at_once_whenever_it_comes():
    control = fallen()
    assert control.available(7.0) == 0
    assert control.connect_wait_s(7.0) == 0
    control.on_connecting(7.0)
    assert control.connect_wait_s(7.0) == 5.0
    control.on_connected(7.1)
    assert control.available(7.1) == control.available(1_000.0) == 1


def test_the_next_owner_begins_with_the_level_and_its_share_of_the_rate():
    slow = RateControl(1_000, 0.0)
    slow.take_over(fallen(Level.SLOW).known(), 3.0)
    # What was under way in the earlier life does not return, and it may find out at once.
    assert (slow.level, slow.available(3.0)) == (Level.SLOW, 1)
    half = RateControl(500, 0.0, share=0.5)
    half.take_over(RateState("ADAPTING", 100.0), 3.0)
    assert (half.level, half.rate) == (Level.ADAPTING, 50.0)
    assert half.known() == RateState("ADAPTING", 100.0)
    half.change(1_000, 1.0, 4.0)
    assert half.rate == 100.0


def test_a_rate_control_is_that_of_one_identity_until_it_is_forgotten():
    rate_controls, control = RateControls(), RateControl(1_000, 0.0)
    rate_controls.keep("a.b$c", (1, "http://x/"), control)
    assert rate_controls.find("a.b$c", (1, "http://x/")) is control
    assert rate_controls.find("a.b$c", (1, "http://y/")) is None
    rate_controls.forget("a.b$c")
    assert rate_controls.find("a.b$c", (1, "http://x/")) is None


def test_another_maximum_holds_at_each_level():
    control = RateControl(1_000, 0.0)
    control.change(10, 1.0, 1.0)
    assert (control.rate, control.is_full) == (10, True)
    control.change(2_000, 1.0, 2.0)
    assert (control.rate, control.is_full) == (2_000, True)
    slow = fallen(Level.SLOW)
    slow.change(5, 1.0, 3.0)
    assert slow.rate == 1
    slow.take(5.0)
    slow.on_success(5.1, slow.epoch)
    assert slow.rate == 4
    assert slow.level is Level.ADAPTING
    slow.change(1, 1.0, 6.0)
    assert (slow.rate, slow.level) == (1, Level.FULL)
