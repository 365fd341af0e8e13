"""Pushes the node's metrics to a collector, with an exporter of OpenTelemetry's SDK.

Counters become cumulative sums, gauges stay gauges, and timers become exponential histograms, which
can be summed over nodes. The SDK's own meters are not used: they cannot take over existing timers.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import trio
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
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
from hermes_actors.telemetry.metrics import SCALE, Kind, Metrics, Slice, Timer

_logger = logging.getLogger(__name__)

POINTS_MAX = 500
"""The points in one request. A thread encodes them in about 10 ms."""

LAST_S = 2.0
"""The time limit of the last push, when the node stops."""

_CHILDREN_A_TURN = 50
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_SCOPE = InstrumentationScope("hermes_actors", __version__)


class MetricPush:
    """Pushes all metrics every `interval_s`, and once more when the node stops."""

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
        """Push periodically until `stop` is set, then once more, within LAST_S."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._push_regularly)
            await stop.wait()
            # A push that hangs must not delay the stop.
            nursery.cancel_scope.cancel()
        with trio.move_on_after(LAST_S):
            await self.push()

    async def _push_regularly(self) -> None:
        while True:
            await trio.sleep(self._interval_s)
            await self.push()

    async def push(self) -> None:
        """Push all metrics now, at most about POINTS_MAX in a request. After a failure, the rest
        waits for the next push.
        """
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
        scoped = [ScopeMetrics(_SCOPE, metrics, "")]
        data = MetricsData([ResourceMetrics(self._resource, scoped, "")])
        result = await self._threads.run(lambda: self._exporter.export(data), self._limiter)
        is_taken = result is MetricExportResult.SUCCESS
        if is_taken:
            self.exported += points
        else:
            self.failed += points
        if self._is_failing == is_taken:
            self._is_failing = not is_taken
            _logger.warning("the collector %s metrics", "accepts" if is_taken else "rejects")
        return is_taken

    def _metrics(self, now_ns: int) -> Iterator[Metric]:
        for part in list(self._parts()):
            for each in part.slices(_CHILDREN_A_TURN):
                if each.children:
                    yield self._metric(each, now_ns)

    def _metric(self, each: Slice, now_ns: int) -> Metric:
        times = self._started_ns, now_ns
        if each.kind is Kind.TIMER:
            spread = [_spread(dict(labels), timer, times) for labels, timer in each.timers()]
            return Metric(each.name, each.meaning, "s", ExponentialHistogram(spread, _CUMULATIVE))
        points = [NumberDataPoint(dict(labels), *times, value) for labels, value in each.numbers()]
        if each.kind is Kind.COUNTER:
            total = Sum(points, _CUMULATIVE, is_monotonic=True)
            return Metric(each.name, each.meaning, "", total)
        return Metric(each.name, each.meaning, "", Gauge(points))


def _spread(
    labels: dict[str, str], timer: Timer, times: tuple[int, int]
) -> ExponentialHistogramDataPoint:
    offset, counts = timer.buckets()
    return ExponentialHistogramDataPoint(
        labels,
        *times,
        count=sum(counts),
        sum=timer.sum_s,
        scale=SCALE,
        zero_count=0,
        positive=Buckets(offset, counts),
        negative=Buckets(0, []),
        flags=0,
        # Timers do not record them.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )
