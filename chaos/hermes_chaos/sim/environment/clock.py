"""A node's clocks in virtual time. The wall clock may be skewed, the monotonic one never steps."""

import trio

EPOCH_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""
DAY_MS = 86_400_000


class SimulatedClock:
    """Satisfies `Clock`. `skew_ms` is the error of this node's wall clock; it may change at any
    time.
    """

    __slots__ = ("_booted_s", "skew_ms")

    def __init__(self, skew_ms: int = 0, booted_s: float = 0.0) -> None:
        """`booted_s` is how long the machine has been up when the simulation begins."""
        self.skew_ms = skew_ms
        self._booted_s = booted_s

    def now_ms(self) -> int:
        """Wall-clock time, Unix epoch, milliseconds, with the skew."""
        return EPOCH_MS + self.skew_ms + int(trio.current_time() * 1_000)

    def monotonic_s(self) -> float:
        """Virtual seconds since the simulation began."""
        return trio.current_time()

    def boottime_s(self) -> float:
        """Virtual seconds since the machine was booted. A paused node's machine goes on, so this
        never stops.
        """
        return self._booted_s + trio.current_time()
