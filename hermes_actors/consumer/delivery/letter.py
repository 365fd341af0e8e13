"""Where messages go that are given up: a message settles only when its dead letter is kept."""

from collections.abc import Callable
from typing import Protocol

import trio
from msgspec import Struct

from hermes_actors.consumer.delivery.delivery import Settlement
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.record import StoredRecord


class DeadLetter(Struct, frozen=True, gc=False):
    """A message that is given up: its record as it lies in the log, why, and after what.

    `attempts` were made; `status` is the last answer's, 0 when there was none. `detail` is for
    people. `redriven` is the dead letter that it was before it was tried again on demand.
    """

    record: StoredRecord
    message_id: str
    reason: DiscardReason
    detail: str
    attempts: int
    status: int
    at_ms: int
    redriven: Letter | None = None
    missed: tuple[str, ...] = ()
    """Of a message to all recipients, those who have not taken it."""


class DeadLetters(Protocol):
    """Keeps dead letters of one subscription, for one consumer."""

    @property
    def why(self) -> str:
        """The trouble that keeps letters from being kept; "" when there is none."""

    def add(self, letter: DeadLetter, kept: Callable[[Settlement], None]) -> None:
        """Keep the letter; `kept` is called with what became of the message once the letter is
        safe or not wanted, later or now, on the loops' thread.

        Never raises and never refuses: whoever adds bounds how many are on their way.
        """

    def adopt(self, live: LiveSubscription) -> None:
        """Go on with this version of the subscription."""

    async def run(self) -> None:
        """Keep what is added, for ever; a task of the consumer's."""


class Discarded:
    """Keeps nothing: for nodes that want no dead letters, as in Hermes."""

    why = ""

    def add(self, _letter: DeadLetter, kept: Callable[[Settlement], None]) -> None:
        """Drop the letter and say so at once."""
        kept(Settlement.DROPPED)

    def adopt(self, _live: LiveSubscription) -> None:
        """Do nothing: nothing depends on the version."""

    async def run(self) -> None:
        """Return at once: there is nothing to keep."""
        await trio.lowlevel.checkpoint()
