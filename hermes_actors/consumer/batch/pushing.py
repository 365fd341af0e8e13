"""How one version of a subscription pushes a batch: headers, signature, one recipient, sender."""

import logging
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from hermes_actors.consumer.batch.assembly import Batch
from hermes_actors.consumer.delivery.delivery import Served
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.pushes import Pushes, recipients_of
from hermes_actors.consumer.recipients.resolver_recipients import Recipient, Recipients
from hermes_actors.consumer.senders.sender import (
    Done,
    Push,
    Route,
)
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


class BatchPushing(Pushes):
    """Makes the pushes of one version of a subscription. Raises Refused for a wrong endpoint."""

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
        super().__init__(
            live,
            parts,
            # A batch is no event, whatever its messages are.
            replace(live.subscription, cloud_events_enabled=False),
            batch_recipients_of(live, parts),
            request_timeout_ms=request_timeout_ms,
            may_begin=may_begin,
            is_over=is_over,
            fail=fail,
        )
        self._served = Served()

    def send(self, batch: Batch, first: Message, done: Done) -> None:
        """Attempt the batch; `done` hears the outcome once, perhaps at once. `first` is its first
        message, for resolvers that ask for one.
        """
        if not batch.attempts:
            # Only for the same batch an address that failed is not the next one to be tried.
            self._served = Served()
        self._find_one(first, self._served, partial(self._send_to_one, batch, done=done), done)

    def _send_to_one(
        self, batch: Batch, recipient: Recipient, route: Route, timeout_ms: int, done: Done
    ) -> None:
        self._head = self._head_with(recipient.authorization)
        batch_lines = b"Hermes-Batch-Id: %b\r\n" % batch.id.encode()
        # A trial's batch holds no deliveries.
        batch_lines += self._head.trace_lines(
            batch.deliveries[0].trace if batch.deliveries else None
        )
        lines = self._head.lines(batch_lines, batch.attempts)
        if self._signer is not None:
            lines += self._signer.sign(batch.id, self._clock.now_ms() // 1_000, batch.body)
        push = Push(
            route,
            lines,
            batch.body,
            timeout_ms,
            may_begin=self._may_begin,
        )
        self.sender.send(push, done)
