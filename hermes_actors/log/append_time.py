"""Timestamps that a log gives its records: they never go back, and never stand still for long."""

_SPEED = 0.5
"""Speed of the timestamps while the wall clock is behind; slow enough for the clock to catch up."""


class AppendTime:
    """Stamps one partition's records with the wall clock. While that is behind the partition's last
    timestamp (it was set back), stamps advance at half the speed of real time until it has caught
    up.

    So measurements of time by these stamps, such as leases, continue more slowly, instead of
    standing still for as long as the clock was set back.
    """

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        # The timestamp and the monotonic time at which the wall clock was first seen behind.
        self._behind: tuple[int, float] | None = None

    def stamp_ms(self, high_ms: int, now_ms: int, monotonic_s: float) -> int:
        """Return the next timestamp; `high_ms` is the last one."""
        if now_ms >= high_ms:
            self._behind = None
            return now_ms
        if self._behind is None:
            self._behind = (high_ms, monotonic_s)
        at_ms, since_s = self._behind
        return max(high_ms, at_ms + int((monotonic_s - since_s) * 1_000 * _SPEED))
