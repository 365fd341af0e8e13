"""Tells this node's consumers that a re-drive has been asked for, changed or cancelled."""

from typing import Protocol

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.metadata.catalog import LiveSubscription, OtherChanged
from hermes_actors.metadata.keys import parse_key
from hermes_actors.metadata.redrives import REDRIVE, Redrive, redrive_key, redrive_of
from hermes_actors.metadata.registry import Metadata


class RedriveBoard(Protocol):
    """Where consumers look for what they are to re-drive."""

    def find(self, live: LiveSubscription) -> Redrive | None:
        """Return the re-drive of this life of a subscription; None when there is none."""

    def version(self, live: LiveSubscription) -> object:
        """Return another value whenever `find` may have another answer; cheap to ask for."""

    async def wait_changed(self) -> None:
        """Wait until any subscription's re-drive changes; take the answer of `find` after that."""


class NoRedrives:
    """The board of consumers that nobody can ask: there are no re-drives."""

    def find(self, _live: LiveSubscription) -> Redrive | None:
        """Return None."""
        return None

    def version(self, _live: LiveSubscription) -> object:
        """Return always the same value."""
        return None

    async def wait_changed(self) -> None:
        """Wait for ever."""
        await trio.sleep_forever()


class FollowedRedrives:
    """The re-drives in a datacentre's metadata; an actor that follows it. One for each node."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._changed = trio.Event()

    def find(self, live: LiveSubscription) -> Redrive | None:
        """The re-drive of this life of a subscription."""
        return redrive_of(self._metadata.catalog, live.name, live.incarnation)

    def version(self, live: LiveSubscription) -> object:
        """Return another value whenever `find` may have another answer."""
        return self._metadata.catalog.others.get(redrive_key(live.name, live.incarnation))

    async def wait_changed(self) -> None:
        """Wait until any subscription's re-drive changes."""
        await self._changed.wait()

    async def run(self, stop: trio.Event) -> None:
        """Follow the metadata until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        with self._metadata.watch() as watch:
            while await watch.wait():
                changes = watch.take_nowait()
                if any(
                    isinstance(change, OtherChanged) and parse_key(change.key).kind == REDRIVE
                    for change in changes
                ):
                    self._changed.set()
                    self._changed = trio.Event()
