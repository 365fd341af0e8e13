"""How one version of a subscription pushes a batch: headers, signature, one recipient, sender."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from hermes_actors.consumer.batch.assembly import Batch
from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.recipients.endpoint import Unresolved
from hermes_actors.consumer.recipients.headers import RequestHead, request_head
from hermes_actors.consumer.recipients.resolver_recipients import Recipient, Recipients
from hermes_actors.consumer.recipients.signing import signer_of
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Done,
    Failure,
    Push,
    Sender,
    SendOutcome,
)
from hermes_actors.consumer.serial.pushing import recipients_of
from hermes_actors.errors import Refused
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message
from hermes_actors.model.subscription import DeliveryMode

_logger = logging.getLogger(__name__)


def batch_recipients_of(live: LiveSubscription, parts: ConsumerParts) -> Recipients:
    """Whom the subscription's batches go to: one of them at each attempt.

    Raises Refused for an endpoint that is none, or that is none for batches.
    """
    recipients = recipients_of(live, parts)
    if recipients.is_by_message:
        raise Refused(
            "endpoint: a {field} is filled from one message, and a batch holds many; "
            "write an address without it, or use deliveryType SERIAL"
        )
    if live.subscription.mode is DeliveryMode.BROADCAST and recipients.single is None:
        raise Refused(
            "mode BROADCAST: a batch goes to one address, and the endpoint may have several; "
            "use ANYCAST, or deliveryType SERIAL"
        )
    return recipients


class BatchPushing:
    """Makes the pushes of one version of a subscription. Raises Refused for a wrong endpoint.

    `may_begin` is asked immediately before anything is sent that had to wait first. `is_over` says
    that nobody hears of outcomes any more; `fail` is told what a callback raised.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        *,
        request_timeout_ms: int,
        may_begin: Callable[[], bool],
        is_over: Callable[[], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        # A batch is no event, whatever its messages are.
        self._subscription = replace(live.subscription, cloud_events_enabled=False)
        self._request_timeout_ms = request_timeout_ms
        self._clock = parts.clock
        self._may_begin = may_begin
        self._is_over = is_over
        self._fail = fail
        self._recipients = batch_recipients_of(live, parts)
        self._signer = signer_of(live.subscription)
        single = self._recipients.single
        self._authorization = "" if single is None else single.authorization
        self._head = request_head(self._subscription, self._authorization)
        self._last_key = ""
        self.sender: Sender = parts.sender_of(live)
        if self.dropped_headers:
            _logger.warning(
                "%s: fixed headers left out, their names are taken or not valid: %s",
                live.name,
                ", ".join(self.dropped_headers),
            )

    @property
    def dropped_headers(self) -> tuple[str, ...]:
        """Fixed headers of the subscription that are not sent."""
        return self._head.dropped

    def send(self, batch: Batch, first: Message, done: Done) -> None:
        """Attempt the batch; `done` hears the outcome once, perhaps at once. `first` is its first
        message, for resolvers that ask for one.
        """
        asked_s = self._clock.monotonic_s()

        def on_found(found: list[Recipient] | Unresolved) -> None:
            if self._is_over():
                return
            # What the look-up took is no longer left for the push.
            spent_ms = int((self._clock.monotonic_s() - asked_s) * 1_000)
            left_ms = max(1, self._request_timeout_ms - spent_ms)
            try:
                if self._may_begin():
                    self._send_to_one(batch, found, left_ms, done)
                else:
                    done(NOT_BEGUN)
            # It may run in a look-up's callback.
            except Exception as error:  # noqa: BLE001
                self._fail(error)

        # An address that failed is not the next one to be tried.
        last_key = self._last_key if batch.attempts else ""
        self._recipients.find_one(first, last_key, self._request_timeout_ms / 1_000, on_found)

    def _send_to_one(
        self, batch: Batch, found: list[Recipient] | Unresolved, timeout_ms: int, done: Done
    ) -> None:
        if isinstance(found, Unresolved) or not found:
            problem = str(found) if isinstance(found, Unresolved) else "there is nobody to push to"
            done(SendOutcome(0, "", Failure.UNRESOLVED, problem))
            return
        recipient = found[0]
        self._last_key = recipient.key
        if recipient.route is None:
            done(SendOutcome(0, "", Failure.UNRESOLVED, recipient.problem))
            return
        lines = self._head_with(recipient.authorization).lines(
            b"Hermes-Batch-Id: %b\r\n" % batch.id.encode(), batch.attempts
        )
        if self._signer is not None:
            lines += self._signer.sign(batch.id, self._clock.now_ms() // 1_000, batch.body)
        push = Push(
            recipient.route,
            lines,
            batch.body,
            timeout_ms,
            may_begin=self._may_begin,
        )
        self.sender.send(push, done)

    def _head_with(self, authorization: str) -> RequestHead:
        """The unchanging lines for an address with these credentials."""
        if authorization != self._authorization:
            self._authorization = authorization
            self._head = request_head(self._subscription, authorization)
        return self._head
