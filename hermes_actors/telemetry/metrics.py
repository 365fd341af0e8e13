"""Counters, gauges and timers as plain numbers; rendered in Prometheus' text form when scraped.

A hot path keeps the child it was given and adds to it once for each batch: an addition is an
attribute increment. Nothing here is global: a node makes one Metrics and passes it in. Names are
given without prefix and with underscores (`topic_published`); the prefix is the registry's.
"""

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import exp2, isnan, nan
from types import MappingProxyType
from typing import TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from hermes_actors.runtime.clock import SystemClock

T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
Slices = Iterator[tuple[bool, list[tuple[Labels, T]]]]
"""(is it the first slice, some children with their labels)"""

Meanings = Mapping[str, tuple[str, str]]
"""The unit and the meaning of each metric, by its name as it is shown, without `_total`."""


_QUANTILES = (0.5, 0.99, 0.999)
_RECENT = (0.5, 0.99)
_CHILDREN_A_TURN = 50
SCALE = 2
"""Cells of timers are those of OpenTelemetry's exponential histograms of this scale: each is wider
by 2^(1/4), some 19 %, than the one before."""

# Upper bounds of the timers' cells, 90 µs to an hour: within that range a quantile is off by at
# most a cell.
_FIRST = -54
_BOUNDS_S = tuple(exp2(n / 2**SCALE) for n in range(_FIRST, 49))


WINDOW_S = 60.0
"""How far back the quantiles of timers look."""

_MARK_INTERVAL_S = 10.0
_CLOCK = SystemClock()


def meanings(prefix: str, **families: tuple[str, str]) -> Meanings:
    """Return the unit and meaning of each of a package's metrics, by its name with the prefix."""
    return {f"{prefix}_{name}": family for name, family in families.items()}


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Count `count` more."""
        self.value += count


class RecentLatency:
    """How long half of what a timer observed in the last minute took at most, and 99 % of it."""

    __slots__ = ("_latency_ms", "_looked_s", "_timer")

    def __init__(self, timer: "Timer") -> None:
        self._timer = timer
        self._latency_ms: tuple[float, float] | None = None
        self._looked_s = -_MARK_INTERVAL_S

    def ms(self, now_s: float) -> tuple[float, float] | None:
        """Both in milliseconds, looked at each few seconds, for looking costs; None when there was
        nothing.
        """
        if now_s - self._looked_s >= _MARK_INTERVAL_S:
            self._looked_s = now_s
            p50, p99 = (round(1_000 * each, 1) for each in self._timer.quantiles_s(_RECENT, now_s))
            self._latency_ms = None if isnan(p99) else (p50, p99)
        return self._latency_ms


class _Mark(Struct, frozen=True):
    """The counts of a timer at one moment, to which later ones are compared."""

    at_s: float
    count: int
    cells: Sequence[int]


_START = _Mark(0.0, 0, ())


class Exemplar(Struct, frozen=True, gc=False):
    """One duration with the span that it is of; when, in nanoseconds of the Unix epoch."""

    duration_s: float
    trace_id: int
    span_id: int
    at_ns: int


class Timer:
    """A distribution of durations in seconds, in cells 19 % wide; quantiles are upper bounds.
    `exemplar` is the last one that was traced.

    Looking at it costs, adding to it does not: each look leaves a mark of what there was, and
    quantiles are of what came since the newest mark that is WINDOW_S old.
    """

    __slots__ = ("_cells", "_marks", "count", "exemplar", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self.exemplar: Exemplar | None = None
        self._cells = [0] * (len(_BOUNDS_S) + 1)
        self._marks: deque[_Mark] = deque()

    def observe(self, duration_s: float, count: int = 1) -> None:
        """Add `count` durations of the same length."""
        self.count += count
        self.sum_s += duration_s * count
        self._cells[bisect_left(_BOUNDS_S, duration_s)] += count

    def buckets(self) -> tuple[int, list[int]]:
        """Return what was observed since the start as an exponential histogram of SCALE: the index
        of the first bucket, and the counts from there on.
        """
        cells = self._cells
        filled = [at for at, count in enumerate(cells) if count]
        if not filled:
            return 0, []
        # Bucket i ends at 2^((i + 1) / 4), a cell at the bound of its own place.
        return filled[0] + _FIRST - 1, cells[filled[0] : filled[-1] + 1]

    def quantiles_s(self, quantiles: Sequence[float], now_s: float) -> list[float]:
        """Upper bounds of the quantiles (0…1) in seconds over the last minute; NaN where nothing
        was observed in it. Where nobody looked in that minute: since the last look before.
        """
        marks = self._marks
        while len(marks) > 1 and now_s - marks[1].at_s >= WINDOW_S:
            marks.popleft()
        before = marks[0] if marks and now_s - marks[0].at_s >= WINDOW_S else _START
        if not marks or now_s - marks[-1].at_s >= _MARK_INTERVAL_S:
            is_same = bool(marks) and marks[-1].count == self.count
            marks.append(_Mark(now_s, self.count, marks[-1].cells if is_same else [*self._cells]))
        return [self._quantile_s(each, before) for each in quantiles]

    def _quantile_s(self, quantile: float, before: "_Mark") -> float:
        rank = quantile * (self.count - before.count)
        if not rank:
            return nan
        seen = 0
        for cell, (count, old) in enumerate(zip_longest(self._cells, before.cells, fillvalue=0)):
            seen += count - old
            if seen >= rank and count > old:
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

    def __init__(
        self,
        prefix: str,
        now_s: Callable[[], float] = _CLOCK.monotonic_s,
        meanings: Meanings = MappingProxyType({}),
    ) -> None:
        """`now_s` is the monotonic clock by which timers look back; `meanings` are for HELP."""
        self._prefix = prefix
        self._now_s = now_s
        self._meanings = meanings
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._timers: dict[str, dict[Labels, Timer]] = {}
        self._sizes: dict[str, dict[Labels, Sizes]] = {}
        self._gauges: dict[str, dict[Labels, Callable[[], float]]] = {}
        self._totals: dict[str, dict[Labels, Callable[[], float]]] = {}
        self._tables: dict[str, Callable[[], Iterable[tuple[Mapping[str, str], float]]]] = {}
        self._total_tables: dict[str, Callable[[], Iterable[tuple[Mapping[str, str], float]]]] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name and labels, the same one each time; shown as `…_total`."""
        return self._counters.setdefault(name, {}).setdefault(_key(labels), Counter())

    def counted(self, name: str) -> int:
        """All counters of that name together; those that were forgotten count no more."""
        return sum(each.value for each in self._counters.get(name, {}).values())

    def timer(self, name: str, **labels: str) -> Timer:
        """The timer of that name and labels; shown as `…_seconds` with quantiles over
        the last minute, and with count and sum since the start.
        """
        return self._timers.setdefault(name, {}).setdefault(_key(labels), Timer())

    def sizes(self, name: str, **labels: str) -> Sizes:
        """The sizes of that name and labels; shown as a summary without quantiles."""
        return self._sizes.setdefault(name, {}).setdefault(_key(labels), Sizes())

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A number that is read when scraped; a later one of the same labels replaces it."""
        self._gauges.setdefault(name, {})[_key(labels)] = read

    def gauges(
        self, name: str, read: Callable[[], Iterable[tuple[Mapping[str, str], float]]]
    ) -> None:
        """Numbers that somebody else keeps, all of a name, with their labels, read when scraped."""
        self._tables[name] = read

    def totals(
        self, name: str, read: Callable[[], Iterable[tuple[Mapping[str, str], float]]]
    ) -> None:
        """As `gauges`, of numbers that only grow, shown as `…_total`."""
        self._total_tables[name] = read

    def total(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A number that only grows and that somebody else counts, read when scraped and shown as
        `…_total`; a later one of the same labels replaces it. Not for a `counter`'s name.
        """
        assert name not in self._counters, "this name is counted here"
        self._totals.setdefault(name, {})[_key(labels)] = read

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all of these labels (a topic or subscription is gone)."""
        gone = set(labels.items())
        kinds = (self._counters, self._totals, self._timers, self._gauges, self._sizes)
        for families in kinds:
            for children in families.values():
                for key in [key for key in children if gone <= set(key)]:
                    del children[key]

    def collect(self) -> Iterator[Metric]:
        """The families in prometheus_client's terms."""
        for _, family in self.slices(sys.maxsize):
            yield family

    def slices(self, children_max: int) -> Iterator[tuple[bool, Metric]]:
        """(is its family's first, a family with at most that many children), all of them.

        Metrics may come and go between two slices.
        """
        yield from self.numbers(children_max)
        for name, help_text, timers in self.timers(children_max):
            for is_first, timed in timers:
                yield is_first, _summary(name, help_text, timed, self._now_s())
        for name, help_text, sizes in self.all_sizes(children_max):
            for is_first, sized in sizes:
                plain = SummaryMetricFamily(name, help_text)
                for key, each in sized:
                    labels = dict(key)
                    plain.samples.append(Sample(f"{name}_count", labels, each.count))
                    plain.samples.append(Sample(f"{name}_sum", labels, each.sum))
                yield is_first, plain

    def timers(self, children_max: int) -> Iterator[tuple[str, str, Slices[Timer]]]:
        """(name, help, its timers in slices of at most that many), of all families of timers."""
        for name, timers in sorted(self._timers.items()):
            yield *self._head(f"{name}_seconds"), _sliced(timers, children_max)

    def all_sizes(self, children_max: int) -> Iterator[tuple[str, str, Slices[Sizes]]]:
        """As `timers`, of all families of sizes."""
        for name, sizes in sorted(self._sizes.items()):
            yield *self._head(name), _sliced(sizes, children_max)

    def numbers(self, children_max: int) -> Iterator[tuple[bool, Metric]]:
        """As `slices`, of counters and gauges alone."""
        for name, counters in sorted(self._counters.items()):
            for is_first, some in _sliced(counters, children_max):
                family = CounterMetricFamily(*self._head(name))
                for key, counter in some:
                    family.samples.append(
                        Sample(f"{self._prefix}_{name}_total", dict(key), counter.value)
                    )
                yield is_first, family
        for make, suffix, families in (
            (CounterMetricFamily, "_total", self._totals),
            (GaugeMetricFamily, "", self._gauges),
        ):
            for name, readings in sorted(families.items()):
                for is_first, reads in _sliced(readings, children_max):
                    shown: Metric = make(*self._head(name))
                    for key, read in reads:
                        sample = Sample(f"{self._prefix}_{name}{suffix}", dict(key), read())
                        shown.samples.append(sample)
                    yield is_first, shown
        for make, suffix, tables in (
            (CounterMetricFamily, "_total", self._total_tables),
            (GaugeMetricFamily, "", self._tables),
        ):
            for name, table in sorted(tables.items()):
                rows = {_key(labels): number for labels, number in table()}
                for is_first, numbers in _sliced(rows, children_max):
                    levels: Metric = make(*self._head(name))
                    for key, number in numbers:
                        sample = Sample(f"{self._prefix}_{name}{suffix}", dict(key), number)
                        levels.samples.append(sample)
                    yield is_first, levels

    def _head(self, name: str) -> tuple[str, str]:
        """The name as it is shown, and what it means."""
        shown = f"{self._prefix}_{name}"
        unit, meaning = self._meanings.get(shown, ("", ""))
        return shown, f"{meaning}; in {unit}." if meaning else shown


def render(parts: Iterable[Metrics]) -> bytes:
    """Prometheus' text form (version 0.0.4) of several components' metrics."""
    registry = CollectorRegistry(auto_describe=False)
    for part in parts:
        registry.register(part)
    return generate_latest(registry)


async def render_in_turns(parts: Iterable[Metrics]) -> bytes:
    """Render as `render` does, with a turn for everybody else on the loop every few milliseconds.

    At 10,000 topics `render` takes more than a second, in which nobody would be answered.
    """
    pieces = []
    for part in list(parts):
        for is_first, family in part.slices(_CHILDREN_A_TURN):
            piece = generate_latest(_Only(family))
            # The lines with help and type stand once above each family.
            pieces.append(piece if is_first else piece.split(b"\n", 2)[2])
            await anyio.lowlevel.checkpoint()
    return b"".join(pieces)


class _Only(Collector):
    """One family as prometheus_client wants it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _sliced(
    children: Mapping[Labels, T], children_max: int
) -> Iterator[tuple[bool, list[tuple[Labels, T]]]]:
    items = list(children.items())
    for at in range(0, max(len(items), 1), children_max):
        yield at == 0, items[at : at + children_max]


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _summary(
    name: str, help_text: str, timers: Iterable[tuple[Labels, Timer]], now_s: float
) -> SummaryMetricFamily:
    family = SummaryMetricFamily(name, help_text)
    for key, timer in timers:
        labels = dict(key)
        for quantile, bound_s in zip(_QUANTILES, timer.quantiles_s(_QUANTILES, now_s), strict=True):
            family.samples.append(Sample(name, {**labels, "quantile": str(quantile)}, bound_s))
        family.samples.append(Sample(f"{name}_count", labels, timer.count))
        family.samples.append(Sample(f"{name}_sum", labels, timer.sum_s))
    return family
