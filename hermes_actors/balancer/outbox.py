"""Writes metadata changes for consumers: their subscription becomes ACTIVE, or SUSPENDED because
its endpoint is gone.

A suspension applies to all datacentres, whichever one's endpoint is gone.
"""

import logging
from collections.abc import Callable

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import HermesError
from hermes_actors.metadata.bodies import Suspension, activation_body, subscription_body
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.commands import Alive, Change, Rejected, StampIs, put
from hermes_actors.metadata.keys import activation_key, subscription_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState

_logger = logging.getLogger(__name__)

_PAUSE_S = 1.0
_AT_ONCE_MAX = 8


class _Wanted(Struct, frozen=True):
    """A requested change. `change` computes it from the current metadata; None if it is no longer
    needed. `done` is logged after it.
    """

    change: Callable[[], Change | None]
    done: str = ""


class Outbox:
    """Retries each change until it is written or no longer needed. Several are written at once, so
    that one that fails does not delay the others.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        # The newest change of each kind for each subscription.
        self._wanted: dict[str, _Wanted] = {}
        self._has_more = trio.Event()

    def activate(self, live: LiveSubscription) -> None:
        """Mark this version as active, because a consumer has started here. Does not wait."""
        if self._metadata.dc not in live.active_in:
            self._want(f"active {live.name}", _Wanted(lambda: self._activation(live)))

    def suspend(self, live: LiveSubscription, suspension: Suspension) -> None:
        """Suspend this version of the subscription. Does not wait."""
        done = f"{live.name} is suspended: {suspension.reason}"
        wanted = _Wanted(lambda: self._suspended(live, suspension), done)
        self._want(f"suspended {live.name}", wanted)

    async def run(self) -> None:
        """Write the requested changes. Never returns."""
        limiter = trio.CapacityLimiter(_AT_ONCE_MAX)
        at_work: set[str] = set()
        async with trio.open_nursery() as nursery:
            while True:
                self._has_more = trio.Event()
                for what in self._wanted:
                    if what not in at_work:
                        at_work.add(what)
                        nursery.start_soon(self._write_down, what, at_work, limiter)
                await self._has_more.wait()

    def _want(self, what: str, wanted: _Wanted) -> None:
        self._wanted[what] = wanted
        self._has_more.set()

    async def _write_down(
        self, what: str, at_work: set[str], limiter: trio.CapacityLimiter
    ) -> None:
        while (wanted := self._wanted.get(what)) is not None:
            async with limiter:
                is_over = await self._change(what, wanted)
            if not is_over:
                await trio.sleep(_PAUSE_S)
            elif self._wanted[what] is wanted:
                del self._wanted[what]
        at_work.discard(what)

    async def _change(self, what: str, wanted: _Wanted) -> bool:
        """Write one change. True if it is written or no longer needed."""
        change = wanted.change()
        if change is None:
            return True
        try:
            outcome = await self._metadata.change(change)
        except HermesError as error:
            _logger.warning("%s: not written yet: %s", what, error.message)
            return False
        if isinstance(outcome, Rejected):
            # Another change came first: compute this one again.
            return False
        if wanted.done:
            _logger.warning("%s", wanted.done)
        return True

    def _activation(self, live: LiveSubscription) -> Change | None:
        dc, latest = self._metadata.dc, self._latest(live)
        if latest is None or dc in latest.active_in:
            return None
        # The precondition prevents a late activation after the subscription is deleted.
        alive = Alive(subscription_key(live.name), live.incarnation)
        return put(activation_key(live.name, dc), activation_body(live.incarnation), alive)

    def _suspended(self, live: LiveSubscription, suspension: Suspension) -> Change | None:
        latest = self._latest(live)
        if latest is None or latest.subscription != live.subscription:
            # It has been changed since: its consumer tries the new version, and asks again if need
            # be.
            return None
        key = subscription_key(latest.name)
        suspended = replace(latest.subscription, state=SubscriptionState.SUSPENDED)
        body = subscription_body(suspended, latest.topic_incarnation, suspension, latest.creation)
        return put(key, body, StampIs(key, latest.stamp))

    def _latest(self, live: LiveSubscription) -> LiveSubscription | None:
        """The subscription's current version; None if it has been deleted, or deleted and created
        again.
        """
        latest = self._metadata.catalog.subscriptions.get(str(live.name))
        return None if latest is None or latest.incarnation != live.incarnation else latest
