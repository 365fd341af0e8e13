"""What hedging may add to the load, however slow the own log becomes. Pure."""


class HedgeBudget:
    """A token bucket that fills with what is sent first-hand, not with time.

    Of n messages sent first-hand at most `percent` of n, and `burst_max` beside, are granted. A
    bucket starts full and holds `burst_max`. Two fifths of it are for those that have waited
    longest: early hedges, which gain little each, must not use up what these need.
    """

    def __init__(self, percent: int, burst_max: int) -> None:
        assert percent >= 0
        assert burst_max >= 0
        self._percent = percent
        # In hundredths of a message: whole numbers do not drift.
        self._full = burst_max * 100
        self._tokens = self._full
        self._set_by = burst_max * 2 // 5 * 100

    def earn(self, count: int) -> None:
        """`count` messages are sent first-hand."""
        self._tokens = min(self._tokens + count * self._percent, self._full)

    def take(self, count: int, *, is_early: bool = False) -> bool:
        """Whether `count` messages may be sent a second time; these are paid for then."""
        if self._tokens < count * 100 + is_early * self._set_by:
            return False
        self._tokens -= count * 100
        return True
