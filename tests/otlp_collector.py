"""An OTLP receiver on loopback, over HTTP and gRPC, that parses what it receives."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass
class Received:
    """A received span, with the resource of its node."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict
    resource: dict
    links: list
    events: list
    is_failed: bool
    tracestate: str
    start_ns: int
    end_ns: int


@dataclass
class Collector:
    """Keeps what it receives. `answer` is the HTTP status of each answer; `hang` holds
    answers up.
    """

    answer: int = 200
    spans: list = field(default_factory=list)
    metrics: list = field(default_factory=list)
    requests: int = 0
    may_answer: threading.Event = field(default_factory=threading.Event)
    endpoint: str = ""

    def take_spans(self, request) -> None:
        for group in request.resource_spans:
            resource = values(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [received(span, resource) for span in scope.spans]

    def take_metrics(self, request) -> None:
        for group in request.resource_metrics:
            for scope in group.scope_metrics:
                self.metrics += [
                    (metric, values(group.resource.attributes)) for metric in scope.metrics
                ]

    def named(self, start: str) -> list:
        return [span for span in self.spans if span.name.startswith(start)]


def values(attributes) -> dict:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def received(span, resource) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        attributes=values(span.attributes),
        resource=resource,
        links=[(each.trace_id.hex(), each.span_id.hex()) for each in span.links],
        events=[each.name for each in span.events],
        is_failed=span.status.code == 2,
        tracestate=span.trace_state,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
    )


@contextmanager
def http_collector() -> Iterator[Collector]:
    collector = Collector()
    collector.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            collector.may_answer.wait(30)
            if self.path == "/v1/traces":
                collector.take_spans(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            else:
                assert self.path == "/v1/metrics"
                collector.take_metrics(
                    metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
                )
            self.send_response(collector.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        collector.may_answer.set()
        server.shutdown()
        server.server_close()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    collector = Collector()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):  # noqa: N802
            collector.take_spans(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Points(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request, context):  # noqa: N802
            collector.take_metrics(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Points(), server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None)
