"""How long to wait before the next try at a log that is down: jittered, bounded, for ever."""

import random


class Backoff:
    """Waits drawn from [½, 1] × min(max, first × 2ⁿ)."""

    def __init__(self, rng: random.Random, first_s: float = 0.05, wait_max_s: float = 2.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._wait_max_s = wait_max_s
        self._tries = 0

    def next_s(self) -> float:
        """The wait before the next try, in seconds."""
        ceiling_s = min(self._wait_max_s, self._first_s * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return ceiling_s * (0.5 + self._rng.random() / 2)

    def reset(self) -> None:
        """Start over after a try that worked: the next wait is a short one again."""
        self._tries = 0
