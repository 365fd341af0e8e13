"""How one version of a subscription pushes a message: headers, signature, recipients, sender."""

from collections.abc import Callable
from functools import partial

from hermes_actors.consumer.delivery.delivery import Delivery, Served, Transitions
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.pushes import Pushes, recipients_of, unresolved
from hermes_actors.consumer.delivery.retry import RetryPolicy
from hermes_actors.consumer.recipients.endpoint import Unresolved
from hermes_actors.consumer.recipients.headers import (
    AVRO_CONTENT_TYPE,
    CONTENT_TYPE,
    RequestHead,
)
from hermes_actors.consumer.recipients.resolver_recipients import Recipient
from hermes_actors.consumer.senders.sender import (
    Done,
    Push,
    Route,
    SendOutcome,
)
from hermes_actors.consumer.serial.broadcast import Broadcast, who_missed
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import DeliveryMode, SerialPolicy


class Pushing(Pushes):
    """Makes the pushes of one version of a subscription. Raises Refused for a wrong endpoint.

    `epoch` is that of the grant of the partitions; the rest as in `Pushes`.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        transitions: Transitions,
        retry_policy: RetryPolicy,
        *,
        epoch: int,
        may_begin: Callable[[], bool],
        is_over: Callable[[], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        subscription = live.subscription
        policy = subscription.subscription_policy
        assert isinstance(policy, SerialPolicy), "a serial consumer needs a serial policy"
        super().__init__(
            live,
            parts,
            subscription,
            recipients_of(live, parts),
            request_timeout_ms=policy.request_timeout,
            may_begin=may_begin,
            is_over=is_over,
            fail=fail,
        )
        self._policy = policy
        self._transitions = transitions
        self._retry_policy = retry_policy
        self._epoch = epoch
        self._pushes_max = parts.config.recipients.pushes_max
        self._is_broadcast = subscription.mode is DeliveryMode.BROADCAST
        self._route = None if self._single is None else self._single.route
        self._is_ordered = policy.ordered

    def send(self, delivery: Delivery, done: Done) -> None:
        """Attempt the delivery's message; `done` hears the outcome once, perhaps at once."""
        single = self._single
        if single is None:
            self._send_to_several(delivery, done)
            return
        message = delivery.message
        assert message is not None, "taken up before"
        route = delivery.route
        if route is None:
            route = self._route
            if route is None:
                try:
                    route = single.resolve(message.body)
                except Unresolved as error:
                    done(unresolved(str(error)))
                    return
            delivery.route = route
        head = self._head
        if message.written_with is not None:
            head = self._head_with(self._authorization, AVRO_CONTENT_TYPE)
        if delivery.trace is not None:
            # Each attempt has its own.
            lines = head.lines(self._message_lines(head, delivery), delivery.attempts)
        elif delivery.attempts or self._is_ordered:
            if not delivery.message_lines:
                delivery.message_lines = self._message_lines(head, delivery)
            lines = head.lines(delivery.message_lines, delivery.attempts)
        else:
            # Most messages need no second attempt, for which theirs would be kept.
            lines = head.first_lines(message)
        if self._signer is not None:
            lines += self._signature(delivery)
        policy = self._policy
        self.sender.send(
            Push(
                route,
                lines,
                message.body,
                policy.request_timeout,
                policy.socket_timeout,
                self._may_begin,
            ),
            done,
        )

    # Several addresses.

    def _send_to_several(self, delivery: Delivery, done: Done) -> None:
        message = delivery.message
        assert message is not None, "taken up before"
        if delivery.served is None:
            delivery.served = Served()
        served = delivery.served
        if self._is_broadcast:
            push = self._when_found(partial(self._broadcast, delivery, served, done=done), done)
            self._recipients.find_all(message, self._request_timeout_ms / 1_000, push)
        else:
            to_one = partial(self._send_to_one, delivery, done=done)
            self._find_one(message, served, to_one, done)

    def _send_to_one(
        self, delivery: Delivery, recipient: Recipient, route: Route, timeout_ms: int, done: Done
    ) -> None:
        delivery.route = route
        signature = b"" if self._signer is None else self._signature(delivery)
        self._push(delivery, recipient, route, signature, timeout_ms, done)

    def _broadcast(
        self,
        delivery: Delivery,
        served: Served,
        found: list[Recipient],
        timeout_ms: int,
        done: Done,
    ) -> None:
        # One for all: the same message at the same attempt.
        signature = b"" if self._signer is None else self._signature(delivery)

        def push(recipient: Recipient, landed: Done) -> None:
            route = recipient.route
            assert route is not None, "a recipient without a route is pushed nothing"
            sent_s = self._clock.monotonic_s()

            def on_outcome(outcome: SendOutcome) -> None:
                if self._is_over():
                    return
                took_s = self._clock.monotonic_s() - sent_s
                self._transitions.answered((delivery,), outcome, took_s)
                if not outcome.is_success:
                    # For a probe: whom to ask whether he is back.
                    delivery.route = route
                try:
                    landed(outcome)
                except Exception as error:  # noqa: BLE001
                    self._fail(error)

            self._push(delivery, recipient, route, signature, timeout_ms, on_outcome)

        Broadcast(
            who_missed(delivery.redriven, found),
            served,
            self._retry_policy,
            push=push,
            done=done,
            may_begin=self._may_begin,
            is_over=self._is_over,
            now_ms=self._clock.now_ms,
            pushes_max=self._pushes_max,
        ).begin()

    def _push(
        self,
        delivery: Delivery,
        recipient: Recipient,
        route: Route,
        signature: bytes,
        timeout_ms: int,
        done: Done,
    ) -> None:
        message = delivery.message
        assert message is not None, "taken up before"
        is_avro = message.written_with is not None
        content_type = AVRO_CONTENT_TYPE if is_avro else CONTENT_TYPE
        head = self._head_with(recipient.authorization, content_type)
        lines = head.lines(self._message_lines(head, delivery), delivery.attempts) + signature
        push = Push(
            route,
            lines,
            message.body,
            timeout_ms,
            self._policy.socket_timeout,
            self._may_begin,
        )
        self.sender.send(push, done)

    # Headers.

    def _message_lines(self, head: RequestHead, delivery: Delivery) -> bytes:
        assert delivery.message is not None, "taken up before"
        lines = head.message_lines(delivery.message, delivery.trace)
        if self._policy.ordered:
            record = delivery.record
            lines += b"Hermes-Sequence: %d %d %d\r\n" % (
                record.partition,
                self._epoch,
                record.offset,
            )
        return lines

    def _signature(self, delivery: Delivery) -> bytes:
        message = delivery.message
        assert message is not None, "taken up before"
        assert self._signer is not None, "asked for where there is one"
        return self._signer.sign(message.id, self._clock.now_ms() // 1_000, message.body)
