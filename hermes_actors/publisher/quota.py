"""Throughput quotas: how many bytes a second a topic may publish on this node. Pure.

A topic's rate is the exponentially weighted moving average of its body bytes over one minute: each
byte adds 1/60 per second when it arrives, and fades with a time constant of 60 s, like the load
averages of Unix. So an idle topic may send 60 times its limit at once before it is refused.

`dynamic` limits the node's total. At each check:

* If the total is above the threshold, each topic that is not idle and has at least the mean rate is
  limited to an equal share of the desired total (the desired total divided by the number of topics
  that are not idle). This is Hermes' rule.
* Otherwise limits rise again. A topic that uses at most half of a lowered limit has it doubled. The
  others get equal shares of the room below the threshold, so that raising alone never exceeds it. A
  limit that reaches the maximum is no longer a lowered one.
"""

import math
from collections.abc import Mapping

from hermes_actors.config import ThroughputConfig
from hermes_actors.errors import ErrorCode, Unavailable

TIME_CONSTANT_S = 60.0
_CHECKS_MAX = 64
_FORGOTTEN_BYTES_PER_S = 0.001
_ROUNDING = 1e-9


class Average:
    """A decaying average rate; `now_s` is monotonic and never goes back."""

    __slots__ = ("_at_s", "_per_s")

    def __init__(self) -> None:
        self._per_s = 0.0
        self._at_s = 0.0

    def add(self, count: int, now_s: float) -> float:
        """Add `count` now. Returns the new rate."""
        self._per_s = self.per_s(now_s) + count / TIME_CONSTANT_S
        self._at_s = now_s
        return self._per_s

    def per_s(self, now_s: float) -> float:
        """The rate at this time."""
        return self._per_s * math.exp((self._at_s - now_s) / TIME_CONSTANT_S)


def next_limits(
    rates: Mapping[str, float], lowered: Mapping[str, float], config: ThroughputConfig
) -> dict[str, float]:
    """Compute the lowered limits after a check, from the topics' rates and the lowered limits
    before it. A topic without an entry has the maximum.
    """
    total = sum(rates.values())
    if total > config.dynamic_threshold_bytes_per_s:
        return _cut(rates, lowered, config)
    pressed = [topic for topic, limit in lowered.items() if rates.get(topic, 0.0) > limit / 2]
    headroom = config.dynamic_threshold_bytes_per_s - total
    raised = {
        topic: limit + headroom / len(pressed) if topic in pressed else limit * 2
        for topic, limit in lowered.items()
    }
    return {
        topic: limit for topic, limit in raised.items() if limit < config.dynamic_max_bytes_per_s
    }


def _cut(
    rates: Mapping[str, float], lowered: Mapping[str, float], config: ThroughputConfig
) -> dict[str, float]:
    busy = {topic: rate for topic, rate in rates.items() if rate > config.dynamic_idle_bytes_per_s}
    limits = dict(lowered)
    if not busy:
        return limits
    mean = sum(busy.values()) / len(busy)
    share = max(1.0, config.dynamic_desired_bytes_per_s / len(busy))
    if share < config.dynamic_max_bytes_per_s:
        # Rounding may put equal rates slightly below their mean.
        loud = mean * (1 - _ROUNDING)
        limits |= {topic: share for topic, rate in busy.items() if rate >= loud}
    return limits


class Quotas:
    """The quotas of one node. It needs no timer: the next request catches up on overdue checks."""

    def __init__(self, config: ThroughputConfig, now_s: float) -> None:
        assert config.type != "unlimited", "no quotas are configured"
        self._is_dynamic = config.type == "dynamic"
        self._max_per_s = float(
            config.dynamic_max_bytes_per_s if self._is_dynamic else config.fixed_max_bytes_per_s
        )
        self._config = config
        self._interval_s = config.dynamic_check_interval_ms / 1_000
        self._check_at_s = now_s + self._interval_s
        self._rates: dict[str, Average] = {}
        self._total = Average()
        self._lowered: dict[str, float] = {}

    def limit_of(self, topic: str) -> float:
        """The topic's current limit in bytes a second."""
        return self._lowered.get(topic, self._max_per_s)

    def refusal(self, topic: str, now_s: float) -> Unavailable | None:
        """The error if the topic is above its quota now, else None."""
        if now_s >= self._check_at_s:
            self._catch_up(now_s)
        average = self._rates.get(topic)
        rate = 0.0 if average is None else average.per_s(now_s)
        limit = self.limit_of(topic)
        if self._is_above(rate, limit):
            return self._violation(f"of topic {topic}", rate, limit)
        if self._is_dynamic:
            total = self._total.per_s(now_s)
            if total > self._max_per_s:
                return self._violation("of all topics", total, self._max_per_s)
        return None

    def count(self, topic: str, size_bytes: int, now_s: float) -> Unavailable | None:
        """Count a body of the topic. Returns the error if it takes the topic above its quota."""
        if now_s >= self._check_at_s:
            self._catch_up(now_s)
        average = self._rates.get(topic)
        if average is None:
            average = self._rates[topic] = Average()
        average.add(size_bytes, now_s)
        self._total.add(size_bytes, now_s)
        return self.refusal(topic, now_s)

    def _is_above(self, rate: float, limit: float) -> bool:
        # Hermes compares whole bytes a second for fixed limits.
        return rate > limit if self._is_dynamic else math.floor(rate) > limit

    def _wait_s(self, rate: float, limit: float) -> int:
        """The whole seconds of silence until the topic is accepted again, at least 1."""
        taken_from = limit if self._is_dynamic else limit + 1
        if rate <= taken_from:
            return 1
        return max(1, math.ceil(TIME_CONSTANT_S * math.log(rate / taken_from)))

    def _violation(self, whose: str, rate: float, limit: float) -> Unavailable:
        wait_s = self._wait_s(rate, limit)
        error = Unavailable(
            f"The throughput {whose} is {math.floor(rate)} bytes/s, above the limit of "
            f"{math.floor(limit)} bytes/s; try again in {wait_s} s",
            ErrorCode.THROUGHPUT_QUOTA_VIOLATION,
            ErrorCode.THROUGHPUT_QUOTA_VIOLATION.status,
        )
        error.headers = (("retry-after", str(wait_s)),)
        return error

    def _catch_up(self, now_s: float) -> None:
        """Make up for the checks that were due, each with the rates at its time."""
        due = int((now_s - self._check_at_s) / self._interval_s) + 1
        for number in range(max(0, due - _CHECKS_MAX), due):
            # No bytes were counted since, so rates have only decayed.
            at_s = self._check_at_s + number * self._interval_s
            rates = {topic: average.per_s(at_s) for topic, average in self._rates.items()}
            if self._is_dynamic:
                self._lowered = next_limits(rates, self._lowered, self._config)
            for topic, rate in rates.items():
                if rate < _FORGOTTEN_BYTES_PER_S and topic not in self._lowered:
                    del self._rates[topic]
            if not self._rates and not self._lowered:
                break
        self._check_at_s += due * self._interval_s
