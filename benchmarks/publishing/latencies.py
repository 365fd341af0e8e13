"""Latencies with exact quantiles."""

import math
from array import array
from typing import Any


class Latencies:
    """The measured times, neither rounded nor in buckets."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._counts = array("q")

    def record(self, seconds: float, count: int = 1) -> None:
        """`count` messages took this long."""
        self._seconds.append(seconds)
        self._counts.append(count)

    @property
    def count(self) -> int:
        """The number of measured messages."""
        return sum(self._counts)

    def quantiles_ms(self, *quantiles: float) -> list[float | None]:
        """The smallest latency that this share of the messages does not exceed; None
        without any.
        """
        total = self.count
        if not total:
            return [None] * len(quantiles)
        ordered = sorted(zip(self._seconds, self._counts, strict=True))
        # In binary 0.99 * 100 is 99.00000000000001, which must not raise the rank.
        ranks = [max(1, math.ceil(round(each * total, 6))) for each in quantiles]
        found: dict[int, float] = {}
        passed = 0
        for seconds, count in ordered:
            passed += count
            for rank in ranks:
                if rank not in found and passed >= rank:
                    found[rank] = seconds
        return [found[rank] * 1_000 for rank in ranks]

    def summary(self) -> dict[str, Any]:
        """p50, p99, p99.9 and the maximum in ms, rounded to µs."""
        names = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
        values = self.quantiles_ms(*names.values())
        return {
            name: None if value is None else round(value, 3)
            for name, value in zip(names, values, strict=True)
        }
