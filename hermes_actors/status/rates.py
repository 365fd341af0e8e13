"""Rates from counters: smoothed over the last seconds, in whole thousandths a second. Pure."""

import math
from collections.abc import Collection, Sequence

WINDOW_S = 10.0
"""Time constant: older changes weigh less than 37 %."""


class Rates:
    """The rates of several counters for each of many keys."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._meters: dict[str, _Meter] = {}
        self.total = 0
        """The sum of the first counter's rate over all keys."""

    def update(
        self, key: str, counts: Sequence[int], now_s: float, zero_s: float | None = None
    ) -> list[int]:
        """Update a key's counters and return its rates. A counter that has decreased has restarted
        from 0.

        The first call gives zero rates, unless the counters are known to have been 0 at `zero_s`.
        """
        meter = self._meters.get(key)
        if meter is None and zero_s is not None:
            meter = self._meters[key] = _Meter([0] * len(counts), zero_s)
        elif meter is None:
            meter = self._meters[key] = _Meter(counts, now_s)
            return [0] * len(counts)
        before = meter.first_rate
        rates = meter.update(counts, now_s, self._window_s)
        self.total += meter.first_rate - before
        return rates

    def keep_only(self, keys: Collection[str]) -> None:
        """Remove all other keys."""
        for key in [key for key in self._meters if key not in keys]:
            self.total -= self._meters.pop(key).first_rate


class _Meter:
    __slots__ = ("_at_s", "_counts", "_is_new", "_rates")

    def __init__(self, counts: Sequence[int], now_s: float) -> None:
        self._counts = counts
        self._at_s = now_s
        self._rates = [0.0] * len(counts)
        self._is_new = True

    @property
    def first_rate(self) -> int:
        return round(self._rates[0])

    def update(self, counts: Sequence[int], now_s: float, window_s: float) -> list[int]:
        elapsed_s = now_s - self._at_s
        if elapsed_s > 0:
            # The first difference is the rate itself: there is nothing to smooth it with.
            weight = 1.0 if self._is_new else 1.0 - math.exp(-elapsed_s / window_s)
            for at, count in enumerate(counts):
                grown = count - self._counts[at]
                rate = self._rates[at]
                if grown or rate:
                    now_rate = 1_000.0 * max(0, grown) / elapsed_s
                    self._rates[at] = rate + weight * (now_rate - rate)
            self._counts = counts
            self._at_s = now_s
            self._is_new = False
        return [round(rate) if rate >= 1 else 0 for rate in self._rates]
