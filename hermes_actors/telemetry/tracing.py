"""Creates the spans of traced messages with the OpenTelemetry SDK.

`Sampling` decides once per message if it is traced; for others the cost is only this decision.
Callers pass names and attributes, but never bodies or headers of messages.
"""

import random
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.semconv.attributes import error_attributes, service_attributes
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import AttributeValue

from hermes_actors import __version__
from hermes_actors.model.trace_context import TraceContext, is_traceparent
from hermes_actors.telemetry.sampling import Sampling

SYSTEM = "hermes"
DATACENTER = "hermes.datacenter"
VIA = "hermes.via"
PARTITION = "messaging.destination.partition.id"
LINKS_MAX = 128
"""The maximum number of messages that the span of a batch links to."""

Attributes = Mapping[str, AttributeValue]

_ID_BITS = 128
_LOW_HALF = (1 << 64) - 1


class _ChosenIds(RandomIdGenerator):
    """Gives the next trace the id that was drawn for the sampling decision."""

    def __init__(self) -> None:
        self.trace_id = 0

    def generate_trace_id(self) -> int:
        trace_id, self.trace_id = self.trace_id, 0
        return trace_id or super().generate_trace_id()


class Tracing:
    """Creates spans. `processor` gets them when they end, `rng` draws the ids of traces."""

    def __init__(
        self, processor: SpanProcessor, sampling: Sampling, resource: Resource, rng: random.Random
    ) -> None:
        self._sampling = sampling
        self._draw = rng.getrandbits
        self._bound = sampling.bound
        self._ids = _ChosenIds()
        provider = TracerProvider(
            ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids
        )
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("hermes_actors", __version__)

    def is_chosen(self, context: TraceContext | None) -> bool:
        """True if a message with this context (None: without one) is traced.

        After True for None, call `begin` without a parent, which starts that trace.
        """
        if context is None:
            trace_id = self._draw(_ID_BITS)
            if trace_id & _LOW_HALF >= self._bound:
                return False
            self._ids.trace_id = trace_id or 1
            return True
        return self._sampling.takes(context.traceparent)

    def follows(self, traceparent: str) -> bool:
        """True if the trace of a message with this `traceparent` (may be empty) is recorded."""
        return (
            bool(traceparent) and is_traceparent(traceparent) and self._sampling.takes(traceparent)
        )

    def begin(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: "TraceContext | trace.Span | None" = None,
        links: Sequence[Link] = (),
        *,
        started_ns: int | None = None,
    ) -> trace.Span:
        """Begin a span. Its parent is a span of this node, a context from elsewhere, or None."""
        match parent:
            case None:
                # An empty context, so that a current span does not become the parent.
                context = Context()
            case TraceContext():
                remote = NonRecordingSpan(_context_in(parent))
                context = trace.set_span_in_context(remote, Context())
            case _:
                context = trace.set_span_in_context(parent, Context())
        return self._tracer.start_span(
            name, context, kind, dict(attributes), links, start_time=started_ns
        )

    def begin_for_many(
        self, name: str, kind: SpanKind, attributes: Attributes, contexts: Sequence[TraceContext]
    ) -> trace.Span:
        """Begin a new trace whose span links to the first LINKS_MAX of these contexts."""
        self._ids.trace_id = self._draw(_ID_BITS) or 1
        links = [Link(_context_in(each)) for each in contexts[:LINKS_MAX]]
        return self.begin(name, kind, attributes, links=links)


def carried(span: trace.Span) -> tuple[str, str]:
    """The `traceparent` and `tracestate` headers that propagate the span."""
    context = span.get_span_context()
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return traceparent, context.trace_state.to_header() if context.trace_state else ""


def _context_in(context: TraceContext) -> SpanContext:
    traceparent, tracestate = context.traceparent, context.tracestate
    return SpanContext(
        int(traceparent[3:35], 16),
        int(traceparent[36:52], 16),
        is_remote=True,
        # Sampled also if the sender did not record it, because this node does.
        trace_flags=TraceFlags(int(traceparent[53:55], 16) | TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([tracestate]) if tracestate else None,
    )


def failed(span: trace.Span, error_type: str) -> None:
    """Mark the span as failed with this type of error."""
    span.set_attribute(error_attributes.ERROR_TYPE, error_type)
    span.set_status(trace.StatusCode.ERROR, error_type)


def messaging(
    operation: str, kind: str, topic: str, **more: AttributeValue
) -> dict[str, AttributeValue]:
    """The attributes of a messaging span, by OpenTelemetry's semantic conventions.

    `kind`: the convention's type of the operation ("send", "process", "settle"). `more`: further
    attributes, by the keys of `_MORE`.
    """
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
        **{_MORE[name]: value for name, value in more.items()},
    }


_MORE = {
    "message_id": "messaging.message.id",
    "body_size": "messaging.message.body.size",
    "count": "messaging.batch.message_count",
    "subscription": "messaging.destination.subscription.name",
    "partition": PARTITION,
    "offset": "hermes.offset",
    "dc": DATACENTER,
    "via": VIA,
}


def resource_of(dc: str, node: str) -> Resource:
    """The attributes of this node in all its telemetry, and those in the `OTEL_*` variables."""
    resource = Resource.create(
        {
            service_attributes.SERVICE_VERSION: __version__,
            service_attributes.SERVICE_INSTANCE_ID: node,
            DATACENTER: dc,
        }
    )
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: SYSTEM}))
    return resource
