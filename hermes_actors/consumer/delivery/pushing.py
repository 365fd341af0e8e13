"""Pushes a message or a batch for one version of a subscription: finds the recipients, builds
headers and signature, and calls the sender.
"""

import logging
from functools import lru_cache, partial

from msgspec.structs import replace

from hermes_actors.consumer.delivery.broadcast import Broadcast, PushCallbacks, who_missed
from hermes_actors.consumer.delivery.delivery import Batch, Delivery, Served, Transitions
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.retry import RetryPolicy
from hermes_actors.consumer.recipients.endpoint import Unresolved
from hermes_actors.consumer.recipients.headers import (
    AVRO_CONTENT_TYPE,
    CONTENT_TYPE,
    request_head,
)
from hermes_actors.consumer.recipients.resolver_recipients import Recipient, Recipients
from hermes_actors.consumer.recipients.signing import signer_of
from hermes_actors.consumer.senders.plugins import schemes_of
from hermes_actors.consumer.senders.proxying import ProxiedHosts
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Done,
    Failure,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
)
from hermes_actors.errors import Refused
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message
from hermes_actors.model.subscription import BatchPolicy, DeliveryMode, SerialPolicy

_logger = logging.getLogger(__name__)

_HEADS_MAX = 100


def recipients_of(live: LiveSubscription, parts: ConsumerParts) -> Recipients:
    """The recipients of the subscription's messages. A batch goes to one of them at each attempt.

    Raises Refused for an endpoint that is invalid, or invalid for batches.
    """
    proxy, subscription = parts.config.proxy, live.subscription
    recipients = Recipients(
        live,
        parts.resolver,
        parts.names,
        is_proxied=ProxiedHosts(proxy.no_proxy).is_for if proxy.url else None,
        other_schemes=schemes_of(parts.config.senders),
        addresses_max=parts.config.recipients.addresses_max,
    )
    if isinstance(subscription.subscription_policy, SerialPolicy):
        return recipients
    if recipients.is_by_message:
        raise Refused(
            "endpoint: a {field} is filled from one message, and a batch holds many; "
            "write an address without it, or use deliveryType SERIAL"
        )
    if subscription.mode is DeliveryMode.BROADCAST and recipients.single is None:
        raise Refused(
            "mode BROADCAST: a batch goes to one address, and the endpoint may have several; "
            "use ANYCAST, or deliveryType SERIAL"
        )
    return recipients


class Pushing:
    """Makes the pushes of one version of a subscription. Each is answered within the request
    timeout, which includes the look-up of recipients. Raises Refused for an invalid endpoint.

    `transitions` gets the answer of each recipient of a broadcast. `epoch` is the epoch of the
    partitions' grant.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        transitions: Transitions,
        retry_policy: RetryPolicy,
        caller: PushCallbacks,
        *,
        epoch: int = 0,
    ) -> None:
        subscription = live.subscription
        policy = subscription.subscription_policy
        self._clock = parts.clock
        self._transitions = transitions
        self._retry_policy = retry_policy
        self._caller = caller
        self._epoch = epoch
        self._pushes_max = parts.config.recipients.pushes_max
        self._is_broadcast = subscription.mode is DeliveryMode.BROADCAST
        self._request_timeout_ms = policy.request_timeout
        self._socket_timeout_ms = 0
        self._is_ordered = False
        if isinstance(policy, BatchPolicy):
            # A batch is not a CloudEvent, even if its messages are.
            subscription = replace(subscription, cloud_events_enabled=False)
        else:
            self._socket_timeout_ms = policy.socket_timeout
            self._is_ordered = policy.ordered
        self._recipients = recipients_of(live, parts)
        single = self._single = self._recipients.single
        self._signer = signer_of(subscription)
        self._head_with = lru_cache(_HEADS_MAX)(partial(request_head, subscription))
        self._authorization = "" if single is None else single.authorization
        self._head = self._head_with(self._authorization, CONTENT_TYPE)
        self.sender: Sender = parts.sender_of(live)
        if self._head.dropped:
            _logger.warning(
                "%s: fixed headers left out, because their names are reserved or not valid: %s",
                live.name,
                ", ".join(self._head.dropped),
            )

    def send(self, what: Delivery | Batch, done: Done) -> None:
        """Attempt a push. `done` is called once with the outcome, possibly at once."""
        single = self._single
        if single is None:
            self._send_to_several(what, done)
            return
        route = single.route or what.route
        if route is None:
            try:
                route = single.resolve(what.first.body)
            except Unresolved as error:
                done(unresolved(str(error)))
                return
        what.route = route
        self._push(what, route, self._authorization, self._request_timeout_ms, done)

    # Several addresses.

    def _send_to_several(self, what: Delivery | Batch, done: Done) -> None:
        served = what.served = what.served or Served()
        asked_s = self._clock.monotonic_s()

        def on_found(found: list[Recipient] | Unresolved) -> None:
            if self._caller.is_over():
                return
            # The time for the look-up is part of the request timeout.
            spent_ms = int((self._clock.monotonic_s() - asked_s) * 1_000)
            left_ms = max(1, self._request_timeout_ms - spent_ms)
            try:
                if not self._caller.may_begin():
                    done(NOT_BEGUN)
                elif isinstance(found, Unresolved):
                    done(unresolved(str(found)))
                elif self._is_broadcast and isinstance(what, Delivery):
                    self._broadcast(what, served, found, left_ms, done)
                else:
                    self._send_to_one(what, served, found, left_ms, done)
            # This may run in a look-up's callback.
            except Exception as error:  # noqa: BLE001
                self._caller.fail(error)

        timeout_s = self._request_timeout_ms / 1_000
        if self._is_broadcast:
            self._recipients.find_all(what.first, timeout_s, on_found)
        else:
            self._recipients.find_one(what.first, served.last_key, timeout_s, on_found)

    def _send_to_one(
        self,
        what: Delivery | Batch,
        served: Served,
        found: list[Recipient],
        timeout_ms: int,
        done: Done,
    ) -> None:
        """Push to the recipient that was found, usually another one than in the last attempt."""
        if not found:
            done(unresolved("there is no recipient to push to"))
            return
        (recipient,) = found
        served.last_key = recipient.key
        if recipient.route is None:
            done(unresolved(recipient.problem))
            return
        what.route = recipient.route
        self._push(what, what.route, recipient.authorization, timeout_ms, done)

    def _broadcast(
        self,
        delivery: Delivery,
        served: Served,
        found: list[Recipient],
        timeout_ms: int,
        done: Done,
    ) -> None:
        def push(recipient: Recipient, landed: Done) -> None:
            route = recipient.route
            assert route is not None, "a recipient without a route is pushed nothing"
            sent_s = self._clock.monotonic_s()

            def on_outcome(outcome: SendOutcome) -> None:
                if self._caller.is_over():
                    return
                took_s = self._clock.monotonic_s() - sent_s
                self._transitions.answered((delivery,), outcome, took_s)
                if not outcome.is_success:
                    # For a probe: the recipient to check for recovery.
                    delivery.route = route
                try:
                    landed(outcome)
                except Exception as error:  # noqa: BLE001
                    self._caller.fail(error)

            self._push(delivery, route, recipient.authorization, timeout_ms, on_outcome)

        Broadcast(
            who_missed(delivery.redriven, found),
            served,
            self._retry_policy,
            self._caller,
            push=push,
            done=done,
            now_ms=self._clock.now_ms,
            pushes_max=self._pushes_max,
        ).begin()

    # One push.

    def _push(
        self,
        what: Delivery | Batch,
        route: PushRoute,
        authorization: str,
        timeout_ms: int,
        done: Done,
    ) -> None:
        if isinstance(what, Batch):
            head, push_id, body = self._head_with(authorization, CONTENT_TYPE), what.id, what.body
            batch_lines = b"Hermes-Batch-Id: %b\r\n" % push_id.encode()
            batch_lines += head.trace_lines(what.deliveries[0].trace)
            lines = head.lines(batch_lines, what.attempts)
        else:
            message = what.first
            push_id, body = message.id, message.body
            lines = self._lines(what, message, authorization)
        if self._signer is not None:
            lines += self._signer.sign(push_id, self._clock.now_ms() // 1_000, body)
        self.sender.send(
            Push(route, lines, body, timeout_ms, self._socket_timeout_ms, self._caller.may_begin),
            done,
        )

    def _lines(self, delivery: Delivery, message: Message, authorization: str) -> bytes:
        head = self._head
        if message.is_tombstone:
            head = self._head_with(authorization, "")
        elif message.written_with is not None:
            head = self._head_with(authorization, AVRO_CONTENT_TYPE)
        elif authorization != self._authorization:
            head = self._head_with(authorization, CONTENT_TYPE)
        if delivery.attempts == 0 and delivery.trace is None and not self._is_ordered:
            # Most messages need no second attempt, so their lines are not kept.
            return head.first_lines(message)
        # A trace belongs to one attempt. Which lines are dropped depends on an address'
        # credentials.
        is_kept = delivery.trace is None and self._single is not None
        lines = delivery.message_lines if is_kept else b""
        if not lines:
            lines = head.message_lines(message, delivery.trace)
            if self._is_ordered:
                record = delivery.record
                place = record.partition, self._epoch, record.offset
                lines += b"Hermes-Sequence: %d %d %d\r\n" % place
            if is_kept:
                delivery.message_lines = lines
        return head.lines(lines, delivery.attempts)


def unresolved(problem: str) -> SendOutcome:
    """The outcome if there is no recipient, or no route to it."""
    return SendOutcome(0, "", Failure.UNRESOLVED, problem)
