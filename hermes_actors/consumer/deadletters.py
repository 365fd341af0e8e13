"""Where messages go that are given up: a message settles only when its dead letter is kept."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes_actors.consumer.retry import DiscardReason
from hermes_actors.model.record import StoredRecord


class DeadLetter(Struct, frozen=True, gc=False):
    """A message that is given up: its record as it lies in the log, why, and after what.

    `attempts` were made; `status` is the last answer's, 0 when there was none. `detail` is for
    people.
    """

    record: StoredRecord
    message_id: str
    reason: DiscardReason
    detail: str
    attempts: int
    status: int
    at_ms: int


class DeadLetters(Protocol):
    """Keeps dead letters of one subscription."""

    def add(self, letter: DeadLetter, kept: Callable[[], None]) -> None:
        """Keep the letter; `kept` is called once it is safe, later or now, on the loops' thread.

        Never raises and never refuses: whoever adds bounds how many are on their way.
        """


class Discarded:
    """Keeps nothing: for subscriptions that want no dead letters, as in Hermes."""

    def add(self, _letter: DeadLetter, kept: Callable[[], None]) -> None:
        """Forget the letter."""
        kept()
