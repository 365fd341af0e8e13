"""The spans of publishing: the publish, each append to a log, and what the spool replays."""

from collections.abc import Sequence

from opentelemetry.semconv.attributes import http_attributes
from opentelemetry.trace import Span, SpanKind

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.log.base import Outcome, Stored
from hermes_actors.model.message import Message, Via, trace_of
from hermes_actors.model.trace_context import TraceContext
from hermes_actors.publisher.answers import status_of
from hermes_actors.publisher.pending import Pending, Transitions
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.tracing import PARTITION, Tracing, carried, failed, messaging

_SEND = "send"
_SPANS = {Via.LOCAL.value: "append", Via.HEDGE.value: "hedge", Via.FALLBACK.value: "fallback"}


class PublishTrace(TraceContext):
    """The trace of a publish: its messages carry its span. `appends` are the spans of open appends,
    each with its datacentre.
    """

    __slots__ = ("appends", "span")

    def __init__(self, span: Span) -> None:
        super().__init__(*carried(span))
        self.span = span
        self.appends: list[tuple[str, Span]] = []


class PublishSpans(Transitions):
    """Records the spans of a node's traced publishes."""

    def __init__(self, tracing: Tracing, dc: str, clock: Clock) -> None:
        self._tracing = tracing
        self._dc = dc
        self._clock = clock
        # While it is 0, no publish is looked at.
        self._open = 0

    def _traced(self, pendings: Sequence[Pending]) -> list[tuple[Pending, PublishTrace]]:
        if not self._open:
            return []
        return [(each, each.trace) for each in pendings if isinstance(each.trace, PublishTrace)]

    def admitted(self, pendings: Sequence[Pending]) -> None:
        """Choose which publishes are traced, and begin their spans."""
        for pending in pendings:
            context = pending.trace
            if self._tracing.is_chosen(context):
                topic = pending.route.name
                what = {"count": pending.count} if pending.count > 1 else {"message_id": pending.id}
                attributes = messaging("publish", _SEND, topic, dc=self._dc, **what)
                span = self._tracing.begin(f"publish {topic}", SpanKind.SERVER, attributes, context)
                pending.trace = PublishTrace(span)
                self._open += 1

    def sent(
        self,
        pendings: Sequence[Pending],
        dc: str,
        via: str,
    ) -> None:
        """Begin the span of an append."""
        for pending, trace in self._traced(pendings):
            name, topic = _SPANS.get(via, "append"), pending.route.name
            span = self._tracing.begin(
                f"{name} {topic}",
                SpanKind.PRODUCER,
                messaging(name, _SEND, topic, dc=dc, via=via, body_size=pending.body_bytes),
                trace.span,
            )
            trace.appends.append((dc, span))
            self._open += 1

    def answered(
        self,
        pendings: Sequence[Pending],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """End the span of an append with its outcome."""
        at = 0
        for pending in pendings if self._open else ():
            following = at + pending.count
            trace = pending.trace
            if type(trace) is PublishTrace:
                for append in trace.appends:
                    if append[0] == dc:
                        trace.appends.remove(append)
                        _end(append[1], partition, outcomes[at:following])
                        self._open -= 1
                        break
            at = following

    def kept(self, pending: Pending, messages: Sequence[Message]) -> None:
        """Record that the spool has them."""
        trace = pending.trace
        if type(trace) is PublishTrace:
            trace.span.add_event("spooled")

    def settled(self, pendings: Sequence[Pending]) -> None:
        """End the spans of publishes."""
        for pending, trace in self._traced(pendings):
            assert pending.outcome is not None, "it is settled"
            # 0 for a repeated publish, answered like the first one with its key.
            status = status_of(pending.outcome, pending.route.name)
            span = trace.span
            if status:
                span.set_attribute(http_attributes.HTTP_RESPONSE_STATUS_CODE, status)
            if status >= 500:
                failed(span, str(status))
            span.end()
            self._open -= 1

    def replayed(
        self,
        entries: Sequence[SpoolEntry],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """Record an append from the spool; its messages carry their trace contexts."""
        ended_ns = self._clock.now_ms() * 1_000_000
        for entry, outcome in zip(entries, outcomes, strict=True):
            message = entry.message
            if self._tracing.follows(message.traceparent):
                attributes = messaging(
                    "replay",
                    _SEND,
                    entry.topic,
                    dc=dc,
                    via=message.via,
                    message_id=message.id,
                    body_size=len(message.body),
                )
                span = self._tracing.begin(
                    f"replay {entry.topic}",
                    SpanKind.PRODUCER,
                    attributes,
                    trace_of(message),
                    started_ns=ended_ns - round(took_s * 1e9),
                )
                _end(span, partition, [outcome], ended_ns)


def _end(
    span: Span, partition: int, outcomes: Sequence[Outcome], ended_ns: int | None = None
) -> None:
    """End an append's span; failed if any of its messages is not stored."""
    span.set_attribute(PARTITION, str(partition))
    lost = next((each for each in outcomes if not isinstance(each, Stored)), None)
    if lost is not None:
        failed(span, type(lost).__name__.removesuffix("Record").lower())
    elif len(outcomes) == 1 and isinstance(outcomes[0], Stored):
        span.set_attribute("hermes.offset", outcomes[0].offset)
    span.end(ended_ns)
