"""How often planning has failed lately on this node, so that another may try."""

from collections import deque

FAILURES_MAX = 3
"""How many failures within the window make the leader give up its lead."""

WINDOW_S = 600.0
"""As long as a supervisor remembers an actor's failures, whose restarts it delays by them: with
fewer failures than the most, a lead is never without its actor for longer than half a second."""


class LeaderAttempts:
    """Remembers the failures of one node's leader, over its restarts. Times are monotonic."""

    def __init__(self) -> None:
        self._failed_s: deque[float] = deque(maxlen=FAILURES_MAX)

    def failed(self, now_s: float) -> bool:
        """Planning has failed now; True when that is once too often."""
        self._failed_s.append(now_s)
        return self.is_poor(now_s)

    def is_poor(self, now_s: float) -> bool:
        """True while others should rather lead, if there are any."""
        failed_s = self._failed_s
        return len(failed_s) == FAILURES_MAX and now_s - failed_s[0] <= WINDOW_S
