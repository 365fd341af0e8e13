"""Test pushes: one message to a subscription's endpoint, for its owners and administrators."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_base64, decode_plain
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.push_trial import PushTrial
from hermes_actors.model.subscription import DeliveryType

TryPush = Callable[[LiveSubscription, LiveTopic, bytes | None], Awaitable[PushTrial]]


class PushTest(Struct, frozen=True, kw_only=True):
    """The message in Base64. None: a generated JSON object, which says that it is a test."""

    message: str | None = None


class Trials:
    """Test pushes, made by `push`. `place`: the datacentre and node, added to each answer."""

    def __init__(
        self,
        topics: Topics,
        subscriptions: Subscriptions,
        push: TryPush | None,
        place: Mapping[str, str],
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._push = push
        self._place = dict(place)

    async def make(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Push one message now. Returns the request and its answer.

        A trio coroutine. Raises Refused, and Unavailable on a node that cannot push.
        """
        live = self._subscriptions.owned(caller, topic, name, "test subscription")
        if live.subscription.delivery_type is DeliveryType.PULL:
            raise Refused(f"Subscription {live.name} is pulled: it has no endpoint to push to")
        asked = decode_plain(PushTest, body).message
        message = None if asked is None else decode_base64(asked, "PushTest.message")
        if self._push is None:
            raise Unavailable("This node does not push; ask another management node")
        trial = await self._push(live, self._topics.live(topic), message)
        shown: dict[str, Any] = msgspec.to_builtins(trial)
        return {**self._place, **shown}
