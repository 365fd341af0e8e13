"""The budget for hedges, and the causes for sending to another datacentre. Pure."""

from enum import StrEnum


class Cause(StrEnum):
    """Why a message was sent to another datacentre."""

    HEDGE = "hedge"  # no acknowledgement within the hedge delay, and the budget allowed it
    RESCUE = "rescue"  # it would have missed its deadline
    BREAKER = "breaker"  # the first datacentre's breaker is open
    PROBE = "probe"  # it was a probe to a datacentre with an open breaker, which did not answer
    ERROR = "error"  # the datacentre failed it, or the outcome there is unknown


class HedgeBudget:
    """A token bucket that is filled by first sends, not by time.

    Of n messages, at most `percent` of n plus `burst_max` may be sent a second time, however slow
    the own log becomes. The bucket starts full and holds `burst_max`.
    """

    def __init__(self, percent: int, burst_max: int) -> None:
        assert percent >= 0
        assert burst_max >= 0
        self._percent = percent
        # In hundredths of a message: integers do not drift.
        self._tokens = self._full = burst_max * 100

    def earn(self, count: int) -> None:
        """Add the tokens for `count` messages sent for the first time."""
        self._tokens = min(self._tokens + count * self._percent, self._full)

    def take(self, count: int) -> bool:
        """Take the tokens for `count` second sends. False if there are too few."""
        if self._tokens < count * 100:
            return False
        self._tokens -= count * 100
        return True
