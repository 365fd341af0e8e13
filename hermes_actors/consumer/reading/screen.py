"""The seam for what is looked at as soon as it is read: a record that no attempt is made for."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes_actors.model.message import Message
from hermes_actors.model.record import StoredRecord


class Filtered(Struct, frozen=True, gc=False):
    """The subscription does not want this message. `by` is the type of filter that said so."""

    by: str


class Exhausted(Struct, frozen=True, gc=False):
    """The message's filters would take longer than they may: it is given up. `detail` says why,
    `message` is what the record holds, if it had to be decoded.
    """

    detail: str
    message: Message | None = None


Seen = Message | Filtered | Exhausted | None
"""The finding on a record: its message if it had to be decoded; None: it was not looked into."""


class Later(Struct, frozen=True, gc=False):
    """Looking at the record takes too long for the loop: who reads waits for the verdict."""

    verdict: Callable[[], Awaitable[Seen]]


Screen = Callable[[StoredRecord], Seen | Later]


def let_pass(_record: StoredRecord) -> None:
    """The screen of a subscription without filters: nothing is decoded before it is taken up."""
