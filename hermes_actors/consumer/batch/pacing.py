"""How fast batches may be sent: no second exceeds this owner's share of the message rate.

The batches of the last second are remembered. A token bucket would either let up to twice the rate
through or never have room for a large batch. Nothing is learned from answers: one request at a
time, with the policy's back-off, is slow enough for a failing endpoint.
"""

from collections import deque

from hermes_actors.consumer.rates.control import Pace
from hermes_actors.consumer.rates.limit import LEAST_PER_S, WAIT_MIN_S
from hermes_actors.coordination.owned import Owned
from hermes_actors.model.subscription import BatchPolicy
from hermes_actors.runtime.clock import Clock


class BatchPacing(Pace):
    """Check `wait_s` before each batch, and call `take` for it. Remembers at most as many batches
    as the rate. Times are monotonic seconds.

    `limit` is how many messages may be sent in the window: the whole part of the share, at least
    one; a share below 1 widens the window. 0 for a share of nothing, None without a rate.
    """

    def __init__(self, policy: BatchPolicy, owned: Owned, clock: Clock) -> None:
        self._policy = policy
        self._owned = owned
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._taken: deque[tuple[float, int]] = deque()
        self._count = 0
        self.divide()
        if self.limit:
            # A restart, a new owner or a new rate must not double a second's messages.
            self.take(self._clock.monotonic_s(), self.limit)

    def adopt(self, policy: BatchPolicy) -> None:
        """Apply a new version of the policy."""
        is_other = policy.message_rate != self._policy.message_rate
        self._policy = policy
        if is_other:
            self._begin()

    @property
    def allowed(self) -> float:
        """The owner's share of the rate, in messages a second; negative without a rate."""
        rate = self._policy.message_rate
        return -1.0 if rate is None else rate * self._owned.share.value

    @property
    def rate_now(self) -> float:
        """As `allowed`, but 0 without a rate."""
        return max(0.0, self.allowed)

    def divide(self) -> None:
        """Apply a changed share of the rate."""
        allowed = self.allowed
        self.limit: int | None = None
        self._window_s = 1.0
        if allowed >= LEAST_PER_S:
            # A share that is slightly too small by rounding must not cost a message a second.
            self.limit = max(1, int(allowed + 1e-6))
            self._window_s = max(1.0, 1 / allowed)
        elif allowed >= 0:
            self.limit = 0

    @property
    def size_max(self) -> int:
        """How many messages a batch may hold so that whole batches fill a second. A batch size of
        100 and a rate of 150 make batches of 75, two a second.
        """
        size = self._policy.batch_size
        if self.limit is None:
            return size
        rate = max(1, self.limit)
        batches = -(-rate // size)
        return rate // batches

    def wait_s(self, now_s: float, count: int) -> float:
        """How long until `count` messages may be sent; 0 if they may. More than `limit` counts as
        `limit`: a lowered limit must not hold a batch for ever.
        """
        if self.limit is None:
            return 0.0
        if not self.limit:
            return float("inf")
        while self._taken and now_s - self._taken[0][0] >= self._window_s:
            self._count -= self._taken.popleft()[1]
        excess = self._count + min(count, self.limit) - self.limit
        if excess <= 0:
            return 0.0
        for at_s, taken in self._taken:
            excess -= taken
            if excess <= 0:
                return max(WAIT_MIN_S, at_s + self._window_s - now_s)
        raise AssertionError("what was taken adds up")

    def take(self, now_s: float, count: int) -> None:
        """Count messages that are sent, for which there must be room."""
        if self.limit is not None:
            self._taken.append((now_s, count))
            self._count += count
