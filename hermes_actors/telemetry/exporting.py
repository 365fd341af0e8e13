"""The exporters that the operator asks for: by OTLP over HTTP or gRPC, or to standard output.

Each is imported when it is wanted: gRPC alone takes a tenth of a second.
"""

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from hermes_actors.telemetry.settings import TelemetrySettings


def span_exporter(settings: TelemetrySettings) -> SpanExporter | None:
    """Return what spans leave by; None where nothing is traced."""
    match settings.traces, settings.traces_protocol:
        case "otlp", "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as by_grpc

            return by_grpc.OTLPSpanExporter()
        case "otlp", _:
            from opentelemetry.exporter.otlp.proto.http import trace_exporter as by_http

            return by_http.OTLPSpanExporter()
        case "console", _:
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter()
        case _:
            return None


def metric_exporter(settings: TelemetrySettings) -> MetricExporter | None:
    """Return what metrics leave by; None where they are only shown to who scrapes them."""
    match settings.metrics, settings.metrics_protocol:
        case "otlp", "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as by_grpc

            return by_grpc.OTLPMetricExporter()
        case "otlp", _:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter as by_http

            return by_http.OTLPMetricExporter()
        case "console", _:
            from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

            return ConsoleMetricExporter()
        case _:
            return None
