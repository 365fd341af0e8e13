"""The check of a topic's messages at their publishers' door, by the schema that a node has adopted.

On the loop a message may be a bounded amount of work, told beforehand by its size and the schema's
weight. What may be more is asked beside the loop, and costs a queue and two pipes.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull, Ref
from hermes_actors.errors import HermesError, Unavailable
from hermes_actors.model.message import Message
from hermes_actors.schema.aside import Costly

UNITS_MAX = 50_000
"""The most work on the loop for one message, or for one slice of a batch: some 5 ms."""

Outcome = Message | HermesError
"""The message as it is to be stored, or why it is refused."""

Done = Callable[[Outcome], None]


class BodyHead(Struct, frozen=True):
    """The part of a request's head that says how its body is to be read: the Content-Type, and the
    version or the id of the schema that it is written for; 0 where none is named.
    """

    content_type: str | None = None
    version: int = 0
    schema_id: int = 0


NO_HEAD = BodyHead()
"""The head of a request of which nothing is known; enough for a check that does not read it."""


class Validation(Protocol):
    """The demands of one topic's schema. Called with a message and `done`, it calls that once,
    perhaps before it returns: with the message as it is to be stored, or with the reason why it
    does not fit. Beside the loop it is looked at only while `is_wanted`.
    """

    @property
    def refusal(self) -> HermesError | None:
        """Why no message fits; None where it depends on the message."""

    @property
    def reads_head(self) -> bool:
        """True if the head of the request says how the body is to be read."""

    def units(self, body: bytes) -> int:
        """The most work on the loop that the body can be, in units of 0.1 µs; more than UNITS_MAX
        for one that is checked beside the loop.
        """

    def check(self, message: Message, head: BodyHead) -> Outcome:
        """Check a message whose body is at most UNITS_MAX units, at once."""

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Check a message, at once or beside the loop."""


def ask_aside(aside: Ref[Costly], costly: Costly) -> None:
    """Have a question answered beside the loop; its `done` is called once, at once where too many
    wait or the node stops.
    """
    try:
        aside.tell(costly)
    except MailboxFull:
        costly.done(Unavailable("Too many costly schemas wait to be asked; try again"))
    except MailboxClosed:
        costly.done(Unavailable("The node is stopping"))
