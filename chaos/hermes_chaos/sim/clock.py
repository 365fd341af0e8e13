"""A node's clocks in virtual time: the wall clock may be skewed, the monotonic one never steps."""

import trio

EPOCH_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""
DAY_MS = 86_400_000


class SimulatedClock:
    """Satisfies `Clock`. `skew_ms` is how far this node's wall clock is off; set it at any time."""

    __slots__ = ("skew_ms",)

    def __init__(self, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Wall-clock time, Unix epoch, milliseconds, with the skew."""
        return EPOCH_MS + self.skew_ms + int(trio.current_time() * 1_000)

    def monotonic_s(self) -> float:
        """Virtual seconds since the simulation began."""
        return trio.current_time()

    def boottime_s(self) -> float:
        """As `monotonic_s`: a simulated machine is never suspended."""
        return self.monotonic_s()
