"""The base of both makers of pushes: the recipients, the header lines that do not change, and what
follows when the recipients are found, which may be late.
"""

import logging
from collections.abc import Callable

from hermes_actors.consumer.delivery.delivery import Served
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.recipients.endpoint import Unresolved
from hermes_actors.consumer.recipients.headers import CONTENT_TYPE, RequestHead, request_head
from hermes_actors.consumer.recipients.resolver_recipients import Recipient, Recipients
from hermes_actors.consumer.recipients.signing import signer_of
from hermes_actors.consumer.senders.plugins import schemes_of
from hermes_actors.consumer.senders.proxying import ProxiedHosts
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Done,
    Failure,
    Route,
    Sender,
    SendOutcome,
)
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message
from hermes_actors.model.subscription import Subscription

_logger = logging.getLogger(__name__)

_HEADS_MAX = 100


def recipients_of(live: LiveSubscription, parts: ConsumerParts) -> Recipients:
    """Whom the subscription's messages go to. Raises Refused for an endpoint that is none."""
    proxy = parts.config.proxy
    return Recipients(
        live,
        parts.resolver,
        parts.names,
        is_proxied=ProxiedHosts(proxy.no_proxy).is_for if proxy.url else None,
        other_schemes=schemes_of(parts.config.senders),
        addresses_max=parts.config.recipients.addresses_max,
        now_s=parts.clock.monotonic_s,
    )


class Pushes:
    """The base of what makes the pushes of one version of a subscription, which are answered within
    `request_timeout_ms`, the look-up of the recipients included.

    `may_begin` is asked immediately before anything is sent that had to wait first. `is_over` says
    that nobody hears of outcomes any more; `fail` is told what a callback raised.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        subscription: Subscription,
        recipients: Recipients,
        *,
        request_timeout_ms: int,
        may_begin: Callable[[], bool],
        is_over: Callable[[], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        """`subscription` is the one whose headers are sent."""
        self._subscription = subscription
        self._clock = parts.clock
        self._request_timeout_ms = request_timeout_ms
        self._may_begin = may_begin
        self._is_over = is_over
        self._fail = fail
        self._recipients = recipients
        self._single = recipients.single
        self._signer = signer_of(subscription)
        self._heads: dict[tuple[str, str], RequestHead] = {}
        self._authorization = "" if self._single is None else self._single.authorization
        self._head = self._head_with(self._authorization)
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

    def _when_found(
        self, push: Callable[[list[Recipient], int], None], done: Done
    ) -> Callable[[list[Recipient] | Unresolved], None]:
        """Return the callback for the recipients: it pushes to them, in the milliseconds that are
        left, or tells `done` why not.
        """
        asked_s = self._clock.monotonic_s()

        def on_found(found: list[Recipient] | Unresolved) -> None:
            if self._is_over():
                return
            # What the look-up took is no longer left for the push.
            spent_ms = int((self._clock.monotonic_s() - asked_s) * 1_000)
            left_ms = max(1, self._request_timeout_ms - spent_ms)
            try:
                match found:
                    case _ if not self._may_begin():
                        done(NOT_BEGUN)
                    case Unresolved():
                        done(unresolved(str(found)))
                    case _:
                        push(found, left_ms)
            # It may run in a look-up's callback.
            except Exception as error:  # noqa: BLE001
                self._fail(error)

        return on_found

    def _find_one(
        self,
        message: Message,
        served: Served,
        push: Callable[[Recipient, Route, int], None],
        done: Done,
    ) -> None:
        """Find one recipient, as a rule not the last one that was found for the same messages:
        `push` to it in the milliseconds that are left, or tell `done` why not.
        """

        def on_found(found: list[Recipient], left_ms: int) -> None:
            if not found:
                done(unresolved("there is nobody to push to"))
                return
            recipient = found[0]
            served.last_key = recipient.key
            if recipient.route is None:
                done(unresolved(recipient.problem))
            else:
                push(recipient, recipient.route, left_ms)

        timeout_s = self._request_timeout_ms / 1_000
        when_found = self._when_found(on_found, done)
        self._recipients.find_one(message, served.last_key, timeout_s, when_found)

    def _head_with(self, authorization: str, content_type: str = CONTENT_TYPE) -> RequestHead:
        """The unchanging lines for an address with these credentials and bodies of this type."""
        kind = authorization, content_type
        head = self._heads.get(kind)
        if head is None:
            while len(self._heads) >= _HEADS_MAX:
                del self._heads[next(iter(self._heads))]
            head = self._heads[kind] = request_head(self._subscription, *kind)
        return head


def unresolved(problem: str) -> SendOutcome:
    """The outcome where there is nobody to push to, or no way to him."""
    return SendOutcome(0, "", Failure.UNRESOLVED, problem)
