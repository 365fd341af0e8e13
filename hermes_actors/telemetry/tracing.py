"""Creates the spans of traced messages for the OpenTelemetry SDK, which exports them.

`Sampling` decides once per message if it is traced; for others the cost is only this decision.
Callers pass names and attributes, but never bodies or headers of messages.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.attributes import error_attributes, service_attributes
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import AttributeValue

from hermes_actors import __version__
from hermes_actors.model.message import Message
from hermes_actors.model.trace_context import TraceContext, is_traceparent
from hermes_actors.runtime.clock import wall_ns
from hermes_actors.telemetry.sampling import Sampling

SYSTEM = "hermes"
DATACENTER = "hermes.datacenter"
VIA = "hermes.via"
PARTITION = "messaging.destination.partition.id"

Attributes = dict[str, AttributeValue]

_ID_BITS = 128
_LOW_HALF = (1 << 64) - 1
_UNSET = Status()
_NEW = TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID


@dataclass(slots=True, eq=False)
class Span:
    """An open span. `begun` makes the SDK's ended one from what is known since the beginning: the
    SDK's own open spans cost four times as much.
    """

    context: SpanContext
    attributes: Attributes
    processor: SpanProcessor
    begun: Callable[..., ReadableSpan]
    status: Status = _UNSET
    events: tuple[Event, ...] = ()

    def add_event(self, name: str, attributes: Attributes | None = None) -> None:
        """Add an event that happens now."""
        self.events += (Event(name, attributes, wall_ns()),)

    def fail(self, error_type: str) -> None:
        """Mark it as failed with this type of error."""
        self.attributes[error_attributes.ERROR_TYPE] = error_type
        self.status = Status(StatusCode.ERROR, error_type)

    def carried(self) -> tuple[str, str]:
        """The `traceparent` and `tracestate` headers that propagate it."""
        context = self.context
        traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        return traceparent, context.trace_state.to_header() if context.trace_state else ""

    def end(self, ended_ns: int | None = None) -> None:
        """End it, now or at a time of the past."""
        last = {"events": self.events, "status": self.status, "end_time": ended_ns or wall_ns()}
        self.processor.on_end(self.begun(attributes=self.attributes, **last))


class Tracing:
    """Creates spans. `processor` gets them when they end, `rng` draws their ids."""

    def __init__(
        self, processor: SpanProcessor, sampling: Sampling, resource: Resource, rng: random.Random
    ) -> None:
        self._processor = processor
        self._sampling = sampling
        self._draw = rng.getrandbits
        self._bound = sampling.bound
        self._chosen_id = 0
        scope = InstrumentationScope("hermes_actors", __version__)
        self._span = partial(ReadableSpan, resource=resource, instrumentation_scope=scope)

    def is_chosen(self, context: TraceContext | None) -> bool:
        """True if a message with this context (None: without one) is traced.

        After True for None, call `begin` without a parent, which starts that trace.
        """
        if context is None:
            trace_id = self._draw(_ID_BITS)
            if trace_id & _LOW_HALF >= self._bound:
                return False
            self._chosen_id = trace_id
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
        parent: SpanContext | None = None,
        links: Sequence[Link] = (),
        *,
        started_ns: int | None = None,
    ) -> Span:
        """Begin a span; without a parent it begins a trace."""
        trace_id, flags, state = self._chosen_id or self._draw(_ID_BITS) or 1, _NEW, None
        self._chosen_id = 0
        if parent is not None:
            trace_id, flags, state = parent.trace_id, parent.trace_flags & _NEW, parent.trace_state
        span_id = self._draw(_ID_BITS // 2) or 1
        context = SpanContext(trace_id, span_id, False, TraceFlags(flags), state)
        known = {"kind": kind, "links": links, "start_time": started_ns or wall_ns()}
        begun = partial(self._span, name, context, parent, **known)
        return Span(context, attributes, self._processor, begun)


def context_in(context: TraceContext | Message) -> SpanContext:
    """The span that this context, or the message's, names."""
    traceparent, tracestate = context.traceparent, context.tracestate
    return SpanContext(
        int(traceparent[3:35], 16),
        int(traceparent[36:52], 16),
        is_remote=True,
        # Sampled also if the sender did not record it, because this node does.
        trace_flags=TraceFlags(int(traceparent[53:55], 16) | TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([tracestate]) if tracestate else None,
    )


def messaging(operation: str, kind: str, topic: str, **more: AttributeValue) -> Attributes:
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
