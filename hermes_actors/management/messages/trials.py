"""Tries a subscription's endpoint with one made-up message, on an owner's behalf."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_base64, decode_plain
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.push_trial import PushTrial
from hermes_actors.runtime.clock import Clock

A_MINUTE_MAX = 12
"""Trials that a node makes in any minute: an endpoint is not to be loaded by them."""

_WINDOW_S = 60.0
_TOO_MANY_STATUS = 429

TryPush = Callable[[LiveSubscription, LiveTopic, bytes | None], Awaitable[PushTrial]]


class PushTest(Struct, frozen=True, kw_only=True):
    """The message in Base64; None: one is made up, a JSON object that says what it is."""

    message: str | None = None


class Trials:
    """Pushes of made-up messages. `push` makes them; without it this node makes none."""

    def __init__(
        self,
        topics: Topics,
        subscriptions: Subscriptions,
        clock: Clock,
        push: TryPush | None,
        place: Mapping[str, str],
    ) -> None:
        """`place` says in each answer from where was pushed."""
        self._topics = topics
        self._subscriptions = subscriptions
        self._clock = clock
        self._push = push
        self._place = dict(place)
        self._begun_s: deque[float] = deque(maxlen=A_MINUTE_MAX)

    async def make(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Request and answer of one push, for owners and administrators.

        A trio coroutine. Raises Refused, and Unavailable for what is asked too often and for a node
        that cannot push.
        """
        live = self._subscriptions.owned(caller, topic, name, "test subscription")
        asked = decode_plain(PushTest, body).message
        message = None if asked is None else decode_base64(asked, "PushTest.message")
        if self._push is None:
            raise Unavailable("This node pushes nothing; ask another management node")
        self._begin(self._clock.monotonic_s())
        trial = await self._push(live, self._topics.live(topic), message)
        shown: dict[str, Any] = msgspec.to_builtins(trial)
        return {**self._place, **shown}

    def _begin(self, now_s: float) -> None:
        """Count one more. Raises Unavailable (429) if it may not begin now."""
        begun_s = self._begun_s
        if len(begun_s) == A_MINUTE_MAX and (wait_s := begun_s[0] + _WINDOW_S - now_s) > 0:
            error = Unavailable(
                f"This node has tried {A_MINUTE_MAX} endpoints within a minute, and tries no more "
                f"for now; try again in {wait_s:.0f} s",
                ErrorCode.OTHER,
                _TOO_MANY_STATUS,
            )
            error.headers = (("retry-after", str(max(1, round(wait_s + 0.5)))),)
            raise error
        begun_s.append(now_s)
