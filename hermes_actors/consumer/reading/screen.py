"""The seam for what is looked at as soon as it is read: a record that no attempt is made for."""

from collections.abc import Callable

from msgspec import Struct

from hermes_actors.model.message import Message
from hermes_actors.model.record import StoredRecord


class Filtered(Struct, frozen=True, gc=False):
    """The subscription does not want this message. `by` is the type of filter that said so.

    `rest_s`: how long to read nothing more, because this one took long to look at.
    """

    by: str
    rest_s: float = 0.0


Screen = Callable[[StoredRecord], Message | Filtered | None]
"""What a record holds, if it had to be decoded to be looked into; None: not looked into."""


def let_pass(_record: StoredRecord) -> None:
    """The screen of a subscription without filters: nothing is decoded before it is taken up."""
