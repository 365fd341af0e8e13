"""The metrics of a node on their way to a collector: the same ones that Prometheus scrapes.

Nothing is counted a second time. Counters become cumulative sums, gauges gauges, timers exponential
histograms, which several nodes' can be added up.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import trio
from opentelemetry.sdk.metrics._internal.exemplar import Exemplar as SdkExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from hermes_actors import __version__
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.threads import Threads
from hermes_actors.telemetry.metrics import SCALE, Exemplar, Labels, Metrics, Sizes, Timer
from hermes_actors.telemetry.span_queue import REST

_logger = logging.getLogger(__name__)

POINTS_MAX = 500
"""Points of one request; as many are encoded at once, in some 10 ms of a thread."""

LAST_S = 2.0
"""How long the last push of a node that stops may take."""

_CHILDREN_A_TURN = 50
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_SCOPE = InstrumentationScope("hermes_actors", __version__)


class MetricPush:
    """Pushes all metrics each `interval_s`, and once more when it is asked to stop.

    A collector that does not take one request is sent the rest again with the next push.
    """

    def __init__(
        self,
        parts: Callable[[], Sequence[Metrics]],
        exporter: MetricExporter,
        resource: Resource,
        clock: Clock,
        threads: Threads,
        *,
        interval_s: float,
    ) -> None:
        self.exported = self.failed = 0
        self._parts = parts
        self._exporter = exporter
        self._resource = resource
        self._clock = clock
        self._threads = threads
        self._interval_s = interval_s
        self._started_ns = clock.now_ms() * 1_000_000
        self._limiter = trio.CapacityLimiter(1)
        self._is_failing = False

    async def run(self, stop: trio.Event) -> None:
        """Push until asked to stop, and then once more, for LAST_S at most."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._push_regularly)
            await stop.wait()
            # One that hangs has no time left.
            nursery.cancel_scope.cancel()
        with trio.move_on_after(LAST_S):
            await self.push()

    async def _push_regularly(self) -> None:
        while True:
            await trio.sleep(self._interval_s)
            await self.push()

    async def push(self) -> None:
        """Push all metrics as they are now, a few at a time, with turns for everybody else."""
        now_ns = self._clock.now_ms() * 1_000_000
        waiting: list[Metric] = []
        points = 0
        for metric in self._metrics(now_ns):
            waiting.append(metric)
            points += len(metric.data.data_points)
            await trio.lowlevel.checkpoint()
            if points >= POINTS_MAX:
                if not await self._send(waiting, points):
                    return
                waiting, points = [], 0
        if waiting:
            await self._send(waiting, points)

    async def _send(self, metrics: Sequence[Metric], points: int) -> bool:
        data = MetricsData(
            [ResourceMetrics(self._resource, [ScopeMetrics(_SCOPE, metrics, "")], "")]
        )

        def export() -> tuple[bool, float]:
            before_s = self._threads.cpu_s()
            result = self._exporter.export(data)
            return result is MetricExportResult.SUCCESS, self._threads.cpu_s() - before_s

        is_taken, cpu_s = await self._threads.run(export, self._limiter)
        if is_taken:
            self.exported += points
        else:
            self.failed += points
        if self._is_failing == is_taken:
            self._is_failing = not is_taken
            _logger.warning(
                "the collector takes metrics again"
                if is_taken
                else "the collector does not take metrics (OTEL_EXPORTER_OTLP_ENDPOINT)"
            )
        await trio.sleep(REST * cpu_s)
        return is_taken

    def _metrics(self, now_ns: int) -> Iterator[Metric]:
        """All metrics, in pieces of at most _CHILDREN_A_TURN points."""
        for part in list(self._parts()):
            for _, family in part.numbers(_CHILDREN_A_TURN):
                points = [
                    NumberDataPoint(each.labels, self._started_ns, now_ns, each.value)
                    for each in family.samples
                ]
                if points and family.type == "counter":
                    total = Sum(points, _CUMULATIVE, is_monotonic=True)
                    yield Metric(family.name, family.documentation, "", total)
                elif points:
                    yield Metric(family.name, family.documentation, "", Gauge(points))
            for name, meaning, timers in part.timers(_CHILDREN_A_TURN):
                for _, timed in timers:
                    if timed:
                        spread = [self._spread(*each, now_ns) for each in timed]
                        data = ExponentialHistogram(spread, _CUMULATIVE)
                        yield Metric(name, meaning, "s", data)
            for name, meaning, sizes in part.all_sizes(_CHILDREN_A_TURN):
                for _, sized in sizes:
                    if sized:
                        summed = [self._summed(*each, now_ns) for each in sized]
                        yield Metric(name, meaning, "By", Histogram(summed, _CUMULATIVE))

    def _spread(self, labels: Labels, timer: Timer, now_ns: int) -> ExponentialHistogramDataPoint:
        offset, counts = timer.buckets()
        return ExponentialHistogramDataPoint(
            dict(labels),
            self._started_ns,
            now_ns,
            sum(counts),
            timer.sum_s,
            SCALE,
            0,
            Buckets(offset, counts),
            Buckets(0, []),
            0,
            # Nobody keeps them.
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            [] if timer.exemplar is None else [_exemplar(timer.exemplar)],
        )

    def _summed(self, labels: Labels, sizes: Sizes, now_ns: int) -> HistogramDataPoint:
        return HistogramDataPoint(
            dict(labels),
            self._started_ns,
            now_ns,
            sizes.count,
            sizes.sum,
            [sizes.count],
            [],
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
        )


def _exemplar(exemplar: Exemplar) -> SdkExemplar:
    return SdkExemplar({}, exemplar.duration_s, exemplar.at_ns, exemplar.span_id, exemplar.trace_id)
