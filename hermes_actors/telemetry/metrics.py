"""Counters, gauges and timers as plain numbers; rendered in Prometheus' text form when scraped.

A hot path keeps the child it was given and adds to it once for each batch: an addition is an
attribute increment. Nothing here is global: a node makes one Metrics and passes it in. Names are
given without prefix and with underscores (`topic_published`); the prefix is the registry's.
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


class Timer:
    """A distribution of durations in seconds, in cells 19 % wide; quantiles are upper bounds.

    Looking at it costs, adding to it does not: each look leaves a mark of what there was, and
    quantiles are of what came since the newest mark that is WINDOW_S old.
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


class Kind(StrEnum):
    """The kinds of metrics, by their Prometheus suffix."""

    COUNTER = "_total"
    GAUGE = ""
    TIMER = "_seconds"


Child = Counter | Timer | Callable[[], float]


class Slice(Struct, frozen=True):
    """Some of a family's children with their labels. A number is read when it is looked at."""

    kind: Kind
    name: str
    meaning: str
    is_first: bool
    children: list[tuple[Labels, Child]]

    def numbers(self) -> Iterator[tuple[Labels, float]]:
        """The values of counters and gauges."""
        for labels, child in self.children:
            if not isinstance(child, Timer):
                yield labels, child.value if isinstance(child, Counter) else child()

    def timers(self) -> Iterator[tuple[Labels, Timer]]:
        """The timers."""
        for labels, child in self.children:
            if isinstance(child, Timer):
                yield labels, child

    def family(self, now_s: float) -> Metric:
        """The slice in prometheus_client's terms."""
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
    """All metrics of one component of a node, under one prefix, e.g. `hermes_frontend`."""

    def __init__(
        self,
        prefix: str,
        now_s: Callable[[], float] = _CLOCK.monotonic_s,
        meanings: Meanings = MappingProxyType({}),
    ) -> None:
        """`now_s` is the monotonic clock by which timers look back; `meanings` are for HELP."""
        self._prefix = prefix
        self.now_s = now_s
        self._meanings = meanings
        self._families: dict[tuple[Kind, str], dict[Labels, Child]] = {}
        self._tables: dict[tuple[Kind, str], Rows] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name and labels, the same one each time; shown as `…_total`."""
        found = self._family(Kind.COUNTER, name).setdefault(_key(labels), Counter())
        assert isinstance(found, Counter), "this name is counted elsewhere"
        return found

    def counted(self, name: str) -> int:
        """All counters of that name together; those that were forgotten count no more."""
        found = self._family(Kind.COUNTER, name).values()
        return sum(each.value for each in found if isinstance(each, Counter))

    def timer(self, name: str, **labels: str) -> Timer:
        """The timer of that name and labels; shown as `…_seconds` with quantiles over
        the last minute, and with count and sum since the start.
        """
        found = self._family(Kind.TIMER, name).setdefault(_key(labels), Timer())
        assert isinstance(found, Timer)
        return found

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A number that is read when scraped; a later one of the same labels replaces it."""
        self._family(Kind.GAUGE, name)[_key(labels)] = read

    def total(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """As `gauge`, of a number that only grows, shown as `…_total`."""
        self._family(Kind.COUNTER, name)[_key(labels)] = read

    def gauges(self, name: str, read: Rows) -> None:
        """Numbers that somebody else keeps, all of a name, with their labels, read when scraped."""
        self._tables[Kind.GAUGE, name] = read

    def totals(self, name: str, read: Rows) -> None:
        """As `gauges`, of numbers that only grow, shown as `…_total`."""
        self._tables[Kind.COUNTER, name] = read

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all of these labels (a topic or subscription is gone)."""
        gone = set(labels.items())
        for children in self._families.values():
            for key in [key for key in children if gone <= set(key)]:
                del children[key]

    def collect(self) -> Iterator[Metric]:
        """The families in prometheus_client's terms."""
        for each in self.slices(sys.maxsize):
            yield each.family(self.now_s())

    def slices(self, children_max: int) -> Iterator[Slice]:
        """All metrics, at most that many children at a time.

        Metrics may come and go between two slices.
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
    """Prometheus' text form (version 0.0.4) of several components' metrics."""
    return b"".join(map(generate_latest, parts))


async def render_in_turns(parts: Iterable[Metrics]) -> bytes:
    """As `render`, with a turn for everything else on the loop every few milliseconds.

    At 10,000 topics rendering takes more than a second.
    """
    pieces = []
    for part in list(parts):
        for each in part.slices(_CHILDREN_A_TURN):
            piece = generate_latest(_Only(each.family(part.now_s())))
            # The lines with help and type stand once above each family.
            pieces.append(piece if each.is_first else piece.split(b"\n", 2)[2])
            await anyio.lowlevel.checkpoint()
    return b"".join(pieces)


class _Only(Collector):
    """One family as prometheus_client wants it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
