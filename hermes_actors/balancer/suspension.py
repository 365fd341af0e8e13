"""Suspends subscriptions whose endpoint is gone, with the reason, and until that is written down.

The state is everybody's: what one datacentre's endpoint has said suspends the subscription in all.
"""

import logging

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import HermesError
from hermes_actors.metadata.bodies import subscription_body
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.commands import Change, Rejected, StampIs, put
from hermes_actors.metadata.keys import subscription_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState

_logger = logging.getLogger(__name__)

_PAUSE_S = 1.0
_AT_ONCE_MAX = 8


class _Asked(Struct, frozen=True):
    live: LiveSubscription
    reason: str


class Suspensions:
    """The suspensions that consumers ask for, until they are written down or somebody has changed
    the subscription.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        # The newest of each subscription: bounded by their number.
        self._asked: dict[str, _Asked] = {}
        self._is_wanted = trio.Event()

    def ask(self, live: LiveSubscription, reason: str) -> None:
        """Suspend this version of the subscription. Does not wait."""
        self._asked[str(live.name)] = _Asked(live, reason)
        self._is_wanted.set()

    async def run(self) -> None:
        """Write down what is asked for, for ever: several at once, so that one that cannot be
        written now holds up no other.
        """
        limiter = trio.CapacityLimiter(_AT_ONCE_MAX)
        at_work: set[str] = set()
        async with trio.open_nursery() as nursery:
            while True:
                for name in self._asked:
                    if name not in at_work:
                        at_work.add(name)
                        nursery.start_soon(self._write_down, name, at_work, limiter)
                await self._is_wanted.wait()
                self._is_wanted = trio.Event()

    async def _write_down(
        self, name: str, at_work: set[str], limiter: trio.CapacityLimiter
    ) -> None:
        while (asked := self._asked.get(name)) is not None:
            async with limiter:
                is_over = await self._suspend(asked)
            if not is_over:
                await trio.sleep(_PAUSE_S)
            elif self._asked.get(name) is asked:
                del self._asked[name]
        at_work.discard(name)

    async def _suspend(self, asked: _Asked) -> bool:
        """Write one suspension down; True when it is written, or must not be."""
        change = self._change(asked)
        if change is None:
            return True
        try:
            outcome = await self._metadata.change(change)
        except HermesError as error:
            _logger.warning("%s: not suspended yet: %s", asked.live.name, error.message)
            return False
        if isinstance(outcome, Rejected):
            # Somebody else's change came between: look again at what it is now.
            return False
        _logger.warning("%s is suspended: %s", asked.live.name, asked.reason)
        return True

    def _change(self, asked: _Asked) -> Change | None:
        """The change that suspends; None when another version has made it pointless."""
        live = self._metadata.catalog.subscriptions.get(str(asked.live.name))
        if live is None or live.incarnation != asked.live.incarnation:
            return None
        if live.subscription != asked.live.subscription:
            # It has been changed since: its consumer tries again, and asks again if need be.
            return None
        key = subscription_key(live.name)
        suspended = replace(live.subscription, state=SubscriptionState.SUSPENDED)
        body = subscription_body(suspended, live.topic_incarnation, asked.reason, live.creation)
        return put(key, body, StampIs(key, live.stamp))
