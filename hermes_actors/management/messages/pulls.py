"""Pull, acknowledge, give back and extend messages of pull subscriptions, for their owners and
administrators.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import S, decode_plain
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.pulling import (
    ACK_DEADLINE_S_MAX,
    MESSAGES_MAX,
    WAIT_MS_MAX,
    AckRequest,
    Asked,
    ExtendRequest,
    NackRequest,
    PullRequest,
)
from hermes_actors.model.subscription import DeliveryType, SubscriptionState

DELAY_MS_MAX = 7_200_000

AskOwner = Callable[[LiveSubscription, Asked], Awaitable[bytes]]
"""Has the owner of a subscription answer. Raises Unavailable."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Pulls:
    """The calls of clients, which `ask` answers. Raises Refused and Unavailable."""

    def __init__(self, subscriptions: Subscriptions, ask: AskOwner | None) -> None:
        self._subscriptions = subscriptions
        self._ask = ask

    async def pull(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Fetch messages, and wait for the first. Each comes again unless it is acknowledged before
        its deadline.
        """
        live = self._pulled(caller, topic, name)
        asked = decode_plain(PullRequest, body)
        _require_in("PullRequest.maxMessages", asked.max_messages, 1, MESSAGES_MAX)
        _require_in("PullRequest.waitMs", asked.wait_ms, 0, WAIT_MS_MAX)
        return await self._answer(live, asked)

    async def ack(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Acknowledge messages: they are done. The answer lists the ids that had no effect."""
        live = self._pulled(caller, topic, name)
        return await self._answer(live, _with_ids(AckRequest, body))

    async def nack(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Give messages back: they come again after a delay. The answer lists the ids that had no
        effect.
        """
        live = self._pulled(caller, topic, name)
        asked = _with_ids(NackRequest, body)
        if asked.delay_ms is not None:
            _require_in("NackRequest.delayMs", asked.delay_ms, 0, DELAY_MS_MAX)
        return await self._answer(live, asked)

    async def extend(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Replace the deadlines of messages. The answer lists the ids that had no effect."""
        live = self._pulled(caller, topic, name)
        asked = _with_ids(ExtendRequest, body)
        seconds = asked.ack_deadline_seconds
        _require_in("ExtendRequest.ackDeadlineSeconds", seconds, 1, ACK_DEADLINE_S_MAX)
        return await self._answer(live, asked)

    def _pulled(self, caller: Caller, topic: str, name: str) -> LiveSubscription:
        live = self._subscriptions.owned(caller, topic, name, "pull from subscription")
        if live.subscription.delivery_type is not DeliveryType.PULL:
            raise Refused(
                f"Subscription {live.name} is pushed to its endpoint; only one with deliveryType "
                "PULL can be pulled"
            )
        return live

    async def _answer(self, live: LiveSubscription, asked: Asked) -> bytes:
        if live.state is SubscriptionState.SUSPENDED:
            raise Refused(
                f"Subscription {live.name} is suspended; activate it, and its messages come",
                ErrorCode.OTHER,
                status=409,
            )
        if self._ask is None:
            raise Unavailable("This node knows no other nodes; ask another management node")
        return await self._ask(live, asked)


def _with_ids(kind: type[S], body: Mapping[str, Any]) -> S:
    asked = decode_plain(kind, body)
    count = len(asked.ack_ids)  # type: ignore[attr-defined]
    _require_in(f"{kind.__name__}.ackIds, their number", count, 1, MESSAGES_MAX)
    return asked


def _require_in(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Refused(f"{what} must be from {low} to {high}")
