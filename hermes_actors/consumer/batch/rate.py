"""A limit for whole batches that no second exceeds: at most `rate` messages in any one. Pure.

What was sent within the last second is remembered, batch by batch: a bucket, which keeps one number
only, would either let up to twice the rate through or never have room for a large batch.
"""

from collections import deque

from hermes_actors.consumer.rates.limit import LEAST_PER_S

_WINDOW_S = 1.0
# Rounding must not make a waiter spin on a clock that does not move.
_WAIT_MIN_S = 1e-6


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
