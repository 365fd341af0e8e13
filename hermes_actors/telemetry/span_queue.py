"""Ended spans on their way out: a bounded queue, and a thread that exports what is in it."""

import logging
import threading
from collections import deque

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from hermes_actors.runtime.threads import Threads

_logger = logging.getLogger(__name__)

REST = 4.0
"""The thread rests this many times as long as an export took of the CPU, so that it never has more
than a fifth of the interpreter, which the event loop needs."""


class SpanQueue(SpanProcessor):
    """Spans wait here for an exporter, at most `queue_max` of them: more are dropped and counted.

    The SDK's own processor counts no drops, exports as fast as it can, which keeps the loop waiting
    for the interpreter, and waits 30 seconds at its end. Nothing is lost but spans if the exporter
    hangs or fails: nobody waits for it.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        threads: Threads,
        *,
        queue_max: int,
        batch_max: int,
        delay_s: float,
    ) -> None:
        self.exported = self.failed = self.dropped = 0
        self._exporter = exporter
        self._threads = threads
        self._queue: deque[ReadableSpan] = deque()
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._delay_s = delay_s
        self._is_stopping = False
        self._is_given_up = False
        self._is_failing = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="span exporter", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queue)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take an ended span; never waits."""
        queue = self._queue
        if self._is_stopping or len(queue) >= self._queue_max:
            self.dropped += 1
            return
        queue.append(span)
        if len(queue) == self._batch_max:
            self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Export what waits, for so long at most; the rest is dropped. Waits for that long,
        so not on the loop. The second call does nothing.
        """
        if self._is_given_up:
            return
        self._is_stopping = True
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        # An exporter that hangs keeps its daemon thread, and nobody else.
        self._is_given_up = True
        self.dropped += len(self._queue)
        self._queue.clear()
        if timeout_s or not self._thread.is_alive():
            # Also one that is still exporting: it then gives up.
            self._exporter.shutdown()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(self._delay_s)
            self._wake.clear()
            self._drain()
        self._drain()

    def _drain(self) -> None:
        queue = self._queue
        while queue and not self._is_given_up:
            batch = [queue.popleft() for _ in range(min(len(queue), self._batch_max))]
            before_s = self._threads.cpu_s()
            try:
                result = self._exporter.export(batch)
            # It is not ours, and the thread has to go on.
            except Exception as error:  # noqa: BLE001
                _logger.debug("spans are not exported: %s", error)
                result = SpanExportResult.FAILURE
            is_taken = result is SpanExportResult.SUCCESS
            if is_taken:
                self.exported += len(batch)
            else:
                self.failed += len(batch)
            if self._is_failing == is_taken:
                self._is_failing = not is_taken
                _logger.warning(
                    "the collector takes spans again"
                    if is_taken
                    else "the collector does not take spans (OTEL_EXPORTER_OTLP_ENDPOINT); they "
                    "are dropped"
                )
            if not self._is_stopping:
                self._stopping.wait(REST * (self._threads.cpu_s() - before_s))
