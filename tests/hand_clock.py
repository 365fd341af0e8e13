"""A clock that a test moves."""


class HandClock:
    """Stands still until the test lets time pass or sets the wall clock."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.wall_ms = wall_ms
        self.passed_s = 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.passed_s

    def boottime_s(self) -> float:
        return self.passed_s

    def pass_time(self, seconds: float) -> None:
        self.passed_s += seconds
        self.wall_ms += round(seconds * 1_000)
