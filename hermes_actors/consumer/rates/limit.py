"""Rate limits that hold in every second: at most `rate` takes in any window of one second. Pure.

A token bucket of burst b refilled at r lets b + r − 1 through in the worst second. Here b is a
fiftieth of the rate and r = rate − b + 1, so the worst second holds exactly `rate`. The price is up
to 2 % of throughput above 100/s. The algorithm is GCRA (ITU-T I.371), whose state is one number.
"""

# Without a minimum, rounding could make a waiter spin on a clock that does not move.
WAIT_MIN_S = 1e-6

LEAST_PER_S = 1e-3
"""A lower limit counts as 0."""


class RateLimit:
    """Counts takes against `rate_per_s`. Times are monotonic seconds that never go back."""

    def __init__(self, rate_per_s: float) -> None:
        self._tat_s = float("-inf")  # the theoretical arrival time of the next take
        self._burst = 1
        self._interval_s = 0.0
        self.change(rate_per_s)

    def change(self, rate_per_s: float) -> None:
        """Set the limit from now on. 0 allows nothing; a fraction allows one take in several
        seconds.
        """
        assert rate_per_s >= 0, "nothing is taken back"
        # Treat a share that is only a rounding error as 0.
        self.rate_per_s = rate_per_s if rate_per_s >= LEAST_PER_S else 0.0
        if not self.rate_per_s:
            return
        self._burst = max(1, int(rate_per_s) // 50)
        self._interval_s = 1.0 / (rate_per_s - self._burst + 1)

    def relax(self, now_s: float) -> None:
        """After a change: takes at a far lower limit must not hold back the new one."""
        if self.rate_per_s:
            self._tat_s = min(self._tat_s, now_s + self._interval_s * self._burst)

    def drain(self, now_s: float) -> None:
        """Start as if everything was just taken, because earlier takes are unknown."""
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
        """Take `count`, which must be available."""
        self._tat_s = max(now_s, self._tat_s) + count * self._interval_s

    def wait_s(self, now_s: float) -> float:
        """How long until half a burst (at least one) is available; 0 if it is.

        Half a burst, so that a sender at its limit wakes up for several messages at once. Infinity
        while the limit is 0.
        """
        if not self.rate_per_s:
            return float("inf")
        wanted = max(1, self._burst // 2)
        if self.available(now_s) >= wanted:
            return 0.0
        due_s = self._tat_s - self._interval_s * (self._burst - wanted)
        return max(WAIT_MIN_S, due_s - now_s)
