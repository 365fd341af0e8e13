"""Spans of delivery: of a message's or a batch's delivery, of each attempt, and of dead letters."""

from collections.abc import Sequence

from opentelemetry.semconv.attributes import http_attributes, server_attributes
from opentelemetry.trace import Span, SpanKind

from hermes_actors.consumer.delivery.delivery import Delivery, Settlement, Transitions
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import trace_of
from hermes_actors.model.subscription import BatchPolicy, DeliveryMode
from hermes_actors.model.trace_context import TraceContext
from hermes_actors.telemetry.tracing import Attributes, Tracing, carried, failed, messaging

_PROCESS = "process"
_SETTLE = "settle"


class DeliveryTrace(TraceContext):
    """The open spans of a traced delivery: the delivery, the current attempt, whose context is
    pushed, and the keeping of its dead letter. Each is None if not open.
    """

    __slots__ = ("attempt", "letter", "span")

    def __init__(self, span: Span | None) -> None:
        super().__init__("")
        self.span = span
        self.attempt: Span | None = None
        self.letter: Span | None = None

    def end_attempt(self) -> None:
        """End the attempt's span, if it is open."""
        if self.attempt is not None:
            self.attempt.end()
            self.attempt = None

    def end(self) -> None:
        """End all spans."""
        self.end_attempt()
        for span in (self.letter, self.span):
            if span is not None:
                span.end()
        self.letter = self.span = None


class DeliverySpans(Transitions):
    """Records spans of one subscription's deliveries whose messages are traced.

    A single message continues the trace of its publish. A batch has its own trace, which links to
    those of its messages and is held by its first message's delivery.
    """

    def __init__(self, tracing: Tracing, live: LiveSubscription) -> None:
        self._tracing = tracing
        self._topic = str(live.name.topic)
        self._subscription = live.name.name
        self._is_batch = isinstance(live.subscription.subscription_policy, BatchPolicy)
        # A broadcast attempt has several answers, and ends only with the decision after them.
        self._is_broadcast = live.subscription.mode is DeliveryMode.BROADCAST

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """Begin an attempt, and with the first one the delivery."""
        first = deliveries[0]
        trace = first.trace if is_retry or not self._is_batch else None
        if not isinstance(trace, DeliveryTrace) or trace.span is None:
            trace = self._begun(deliveries)
            if trace is None:
                return
        trace.end_attempt()
        attributes: dict[str, str | int] = {http_attributes.HTTP_REQUEST_METHOD: "POST"}
        if first.attempts:
            attributes["http.request.resend_count"] = first.attempts
        trace.attempt = self._tracing.begin("POST", SpanKind.CLIENT, attributes, trace.span)
        trace.traceparent, trace.tracestate = carried(trace.attempt)

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """End the attempt with its outcome."""
        first = deliveries[0]
        trace = first.trace
        if not isinstance(trace, DeliveryTrace) or trace.attempt is None:
            return
        attempt = trace.attempt
        if self._is_broadcast:
            # One recipient's answer; the attempt ends with the decision after all of them.
            attempt.add_event(
                "answered", {http_attributes.HTTP_RESPONSE_STATUS_CODE: outcome.status}
            )
            return
        if first.route is not None:
            origin = first.route.origin
            attempt.set_attribute(server_attributes.SERVER_ADDRESS, origin.host)
            attempt.set_attribute(server_attributes.SERVER_PORT, origin.port)
        if outcome.status:
            attempt.set_attribute(http_attributes.HTTP_RESPONSE_STATUS_CODE, outcome.status)
        if not outcome.is_success:
            failure = outcome.failure
            failed(attempt, str(outcome.status) if failure is None else failure.value)
        trace.end_attempt()

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """End the failed attempt and begin keeping the dead letter."""
        for delivery in deliveries:
            message = delivery.message
            trace = delivery.trace if isinstance(delivery.trace, DeliveryTrace) else None
            parent: TraceContext | Span | None = None
            if trace is not None and trace.span is not None:
                trace.end_attempt()
                failed(trace.span, reason.value)
                parent = trace.span
            if (parent is None or self._is_batch) and message is not None:
                # A batch's trace is not a message's trace.
                parent = trace_of(message) if self._follows(delivery) else None
            if parent is None:
                continue
            if trace is None:
                trace = delivery.trace = DeliveryTrace(None)
            attributes = self._attributes("dead_letter", _SETTLE, delivery)
            trace.letter = self._tracing.begin(
                f"dead letter {self._topic}",
                SpanKind.PRODUCER,
                {**attributes, "hermes.discard_reason": reason.value},
                parent,
            )

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """End the delivery's spans."""
        for delivery in deliveries:
            trace = delivery.trace
            if isinstance(trace, DeliveryTrace):
                for span in (trace.span, trace.letter):
                    if span is not None:
                        span.set_attribute("hermes.settlement", settlement.value)
                trace.end()
                delivery.trace = None

    def _follows(self, delivery: Delivery) -> bool:
        message = delivery.message
        return message is not None and self._tracing.follows(message.traceparent)

    def _attributes(self, operation: str, kind: str, delivery: Delivery) -> Attributes:
        record, message = delivery.record, delivery.message
        what: dict[str, str | int] = {"partition": str(record.partition), "offset": record.offset}
        if message is not None:
            what |= {"message_id": message.id, "body_size": len(message.body)}
        return messaging(operation, kind, self._topic, subscription=self._subscription, **what)

    def _begun(self, deliveries: Sequence[Delivery]) -> DeliveryTrace | None:
        """Begin the delivery's span, if it is traced. The first message keeps it."""
        first = deliveries[0]
        name = f"deliver {self._topic}"
        if self._is_batch:
            contexts = [
                context
                for each in deliveries
                if self._follows(each) and each.message and (context := trace_of(each.message))
            ]
            if isinstance(first.trace, DeliveryTrace):
                # The batch was reassembled.
                first.trace.end()
                first.trace = None
            if not contexts:
                return None
            attributes: Attributes = messaging(
                "deliver",
                _PROCESS,
                self._topic,
                subscription=self._subscription,
                count=len(deliveries),
            )
            span = self._tracing.begin_for_many(name, SpanKind.CONSUMER, attributes, contexts)
        else:
            if first.message is None or not self._follows(first):
                return None
            attributes = self._attributes("deliver", _PROCESS, first)
            parent = trace_of(first.message)
            span = self._tracing.begin(name, SpanKind.CONSUMER, attributes, parent)
        trace = first.trace = DeliveryTrace(span)
        return trace
