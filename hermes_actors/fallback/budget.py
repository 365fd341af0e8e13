"""The budget of hedges, and why a message goes to another datacentre. Pure."""

from enum import StrEnum


class Cause(StrEnum):
    """Why a message was sent to another datacentre than the first."""

    HEDGE = "hedge"  # no acknowledgement within the hedge delay, and the budget allowed it
    RESCUE = "rescue"  # it would have missed its deadline
    BREAKER = "breaker"  # the datacentre does not work
    PROBE = "probe"  # it was sent to a datacentre with an open breaker, which did not answer
    ERROR = "error"  # the datacentre refused it, or its fate there is unknown


class HedgeBudget:
    """A token bucket that fills with what is sent first-hand, not with time.

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
