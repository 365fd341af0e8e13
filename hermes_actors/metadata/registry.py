"""One datacentre's metadata as its node sees it, and the actor that keeps it so.

`Metadata` is made once for each node and datacentre and never goes away; `Registry` is the actor
that reads the log into it and may be restarted: the old catalog goes on serving meanwhile.
"""

import random

from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.errors import Unavailable
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Change, Outcome
from hermes_actors.metadata.state import Register, State
from hermes_actors.metadata.watch import Watch
from hermes_actors.runtime.clock import Clock, IdSource


class OutcomeUnknown(Unavailable):
    """The change may or may not be made, now or later. Repeat it with the same `command_id`."""

    def __init__(self, message: str, command_id: str) -> None:
        super().__init__(message)
        self.command_id = command_id


class Health(Struct, frozen=True):
    """Whether the catalog follows its log. `reason` says why not; "" when it does."""

    is_current: bool
    reason: str = ""


class Refold(Struct, frozen=True):
    """Ask the registry to read its log again from the beginning."""


class Metadata:
    """The metadata of the datacentre whose log this is.

    `catalog` is always there to read, empty before the first fold. `standins` are other
    datacentres' metadata: while the own log has not been read yet and cannot be, the catalog shows
    the first of them that is current, so that a node can start.
    """

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        ids: IdSource,
        rng: random.Random,
        namespace: str = "",
        standins: "tuple[Metadata, ...]" = (),
        pending_max: int = 1_000,
    ) -> None:
        self.catalog = Catalog(namespace)

    @property
    def dc(self) -> str:
        """The datacentre whose metadata this is."""
        raise NotImplementedError

    @property
    def health(self) -> Health:
        """Whether the catalog follows its log now, and if not why."""
        raise NotImplementedError

    @property
    def is_current(self) -> bool:
        """True while the log is being followed: read to its end, and answering."""
        return self.health.is_current

    @property
    def state(self) -> State:
        """The fold behind the catalog: its position, digest, and what was copied."""
        raise NotImplementedError

    def register(self, key: str) -> Register | None:
        """What a key holds (perhaps a tombstone), for kinds that the catalog does not know."""
        raise NotImplementedError

    async def wait_current(self) -> None:
        """Wait until the catalog follows its log."""
        raise NotImplementedError

    async def change(
        self, change: Change, *, timeout_s: float = 10.0, command_id: str | None = None
    ) -> Outcome:
        """Append the change and wait until the own fold has reached it: Accepted or Rejected.

        When it returns, `catalog` shows the outcome. Give the `command_id` of an OutcomeUnknown to
        repeat that change safely. Raises Refused (the log will never take it: too large),
        OutcomeUnknown after `timeout_s`, or Unavailable when nothing was stored.
        """
        raise NotImplementedError

    def watch(self) -> Watch:
        """The whole state as changes, then each difference. Close it, or use `with`."""
        raise NotImplementedError


class Registry:
    """Reads the log into one Metadata. Make a new one for each start."""

    def __init__(self, metadata: Metadata) -> None: ...

    async def run(self, inbox: Inbox[Refold]) -> None:
        """Follow the log until asked to stop."""
        raise NotImplementedError
