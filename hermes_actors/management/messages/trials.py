"""Tries a subscription's endpoint with one made-up message, on an owner's behalf."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Unavailable
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


class TrialTurns:
    """The turns of trials: one at a time for each subscription, and A_MINUTE_MAX a minute. Pure."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()
        self._begun_s: deque[float] = deque()

    def begin(self, name: str, now_s: float) -> None:
        """Begin a trial of the subscription. Raises Unavailable (429) if it may not begin now."""
        if name in self._under_way:
            raise _too_many(f"Subscription {name} is being tried already; wait for its end", 1)
        while self._begun_s and self._begun_s[0] <= now_s - _WINDOW_S:
            self._begun_s.popleft()
        if len(self._begun_s) >= A_MINUTE_MAX:
            wait_s = max(1, round(self._begun_s[0] + _WINDOW_S - now_s + 0.5))
            raise _too_many(
                f"This node has tried {A_MINUTE_MAX} endpoints within a minute, and tries no more "
                f"for now; try again in {wait_s} s",
                wait_s,
            )
        self._under_way.add(name)
        self._begun_s.append(now_s)

    def end(self, name: str) -> None:
        """End the subscription's trial: it may be tried again."""
        self._under_way.discard(name)


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
        self._turns = TrialTurns()

    async def make(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Request and answer of one push, for owners and administrators.

        A trio coroutine. Raises Refused, and Unavailable for what is asked too often and for a node
        that cannot push.
        """
        live = self._subscriptions.owned(caller, topic, name, "test subscription")
        message = _message_of(decode_plain(PushTest, body))
        if self._push is None:
            raise Unavailable("This node pushes nothing; ask another management node")
        key = str(live.name)
        self._turns.begin(key, self._clock.monotonic_s())
        try:
            trial = await self._push(live, self._topics.live(topic), message)
        finally:
            self._turns.end(key)
        shown: dict[str, Any] = msgspec.to_builtins(trial)
        return {**self._place, **shown}


def _message_of(asked: PushTest) -> bytes | None:
    return None if asked.message is None else decode_base64(asked.message, "PushTest.message")


def _too_many(message: str, wait_s: int) -> HermesError:
    error = Unavailable(message, ErrorCode.OTHER, _TOO_MANY_STATUS)
    error.headers = (("retry-after", str(wait_s)),)
    return error
