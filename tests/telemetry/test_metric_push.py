"""What is pushed to a collector is what Prometheus would have scraped."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.lowlevel
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.resources import Resource

from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.threads import SystemThreads
from hermes_actors.telemetry import metric_push
from hermes_actors.telemetry.metric_push import MetricPush
from hermes_actors.telemetry.metrics import SCALE, Metrics, Timer
from tests.otlp_collector import Collector, http_collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as collector:
        yield collector


def pushing(collector: Collector, *parts: Metrics, timeout_s: float = 10) -> MetricPush:
    return MetricPush(
        lambda: parts,
        OTLPMetricExporter(f"{collector.endpoint}/v1/metrics", timeout=timeout_s),
        Resource({"service.name": "hermes"}),
        SystemClock(),
        SystemThreads(),
        interval_s=0.01,
    )


def points(collector: Collector) -> dict[tuple[str, str], Any]:
    """The points by their metric and their topic."""
    return {
        (metric.name, next((a.value.string_value for a in point.attributes), "")): point
        for metric, _ in collector.metrics
        for point in getattr(metric, metric.WhichOneof("data")).data_points
    }


def some_metrics() -> Metrics:
    metrics = Metrics("hermes_frontend", meanings={"hermes_frontend_published": ("messages", "M")})
    for number in range(120):
        metrics.counter("published", topic=f"t{number}").add(number)
    metrics.gauge("lag", lambda: 2.5)
    metrics.timer("latency", topic="t").observe(0.1, 3)
    return metrics


async def test_each_metric_is_pushed_under_its_name_with_its_value(collector: Collector) -> None:
    push = pushing(collector, some_metrics())
    await push.push()
    found = points(collector)
    numbers = [found["hermes_frontend_published", f"t{number}"].as_int for number in range(120)]
    assert numbers == list(range(120))
    assert found["hermes_frontend_lag", ""].as_double == 2.5
    timer = found["hermes_frontend_latency_seconds", "t"]
    assert (timer.count, timer.scale, list(timer.positive.bucket_counts)) == (3, SCALE, [3])
    assert 2 ** (timer.positive.offset / 4) < 0.1 <= 2 ** ((timer.positive.offset + 1) / 4)
    (description,) = {
        metric.description for metric, _ in collector.metrics if metric.name.endswith("published")
    }
    assert description == "M; in messages."
    assert all(metric.sum.is_monotonic for metric, _ in collector.metrics if metric.HasField("sum"))
    assert (push.exported, push.failed) == (122, 0)


async def test_much_is_pushed_in_requests_of_a_bounded_size(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_push, "POINTS_MAX", 50)
    await pushing(collector, some_metrics()).push()
    assert collector.requests == 3
    assert len(points(collector)) == 122


async def test_the_last_push_is_at_the_end(collector: Collector) -> None:
    metrics = Metrics("hermes_frontend")
    push, stop = pushing(collector, metrics), trio.Event()
    push._interval_s = 3_600
    async with trio.open_nursery() as nursery:
        nursery.start_soon(push.run, stop)
        metrics.counter("published").add(7)
        stop.set()
    assert points(collector)["hermes_frontend_published", ""].as_int == 7


async def test_a_collector_that_refuses_is_counted_and_asked_again_later(
    collector: Collector,
) -> None:
    collector.answer = 400
    push = pushing(collector, some_metrics())
    await push.push()
    assert (push.exported, push.failed) == (0, 122)
    collector.answer = 200
    await push.push()
    assert push.exported == 122


async def test_a_collector_that_hangs_keeps_nobody_waiting(collector: Collector) -> None:
    collector.may_answer.clear()
    push = pushing(collector, some_metrics())
    turns = 0
    with trio.move_on_after(0.1) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(push.run, trio.Event())
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1
    assert scope.cancelled_caught
    assert turns > 50
    assert push.exported == 0


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=30))
def test_a_timers_buckets_hold_each_duration_in_its_place(durations: list[float]) -> None:
    timer = Timer()
    for each in durations:
        timer.observe(each)
    offset, counts = timer.buckets()
    assert sum(counts) == len(durations)
    assert counts[0]
    assert counts[-1]
    for at, count in enumerate(counts):
        low, high = 2 ** ((offset + at) / 4), 2 ** ((offset + at + 1) / 4)
        is_first, is_last = offset + at == -55, offset + at == 48
        inside = [
            each for each in durations if (is_first or each > low) and (is_last or each <= high)
        ]
        assert len(inside) == count


def test_a_timer_that_saw_nothing_has_no_buckets() -> None:
    assert Timer().buckets() == (0, [])
