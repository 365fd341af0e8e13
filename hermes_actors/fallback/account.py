"""The budget of hedges, and a bound on appends that nobody waits for."""

from enum import StrEnum

import trio
from msgspec import Struct, field

from hermes_actors.telemetry.metrics import Counter


class Cause(StrEnum):
    """Why a message was sent to another datacentre than the first."""

    HEDGE = "hedge"  # no acknowledgement within the hedge delay, and the budget allowed it
    RESCUE = "rescue"  # it would have missed its deadline
    BREAKER = "breaker"  # the datacentre does not work
    PROBE = "probe"  # it was to find out whether the datacentre works again, and it did not
    ERROR = "error"  # the datacentre refused it, or nobody knows


class HedgeBudget:
    """A token bucket that fills with what is sent first-hand, not with time. Pure.

    Of n messages sent first-hand at most `percent` of n, and `burst_max` beside, are granted,
    however slow the own log becomes. A bucket starts full and holds `burst_max`.
    """

    def __init__(self, percent: int, burst_max: int) -> None:
        assert percent >= 0
        assert burst_max >= 0
        self._percent = percent
        # In hundredths of a message: whole numbers do not drift.
        self._tokens = self._full = burst_max * 100

    def earn(self, count: int) -> None:
        """Earn for `count` messages that are sent first-hand."""
        self._tokens = min(self._tokens + count * self._percent, self._full)

    def take(self, count: int) -> bool:
        """Whether `count` messages may be sent a second time; these are paid for then."""
        if self._tokens < count * 100:
            return False
        self._tokens -= count * 100
        return True


class OwnAppend(Struct, eq=False):
    """An append to the own log while it runs."""

    size_bytes: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Losers:
    """Appends that nobody waits for any more run on, and are never too many: `appends_max` of
    together `bytes_max` bytes; the oldest is given up first.

    They run on because a cancelled append costs a Kafka producer its identity, and because what
    becomes of them is worth knowing: a duplicate is counted, a log that comes back is noticed.
    """

    def __init__(self, appends_max: int, bytes_max: int, cancelled: Counter) -> None:
        self._appends_max = appends_max
        self._bytes_max = bytes_max
        self._cancelled = cancelled
        self._running: dict[OwnAppend, None] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._running)

    def adopt(self, append: OwnAppend) -> None:
        """Take over an append that nobody waits for any more; the oldest are given up above the
        bounds.
        """
        self._running[append] = None
        self.size_bytes += append.size_bytes
        while self._running and (
            len(self._running) > self._appends_max or self.size_bytes > self._bytes_max
        ):
            oldest = next(iter(self._running))
            self.ended(oldest)
            self._cancelled.add()
            # It may be stored, and nobody will know.
            oldest.scope.cancel()

    def ended(self, append: OwnAppend) -> None:
        """Forget an append that has ended; nothing happens when it is not one of these."""
        if append in self._running:
            del self._running[append]
            self.size_bytes -= append.size_bytes
