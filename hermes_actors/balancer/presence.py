"""The node's present life in its datacentre: its boot id, and until when it may act."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from hermes_actors.coordination.lease import Lease


class Presence:
    """The node's present life, for the parts that act in it. `Membership` begins and ends lives.

    A new life begins only when no part uses an earlier one any more.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        """The lease of the present life; None before the first. It may be closed or lost."""
        self._uses: dict[Lease, int] = {}
        self._changed = trio.Event()

    @property
    def boot(self) -> str:
        """The boot id of the present life; empty string before the first."""
        return "" if self.lease is None else self.lease.boot

    async def wait_life(self) -> Lease:
        """Wait for a life whose lease is not lost."""
        await trio.lowlevel.checkpoint()
        while self.lease is None or self.lease.is_lost:
            await self._changed.wait()
        return self.lease

    @contextmanager
    def using(self, lease: Lease) -> Iterator[Lease]:
        """Prevent a new life during the block, in which the caller acts in this life or cleans up
        after it.
        """
        self._uses[lease] = self._uses.get(lease, 0) + 1
        try:
            yield lease
        finally:
            self._uses[lease] -= 1
            if not self._uses[lease]:
                del self._uses[lease]
                self._notify()

    # For the membership.

    def begin(self, lease: Lease) -> None:
        """Begin a new life with this lease."""
        self.lease = lease
        self._notify()

    async def wait_ended(self) -> None:
        """Wait until no life is in use."""
        await trio.lowlevel.checkpoint()
        while self._uses:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
