"""Writes down that consumers have started, which turns PENDING into ACTIVE; until it is written.

Several nodes may say so of one subscription: it is the same word.
"""

import logging

import trio

from hermes_actors.errors import HermesError
from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.commands import Alive, put
from hermes_actors.metadata.keys import activation_key, subscription_key
from hermes_actors.metadata.registry import Metadata

_logger = logging.getLogger(__name__)

_PAUSE_S = 1.0


class Activations:
    """The consumers that have started, until that is written down or need not be."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        # The newest of each subscription: bounded by their number.
        self._started: dict[str, LiveSubscription] = {}
        self._is_wanted = trio.Event()

    def note(self, live: LiveSubscription) -> None:
        """Note that a consumer of this version has started. Does not wait."""
        if self._metadata.dc not in live.active_in:
            self._started[str(live.name)] = live
            self._is_wanted.set()

    def forget(self, name: str) -> None:
        """Forget the subscription: its consumer has ended."""
        self._started.pop(name, None)

    async def run(self) -> None:
        """Write down what has started, for ever."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            for name, live in list(self._started.items()):
                if not await self._activate(live):
                    self._is_wanted.set()
                    await trio.sleep(_PAUSE_S)
                elif self._started.get(name) is live:
                    del self._started[name]

    async def _activate(self, live: LiveSubscription) -> bool:
        """Write one activation down; True when it is written, or never need be."""
        dc = self._metadata.dc
        latest = self._metadata.catalog.subscriptions.get(str(live.name))
        if latest is None or latest.incarnation != live.incarnation or dc in latest.active_in:
            return True
        change = put(
            activation_key(live.name, dc),
            activation_body(live.incarnation),
            # The precondition keeps a late activation from outliving its subscription.
            Alive(subscription_key(live.name), live.incarnation),
        )
        try:
            await self._metadata.change(change)
        except HermesError as error:
            _logger.warning("%s: not shown as ACTIVE yet: %s", live.name, error.message)
            return False
        # Accepted, or the subscription is gone: in both cases there is nothing left to say.
        return True
