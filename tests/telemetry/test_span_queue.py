"""Ended spans leave by a thread that may hang, fail or be late: nobody waits for it."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.threads import SystemThreads
from hermes_actors.telemetry.span_queue import SpanQueue


class HandExporter(SpanExporter):
    """Takes spans when it may; `hangs` until the test says otherwise."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_asked = threading.Event()
        self.taken = 0
        self.error: Exception | None = None
        self.largest = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_asked.set()
        self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        self.largest = max(self.largest, len(spans))
        self.taken += len(spans)
        return SpanExportResult.SUCCESS


@pytest.fixture
def exporter() -> Iterator[HandExporter]:
    exporter = HandExporter()
    yield exporter
    exporter.may_go_on.set()


def opened(exporter: HandExporter, queue_max: int = 100) -> tuple[SpanQueue, Tracer]:
    queue = SpanQueue(exporter, SystemThreads(), queue_max=queue_max, batch_max=10, delay_s=0.01)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(queue)
    return queue, provider.get_tracer("test")


def test_all_that_ended_is_exported_at_the_end(exporter: HandExporter) -> None:
    queue, tracer = opened(exporter)
    for _ in range(95):
        tracer.start_span("a").end()
    queue.close(10)
    assert (exporter.taken, queue.exported, queue.dropped) == (95, 95, 0)
    assert exporter.largest <= 10


def test_a_million_spans_in_a_burst_are_bounded_and_each_is_accounted_for(
    exporter: HandExporter,
) -> None:
    exporter.may_go_on.clear()
    queue, tracer = opened(exporter)
    span: Any = tracer.start_span("a")
    span.end()
    assert exporter.is_asked.wait(10)
    for _ in range(1_000_000):
        queue.on_end(span)
    assert len(queue) == 100
    exporter.may_go_on.set()
    queue.close(10)
    assert queue.exported + queue.dropped == 1_000_001
    assert queue.dropped == 1_000_000 - 100


def test_an_exporter_that_hangs_holds_up_the_end_for_the_bound_only(exporter: HandExporter) -> None:
    exporter.may_go_on.clear()
    queue, tracer = opened(exporter)
    for _ in range(50):
        tracer.start_span("a").end()
    assert exporter.is_asked.wait(10)
    started_s = SystemClock().monotonic_s()
    queue.close(0.05)
    assert SystemClock().monotonic_s() - started_s < 5
    assert queue.dropped + queue.exported >= 40
    assert len(queue) == 0
    tracer.start_span("late").end()
    assert len(queue) == 0
    # A second end changes nothing, and what hung is let go.
    queue.close(0)
    exporter.may_go_on.set()


def test_an_exporter_that_raises_is_asked_again_and_told_of_once(
    exporter: HandExporter, caplog: pytest.LogCaptureFixture
) -> None:
    exporter.error = ValueError("no collector")
    queue, tracer = opened(exporter)
    for _ in range(20):
        tracer.start_span("a").end()
    while queue.failed < 20:
        threading.Event().wait(0.001)
    exporter.error = None
    tracer.start_span("a").end()
    queue.close(10)
    assert (queue.failed, queue.exported) == (20, 1)
    told = [record.getMessage() for record in caplog.records]
    assert [each.split(" (")[0] for each in told] == [
        "the collector does not take spans",
        "the collector takes spans again",
    ]


def test_threads_that_end_spans_at_once_lose_none(exporter: HandExporter) -> None:
    queue, tracer = opened(exporter, queue_max=50_000)

    def work(_: int) -> None:
        for _ in range(2_000):
            tracer.start_span("a").end()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    queue.close(30)
    assert queue.exported == 8_000
