"""Computes waits between attempts: growing, jittered, bounded."""

import random

FIRST_S = 0.05
MAX_S = 2.0


def backoff_s(failed: int, jitter: float, first_s: float = FIRST_S, max_s: float = MAX_S) -> float:
    """The wait before the next attempt after `failed` earlier failures, with a `jitter` in [0, 1).

    It is in [½, 1] × min(max, first × 2ⁿ).
    """
    # The exponent is bounded because failures are counted for as long as an outage lasts.
    return min(max_s, first_s * 2.0 ** min(failed, 60)) * (0.5 + jitter / 2)


class Backoff:
    """The waits of one loop that retries without end."""

    def __init__(
        self, rng: random.Random, first_s: float = FIRST_S, wait_max_s: float = MAX_S
    ) -> None:
        self._rng = rng
        self._first_s = first_s
        self._wait_max_s = wait_max_s
        self._failed = 0

    def next_s(self) -> float:
        """The wait before the next attempt."""
        self._failed += 1
        return backoff_s(self._failed - 1, self._rng.random(), self._first_s, self._wait_max_s)

    def reset(self) -> None:
        """Start over after a success."""
        self._failed = 0
