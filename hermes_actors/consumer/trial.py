"""Pushes one test message as the subscription's consumer would, without retries. No offset is
settled and no metric counted.
"""

from collections.abc import Callable

import msgspec
import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.consumer.batch.assembly import array_of, element_of
from hermes_actors.consumer.delivery.broadcast import PushCallbacks
from hermes_actors.consumer.delivery.delivery import Batch, Delivery, Transitions
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.pushing import Pushing
from hermes_actors.consumer.delivery.retry import RetryPolicy
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.push_consumer import ConsumerFactory
from hermes_actors.consumer.senders.sender import (
    Done,
    Failure,
    Push,
    Sender,
    SendOutcome,
    Witness,
    parse_lines,
)
from hermes_actors.errors import Refused
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.message import Message, UndecodableRecord
from hermes_actors.model.push_trial import (
    PushTrial,
    Shown,
    TrialAnswer,
    TrialPush,
    TrialRequest,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.redaction import MASK, is_secret_header
from hermes_actors.model.schema import WriterSchema
from hermes_actors.model.subscription import BatchPolicy, Header, SerialPolicy
from hermes_actors.model.topic import ContentType
from hermes_actors.schema.reading import AvroReader, UnknownSchema
from hermes_actors.telemetry.metrics import Metrics

TIMEOUT_MS_MAX = 10_000
"""Upper bound of a trial's request timeout, whatever the subscription's own."""

HEADER = "Hermes-Test"
"""The request header that marks a trial, so that endpoints can tell it from a delivery."""

BODY_SHOWN_BYTES = 2_048
_GRACE_S = 1.0
_OUR_SIGNATURE = "webhook-signature"


async def try_push(
    live: LiveSubscription, topic: LiveTopic, parts: ConsumerParts, body: bytes | None
) -> PushTrial:
    """Push a message with this body (None: a made-up one). Returns at most one second after the
    subscription's request timeout or TIMEOUT_MS_MAX, whichever is shorter.

    Ignores the subscription's filters, rate and state. Raises Refused for a subscription that
    cannot be pushed to, for a body that cannot be part of a batch, and for a missing body if the
    subscription gets Avro.
    """
    clock = parts.clock
    if why := ConsumerFactory(parts).refusal(live, topic):
        raise Refused(f"Subscription {live.name} cannot be pushed to: {why}")
    tried = _as_tried(live)
    policy = tried.subscription.subscription_policy
    watching = _Watching(parts.sender_of(tried), clock.monotonic_s)
    parts = replace(
        parts,
        sender_of=lambda _live: watching,
        # A separate registry that nobody reads.
        metrics=Metrics("hermes_trial", clock.monotonic_s),
    )
    message = Message(
        parts.ids.message_id(),
        _made_up(tried) if body is None else body,
        clock.now_ms(),
        written_with=_writer_of(tried, topic, parts.avro, body),
    )
    begun_s = clock.monotonic_s()
    ended = trio.Event()
    ends: list[SendOutcome | Exception] = []

    def end(how: SendOutcome | Exception) -> None:
        ends.append(how)
        ended.set()

    is_over = False
    caller = PushCallbacks(lambda: not is_over, lambda: is_over, end)
    record = StoredRecord(0, 0, message.published_at_ms, None, message.body, ())
    pushed: Delivery | Batch
    pushed = delivery = Delivery(record, PartitionOffsets(0), message)
    if isinstance(policy, BatchPolicy):
        pushed = Batch(message.id, [delivery], _batch_body(message, policy), begun_s)
    try:
        Pushing(tried, parts, Transitions(), RetryPolicy(policy), caller).send(pushed, end)
        with trio.move_on_after(policy.request_timeout / 1_000 + _GRACE_S):
            await ended.wait()
    finally:
        # Ignore late callbacks.
        is_over = True
    late = SendOutcome(0, "", Failure.TIMEOUT, "not all recipients answered in time")
    outcome = ends[0] if ends else late
    if isinstance(outcome, Exception):
        raise outcome
    is_signed = tried.subscription.signing is not None
    return PushTrial(
        is_delivered=outcome.is_success,
        outcome=outcome.reason(),
        took_ms=_ms(clock.monotonic_s() - begun_s),
        pushes=tuple(each.shown(is_signed, clock.monotonic_s()) for each in watching.seen),
    )


class _Watched(Struct):
    """One push, running or ended; its witness records what is sent and received."""

    push: Push
    begun_s: float
    ended_s: float | None = None
    outcome: SendOutcome | None = None

    def shown(self, is_signed: bool, now_s: float) -> TrialPush:
        """What may be shown of the push, as it stands now."""
        push, witness, outcome = self.push, self.push.witness, self.outcome
        assert witness is not None, "a watched push has one"
        lines = parse_lines(push.route.start + push.lines + witness.lines)
        length = (b"Content-Length", b"%d" % len(push.body))
        request = TrialRequest(
            "POST",
            f"{push.route.origin}{push.route.target}",
            _masked([*lines, length], is_signed=is_signed),
            _text(push.body),
            len(push.body),
        )
        took_ms = _ms((self.ended_s or now_s) - self.begun_s)
        if outcome is None:
            return TrialPush(request, "no answer yet", took_ms)
        answer = None
        if outcome.status:
            told = _masked(witness.headers, is_signed=False)
            answer = TrialAnswer(outcome.status, told, _text(witness.body), witness.body_bytes)
        return TrialPush(request, outcome.reason(), took_ms, answer)


class _Watching(Sender):
    """Pushes through `inner`, and keeps each push with its outcome in `seen`."""

    def __init__(self, inner: Sender, now_s: Callable[[], float]) -> None:
        self._inner = inner
        self._now_s = now_s
        self.seen: list[_Watched] = []

    def send(self, push: Push, done: Done) -> None:
        """Send as `inner` does."""
        seen = _Watched(replace(push, witness=Witness()), self._now_s())
        self.seen.append(seen)

        def on_outcome(outcome: SendOutcome) -> None:
            seen.outcome, seen.ended_s = outcome, self._now_s()
            done(outcome)

        self._inner.send(seen.push, on_outcome)


def _as_tried(live: LiveSubscription) -> LiveSubscription:
    """The subscription with a header that marks trials, and with a bounded request timeout."""
    subscription = live.subscription
    policy = subscription.subscription_policy
    bounded = replace(policy, request_timeout=min(policy.request_timeout, TIMEOUT_MS_MAX))
    if isinstance(bounded, SerialPolicy):
        # The test message is not in the log, so it has no place in the order.
        bounded = replace(bounded, ordered=False)
    own = [each for each in subscription.headers if each.name.lower() != HEADER.lower()]
    headers = [*own, Header(HEADER, "true")]
    return replace(
        live, subscription=replace(subscription, subscription_policy=bounded, headers=headers)
    )


def _writer_of(
    live: LiveSubscription, topic: LiveTopic, reader: AvroReader, body: bytes | None
) -> WriterSchema | None:
    """The schema of a body that is pushed as Avro; None for JSON."""
    subscription = live.subscription
    is_avro = topic.topic.content_type is subscription.content_type is ContentType.AVRO
    if not is_avro or isinstance(subscription.subscription_policy, BatchPolicy):
        return None
    if body is None:
        raise Refused(
            f"PushTest.message: subscription {live.name} gets Avro; give a message in Avro of the "
            "topic's newest schema, in Base64"
        )
    try:
        return reader.newest(subscription.topic_name)
    except UnknownSchema as error:
        raise Refused(f"PushTest.message: {error}") from error


def _made_up(live: LiveSubscription) -> bytes:
    names = {"topic": live.subscription.topic_name, "subscription": live.subscription.name}
    return msgspec.json.encode({"hermesTest": True, **names})


def _batch_body(message: Message, policy: BatchPolicy) -> bytes:
    try:
        return array_of([element_of(message, policy.body)])
    except UndecodableRecord as error:
        raise Refused(f"PushTest.message cannot be part of a batch: {error}") from error


def _masked(headers: list[tuple[bytes, bytes]], *, is_signed: bool) -> Shown:
    """The headers with secrets masked."""
    shown = []
    for name, value in ((_text(name), _text(value)) for name, value in headers):
        # A signature does not reveal its key, and is worth seeing in a trial.
        is_ours = is_signed and name.lower() == _OUR_SIGNATURE
        shown.append((name, MASK if is_secret_header(name) and not is_ours else value))
    return tuple(shown)


def _text(raw: bytes) -> str:
    return raw[:BODY_SHOWN_BYTES].decode("utf-8", "replace")


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
