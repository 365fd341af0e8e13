"""Counters, gauges and timers as plain numbers, rendered in Prometheus' text format when scraped.

Hot paths keep their counters and timers, and add to them once per batch, which is cheap. Nothing
here is global: each component of a node has its own Metrics. The names of metrics are given without
prefix and with underscores (`topic_published`); Metrics adds its prefix.
"""

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from math import exp2, isnan, nan
from types import MappingProxyType

import anyio.lowlevel
from msgspec import Struct
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from hermes_actors.runtime.clock import SystemClock

Labels = tuple[tuple[str, str], ...]
Rows = Callable[[], Iterable[tuple[Mapping[str, str], float]]]

Meanings = Mapping[str, tuple[str, str]]
"""The unit and the meaning of each metric, by its full name without `_total`."""

_QUANTILES = (0.5, 0.99, 0.999)
_RECENT = (0.5, 0.99)
_CHILDREN_A_TURN = 50
SCALE = 2
"""The cells of timers are the buckets of OpenTelemetry's exponential histograms of this scale. Each
is wider than the one before by 2^(1/4), about 19 %.
"""

# The upper bounds of the timers' cells, 90 µs to an hour. In this range, the error of a quantile is
# at most one cell.
_FIRST = -54
_BOUNDS_S = tuple(exp2(n / 2**SCALE) for n in range(_FIRST, 49))

WINDOW_S = 60.0
"""The period that the quantiles of timers cover."""

_MARK_INTERVAL_S = 10.0
_CLOCK = SystemClock()


def meanings(prefix: str, **families: tuple[str, str]) -> Meanings:
    """Add the prefix to the names of a package's metrics: name=(unit, meaning)."""
    return {f"{prefix}_{name}": family for name, family in families.items()}


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Add `count`."""
        self.value += count


class RecentLatency:
    """The median and the 99th percentile of a timer over the last minute, cached for 10 s."""

    __slots__ = ("_latency_ms", "_looked_s", "_timer")

    def __init__(self, timer: "Timer") -> None:
        self._timer = timer
        self._latency_ms: tuple[float, float] | None = None
        self._looked_s = -_MARK_INTERVAL_S

    def ms(self, now_s: float) -> tuple[float, float] | None:
        """Both in milliseconds. None if nothing was observed."""
        if now_s - self._looked_s >= _MARK_INTERVAL_S:
            self._looked_s = now_s
            p50, p99 = (round(1_000 * each, 1) for each in self._timer.quantiles_s(_RECENT, now_s))
            self._latency_ms = None if isnan(p99) else (p50, p99)
        return self._latency_ms


class _Mark(Struct, frozen=True):
    """The counts of a timer at one time, which are subtracted from later ones."""

    at_s: float
    count: int
    cells: Sequence[int]


_START = _Mark(0.0, 0, ())


class Timer:
    """A distribution of durations in seconds, in cells 19 % wide. Quantiles are upper bounds.

    Adding is cheap, computing quantiles is not. A computation stores a mark (a copy of the counts)
    every 10 s; quantiles are of the durations since the newest mark that is WINDOW_S old.
    """

    __slots__ = ("_cells", "_marks", "count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._cells = [0] * (len(_BOUNDS_S) + 1)
        self._marks: deque[_Mark] = deque()

    def observe(self, duration_s: float, count: int = 1) -> None:
        """Add `count` durations of the same length."""
        self.count += count
        self.sum_s += duration_s * count
        self._cells[bisect_left(_BOUNDS_S, duration_s)] += count

    def buckets(self) -> tuple[int, list[int]]:
        """All observations as an exponential histogram of SCALE: the index of its first bucket, and
        the counts from there on.
        """
        cells = self._cells
        filled = [at for at, count in enumerate(cells) if count]
        if not filled:
            return 0, []
        # Bucket i ends at 2^((i + 1) / 4), cell i at _BOUNDS_S[i].
        return filled[0] + _FIRST - 1, cells[filled[0] : filled[-1] + 1]

    def quantiles_s(self, quantiles: Sequence[float], now_s: float) -> list[float]:
        """Upper bounds of the quantiles (0…1) over the last minute, in seconds. NaN if nothing was
        observed. If the last call was longer ago, they cover the time since that call.
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


class Kind(StrEnum):
    """The kinds of metrics. The values are the suffixes of their names in Prometheus."""

    COUNTER = "_total"
    GAUGE = ""
    TIMER = "_seconds"


Child = Counter | Timer | Callable[[], float]


class Slice(Struct, frozen=True):
    """Some children (labelled values) of a family (metric). Values are read on access."""

    kind: Kind
    name: str
    meaning: str
    is_first: bool
    children: list[tuple[Labels, Child]]

    def numbers(self) -> Iterator[tuple[Labels, float]]:
        """The counters and gauges, with their labels."""
        for labels, child in self.children:
            if not isinstance(child, Timer):
                yield labels, child.value if isinstance(child, Counter) else child()

    def timers(self) -> Iterator[tuple[Labels, Timer]]:
        """The timers, with their labels."""
        for labels, child in self.children:
            if isinstance(child, Timer):
                yield labels, child

    def family(self, now_s: float) -> Metric:
        """The slice as a metric of prometheus_client."""
        name = self.name
        if self.kind is not Kind.TIMER:
            make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
            numbers: Metric = make(name, self.meaning)
            for labels, value in self.numbers():
                numbers.samples.append(Sample(name + self.kind, dict(labels), value))
            return numbers
        summary = SummaryMetricFamily(name, self.meaning)
        for key, timer in self.timers():
            labels_of = dict(key)
            for quantile, bound_s in zip(
                _QUANTILES, timer.quantiles_s(_QUANTILES, now_s), strict=True
            ):
                shown = {**labels_of, "quantile": str(quantile)}
                summary.samples.append(Sample(name, shown, bound_s))
            summary.samples.append(Sample(f"{name}_count", labels_of, timer.count))
            summary.samples.append(Sample(f"{name}_sum", labels_of, timer.sum_s))
        return summary


class Metrics(Collector):
    """All metrics of one component of a node, with one prefix, for example `hermes_frontend`."""

    def __init__(
        self,
        prefix: str,
        now_s: Callable[[], float] = _CLOCK.monotonic_s,
        meanings: Meanings = MappingProxyType({}),
    ) -> None:
        """`now_s`: the monotonic clock for the quantiles of timers. `meanings`: for HELP lines."""
        self._prefix = prefix
        self.now_s = now_s
        self._meanings = meanings
        self._families: dict[tuple[Kind, str], dict[Labels, Child]] = {}
        self._tables: dict[tuple[Kind, str], Rows] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name and labels, created by the first call. Shown as `…_total`."""
        found = self._family(Kind.COUNTER, name).setdefault(_key(labels), Counter())
        assert isinstance(found, Counter), "this name is counted elsewhere"
        return found

    def counted(self, name: str) -> int:
        """The sum of all counters of that name, without forgotten ones."""
        found = self._family(Kind.COUNTER, name).values()
        return sum(each.value for each in found if isinstance(each, Counter))

    def timer(self, name: str, **labels: str) -> Timer:
        """The timer of that name and labels, created by the first call. Shown as `…_seconds`, with
        quantiles over the last minute, and count and sum since the start.
        """
        found = self._family(Kind.TIMER, name).setdefault(_key(labels), Timer())
        assert isinstance(found, Timer)
        return found

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Add a number that is read when scraped. It replaces one with the same labels."""
        self._family(Kind.GAUGE, name)[_key(labels)] = read

    def total(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """As `gauge`, for a number that only grows. Shown as `…_total`."""
        self._family(Kind.COUNTER, name)[_key(labels)] = read

    def gauges(self, name: str, read: Rows) -> None:
        """Add all numbers of a name, with their labels. `read` is called when scraped."""
        self._tables[Kind.GAUGE, name] = read

    def totals(self, name: str, read: Rows) -> None:
        """As `gauges`, for numbers that only grow. Shown as `…_total`."""
        self._tables[Kind.COUNTER, name] = read

    def forget(self, **labels: str) -> None:
        """Drop all metrics that have all of these labels, for example of a deleted topic."""
        gone = set(labels.items())
        for children in self._families.values():
            for key in [key for key in children if gone <= set(key)]:
                del children[key]

    def collect(self) -> Iterator[Metric]:
        """All families as metrics of prometheus_client."""
        for each in self.slices(sys.maxsize):
            yield each.family(self.now_s())

    def slices(self, children_max: int) -> Iterator[Slice]:
        """All metrics, with at most `children_max` children per slice.

        Metrics may be added and dropped between two slices.
        """
        for kind, name in sorted({**self._families, **self._tables}):
            children = self._families.get((kind, name), {})
            if (kind, name) in self._tables:
                rows = self._tables[kind, name]()
                children = {_key(labels): lambda value=value: value for labels, value in rows}  # type: ignore[misc]
            shown = f"{self._prefix}_{name}" + (kind if kind is Kind.TIMER else "")
            unit, meaning = self._meanings.get(shown, ("", ""))
            help_text = f"{meaning}; in {unit}." if meaning else shown
            items = list(children.items())
            for at in range(0, max(len(items), 1), children_max):
                yield Slice(kind, shown, help_text, at == 0, items[at : at + children_max])

    def _family(self, kind: Kind, name: str) -> dict[Labels, Child]:
        return self._families.setdefault((kind, name), {})


def render(parts: Iterable[Metrics]) -> bytes:
    """The metrics of several components in Prometheus' text format (version 0.0.4)."""
    return b"".join(map(generate_latest, parts))


async def render_in_turns(parts: Iterable[Metrics]) -> bytes:
    """As `render`, but yields to other tasks every few milliseconds: with 10,000 topics, rendering
    takes more than a second.
    """
    pieces = []
    for part in list(parts):
        for each in part.slices(_CHILDREN_A_TURN):
            piece = generate_latest(_Only(each.family(part.now_s())))
            # HELP and TYPE lines appear only once per family.
            pieces.append(piece if each.is_first else piece.split(b"\n", 2)[2])
            await anyio.lowlevel.checkpoint()
    return b"".join(pieces)


class _Only(Collector):
    """A collector of one family, as prometheus_client expects it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
