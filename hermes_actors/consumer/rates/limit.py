"""Limits that no second exceeds: at most `rate` takes in any window of one second. Pure.

A token bucket of burst b refilled at r lets b + r − 1 through in the worst second; here b is a
fiftieth of the rate and r = rate − b + 1, so the worst second holds exactly `rate`. The price is up
to 2 % of throughput above 100/s. The form is GCRA (ITU-T I.371): one number of state.

Of whole batches what was sent within the last second is remembered, batch by batch: a bucket would
either let up to twice the rate through or never have room for a large batch.
"""

from collections import deque

_WINDOW_S = 1.0

# Rounding must not make a waiter spin on a clock that does not move.
_WAIT_MIN_S = 1e-6

LEAST_PER_S = 1e-3
"""A lower limit counts as 0."""


class RateLimit:
    """Takes are counted against `rate_per_s`; times are monotonic seconds, never going back."""

    def __init__(self, rate_per_s: float) -> None:
        self._tat_s = float("-inf")  # the theoretical arrival time of the next take
        self._burst = 1
        self._interval_s = 0.0
        self.change(rate_per_s)

    def change(self, rate_per_s: float) -> None:
        """A new limit, from now on. 0: nothing may be taken; a fraction: one in so many seconds."""
        assert rate_per_s >= 0, "nothing is taken back"
        # A share that rounding has left of nothing is nothing.
        self.rate_per_s = rate_per_s if rate_per_s >= LEAST_PER_S else 0.0
        if not self.rate_per_s:
            return
        self._burst = max(1, int(rate_per_s) // 50)
        self._interval_s = 1.0 / (rate_per_s - self._burst + 1)

    def relax(self, now_s: float) -> None:
        """After a change: what was taken at a far lower limit does not hold back the new one."""
        if self.rate_per_s:
            self._tat_s = min(self._tat_s, now_s + self._interval_s * self._burst)

    def drain(self, now_s: float) -> None:
        """Begin as if all had been taken just now: what an earlier life took is not known."""
        self._tat_s = now_s + self._interval_s * self._burst

    def available(self, now_s: float) -> int:
        """How many may be taken now."""
        if not self.rate_per_s:
            return 0
        # The epsilon (a nanosecond's worth) keeps rounding from delaying a take that is due.
        slack_s = now_s - self._tat_s + self._interval_s * self._burst
        if slack_s >= self._interval_s * self._burst:
            return self._burst
        return max(0, int(slack_s / self._interval_s + 1e-9))

    def take(self, now_s: float, count: int = 1) -> None:
        """Take `count`, which must be available: whoever takes has asked, for each message."""
        self._tat_s = max(now_s, self._tat_s) + count * self._interval_s

    def wait_s(self, now_s: float) -> float:
        """How long until half a burst (at least one) is available; 0 when it is.

        Half a burst, so that a sender at its limit is woken for several messages at a time.
        Infinity while the limit is 0.
        """
        if not self.rate_per_s:
            return float("inf")
        wanted = max(1, self._burst // 2)
        if self.available(now_s) >= wanted:
            return 0.0
        due_s = self._tat_s - self._interval_s * (self._burst - wanted)
        return max(_WAIT_MIN_S, due_s - now_s)


def messages_max(batch_size: int, rate: int | None) -> int:
    """How many messages a batch may hold so that it fits into a second, and whole batches fill it.

    A batch size of 100 and a rate of 150 make batches of 75, two a second.
    """
    if rate is None:
        return batch_size
    batches = -(-rate // batch_size)
    return max(1, rate // batches)


class BatchRate:
    """Takes are counted against a share of `rate` a second (None: no limit); times are monotonic
    seconds. It remembers at most as many batches as `rate`.

    `limit` is how many that are: what is left of whole messages, at least one, which then takes
    longer than a second. 0 with a share of nothing: then nothing may be taken.
    """

    def __init__(self, rate: int | None, share: float = 1.0) -> None:
        self.rate = rate
        self.limit: int | None = None
        self._window_s = _WINDOW_S
        self._taken: deque[tuple[float, int]] = deque()
        self._count = 0
        self.change(share)

    def change(self, share: float) -> None:
        """Put another share of the rate in force at once."""
        if self.rate is None:
            return
        allowed = self.rate * share
        # A share that is a little too small by its rounding must not cost a message a second.
        self.limit = max(1, int(allowed + 1e-6)) if allowed >= LEAST_PER_S else 0
        self._window_s = _WINDOW_S if allowed >= 1 or not self.limit else 1 / allowed

    def drain(self, now_s: float) -> None:
        """Begin as if all had been taken just now: what an earlier life took is not known."""
        if self.limit:
            self.take(now_s, self.limit)

    def wait_s(self, now_s: float, count: int) -> float:
        """How long until `count` may be taken; 0 when they may. More than `limit` count as `limit`:
        a limit that was lowered must not hold a batch for ever.
        """
        if self.limit is None:
            return 0.0
        if not self.limit:
            return float("inf")
        self._forget(now_s)
        excess = self._count + min(count, self.limit) - self.limit
        if excess <= 0:
            return 0.0
        for at_s, taken in self._taken:
            excess -= taken
            if excess <= 0:
                return max(_WAIT_MIN_S, at_s + self._window_s - now_s)
        raise AssertionError("what was taken adds up")

    def take(self, now_s: float, count: int) -> None:
        """Take `count`, for which there must be room."""
        if self.limit is not None:
            self._taken.append((now_s, count))
            self._count += count

    def _forget(self, now_s: float) -> None:
        while self._taken and now_s - self._taken[0][0] >= self._window_s:
            self._count -= self._taken.popleft()[1]
