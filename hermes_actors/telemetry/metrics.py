"""Counters, gauges and timers as plain numbers; rendered in Prometheus' text form when scraped.

A hot path keeps the child it was given and adds to it once for each batch: an addition is an
attribute increment. Nothing here is global: a node makes one Metrics and passes it in. Names are
given without prefix and with underscores (`topic_published`); the prefix is the registry's.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Labels = tuple[tuple[str, str], ...]

_QUANTILES = (0.5, 0.99, 0.999)
# Upper bounds of the timers' cells, 100 µs to one hour, each 20 % above the last: within that range
# a quantile is off by at most that.
_BOUNDS_S = tuple(1e-4 * 1.2**n for n in range(97))


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Count `count` more."""
        self.value += count


class Timer:
    """A distribution of durations in seconds, in cells 20 % wide; quantiles are upper bounds."""

    __slots__ = ("_cells", "count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._cells = [0] * (len(_BOUNDS_S) + 1)

    def observe(self, duration_s: float, count: int = 1) -> None:
        """Add `count` durations of the same length."""
        self.count += count
        self.sum_s += duration_s * count
        self._cells[bisect_left(_BOUNDS_S, duration_s)] += count

    def quantile_s(self, quantile: float) -> float:
        """An upper bound of the quantile (0…1) in seconds; 0 when nothing was observed."""
        if not self.count:
            return 0.0
        rank = quantile * self.count
        seen = 0
        for cell, count in enumerate(self._cells):
            seen += count
            if seen >= rank and count:
                return _BOUNDS_S[min(cell, len(_BOUNDS_S) - 1)]
        return _BOUNDS_S[-1]


class Sizes:
    """How many things there were and what they came to together, e.g. messages and their bytes."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0

    def add(self, count: int, total: int) -> None:
        """Add `count` things that come to `total` together."""
        self.count += count
        self.sum += total


class Metrics(Collector):
    """All metrics of one component of a node, under one prefix, e.g. `hermes_frontend`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._timers: dict[str, dict[Labels, Timer]] = {}
        self._sizes: dict[str, dict[Labels, Sizes]] = {}
        self._gauges: dict[str, dict[Labels, Callable[[], float]]] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name and labels, the same one each time; shown as `…_total`."""
        return self._counters.setdefault(name, {}).setdefault(_key(labels), Counter())

    def timer(self, name: str, **labels: str) -> Timer:
        """The timer of that name and labels; shown as `…_seconds` with quantiles."""
        return self._timers.setdefault(name, {}).setdefault(_key(labels), Timer())

    def sizes(self, name: str, **labels: str) -> Sizes:
        """The sizes of that name and labels; shown as a summary without quantiles."""
        return self._sizes.setdefault(name, {}).setdefault(_key(labels), Sizes())

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A number that is read when scraped; a later one of the same labels replaces it."""
        self._gauges.setdefault(name, {})[_key(labels)] = read

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all of these labels (a topic or subscription is gone)."""
        gone = set(labels.items())
        for families in (self._counters, self._timers, self._gauges, self._sizes):
            for children in families.values():
                for key in [key for key in children if gone <= set(key)]:
                    del children[key]

    def collect(self) -> Iterator[Metric]:
        """The families in prometheus_client's terms."""
        for name, counters in sorted(self._counters.items()):
            family = CounterMetricFamily(f"{self._prefix}_{name}", name)
            for key, counter in counters.items():
                family.samples.append(
                    Sample(f"{self._prefix}_{name}_total", dict(key), counter.value)
                )
            yield family
        for name, gauges in sorted(self._gauges.items()):
            gauge = GaugeMetricFamily(f"{self._prefix}_{name}", name)
            for key, read in gauges.items():
                gauge.samples.append(Sample(f"{self._prefix}_{name}", dict(key), read()))
            yield gauge
        for name, timers in sorted(self._timers.items()):
            yield _summary(f"{self._prefix}_{name}_seconds", name, timers)
        for name, children in sorted(self._sizes.items()):
            plain = SummaryMetricFamily(f"{self._prefix}_{name}", name)
            for key, each in children.items():
                labels = dict(key)
                plain.samples.append(Sample(f"{self._prefix}_{name}_count", labels, each.count))
                plain.samples.append(Sample(f"{self._prefix}_{name}_sum", labels, each.sum))
            yield plain


def render(parts: Iterable[Metrics]) -> bytes:
    """Prometheus' text form (version 0.0.4) of several components' metrics."""
    registry = CollectorRegistry(auto_describe=False)
    for part in parts:
        registry.register(part)
    return generate_latest(registry)


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _summary(name: str, help_text: str, timers: Mapping[Labels, Timer]) -> SummaryMetricFamily:
    family = SummaryMetricFamily(name, help_text)
    for key, timer in timers.items():
        labels = dict(key)
        for quantile in _QUANTILES:
            family.samples.append(
                Sample(name, {**labels, "quantile": str(quantile)}, timer.quantile_s(quantile))
            )
        family.samples.append(Sample(f"{name}_count", labels, timer.count))
        family.samples.append(Sample(f"{name}_sum", labels, timer.sum_s))
    return family
