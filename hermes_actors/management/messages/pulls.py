"""Pull, acknowledge, give back and extend messages of pull subscriptions, for their owners and
administrators.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.pulling import (
    AckRequest,
    Asked,
    ExtendRequest,
    NackRequest,
    PullRequest,
)
from hermes_actors.model.subscription import DeliveryType, SubscriptionState

AskOwner = Callable[[LiveSubscription, Asked], Awaitable[bytes]]
"""Has the owner of a subscription answer. Raises Unavailable."""

PULLS_MAX = 200
"""Maximum number of pulls at once on a node."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Pulls:
    """The calls of clients, which `ask` answers. Raises Refused and Unavailable."""

    def __init__(self, subscriptions: Subscriptions, ask: AskOwner | None) -> None:
        self._subscriptions = subscriptions
        self._ask = ask
        self._pulls = 0

    async def pull(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Fetch messages, and wait for the first. Each comes again unless it is acknowledged before
        its deadline.
        """
        if self._pulls >= PULLS_MAX:
            raise Unavailable(f"This node serves {PULLS_MAX} pulls already; try again later")
        self._pulls += 1
        try:
            return await self._answer(caller, topic, name, PullRequest, body)
        finally:
            self._pulls -= 1

    async def ack(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Acknowledge messages: they are done. The answer lists the ids that had no effect."""
        return await self._answer(caller, topic, name, AckRequest, body)

    async def nack(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Give messages back: they come again after a delay. The answer lists the ids that had no
        effect.
        """
        return await self._answer(caller, topic, name, NackRequest, body)

    async def extend(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        """Replace the deadlines of messages. The answer lists the ids that had no effect."""
        return await self._answer(caller, topic, name, ExtendRequest, body)

    async def _answer(
        self, caller: Caller, topic: str, name: str, kind: type[Asked], body: Mapping[str, Any]
    ) -> bytes:
        live = self._subscriptions.owned(caller, topic, name, "pull from subscription")
        if live.subscription.delivery_type is not DeliveryType.PULL:
            raise Refused(
                f"Subscription {live.name} is pushed to its endpoint; only one with deliveryType "
                "PULL can be pulled"
            )
        asked = decode_plain(kind, body)
        if kind is PullRequest and live.state is SubscriptionState.SUSPENDED:
            raise Refused(
                f"Subscription {live.name} is suspended; activate it to get its messages",
                ErrorCode.OTHER,
                status=409,
            )
        if self._ask is None:
            raise Unavailable("This node knows no other nodes; ask another management node")
        return await self._ask(live, asked)
