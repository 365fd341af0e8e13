"""Creates the configured exporters: OTLP over HTTP or gRPC, or standard output.

Each is imported only if it is used, because importing gRPC takes a tenth of a second.
"""

from collections.abc import Sequence

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from hermes_actors.telemetry.settings import TelemetrySettings


class CountingExporter(SpanExporter):
    """Counts the spans that an exporter has exported, and those that it has not."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.exported = self.failed = 0
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export the spans and count them."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()


def span_exporter(settings: TelemetrySettings) -> SpanExporter:
    """The configured exporter of spans."""
    match settings.traces, settings.traces_protocol:
        case "console", _:
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter()
        case _, "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as by_grpc

            return by_grpc.OTLPSpanExporter()
        case _:
            from opentelemetry.exporter.otlp.proto.http import trace_exporter as by_http

            return by_http.OTLPSpanExporter()


def metric_exporter(settings: TelemetrySettings) -> MetricExporter:
    """The configured exporter of metrics."""
    match settings.metrics, settings.metrics_protocol:
        case "console", _:
            from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

            return ConsoleMetricExporter()
        case _, "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as by_grpc

            return by_grpc.OTLPMetricExporter()
        case _:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter as by_http

            return by_http.OTLPMetricExporter()
