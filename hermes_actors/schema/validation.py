"""The check of a topic's messages at their publishers' door, by the schemas that a node knows."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes_actors.errors import HermesError
from hermes_actors.model.message import Message

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
    does not fit. A worker looks at it only while `is_wanted`.
    """

    @property
    def refusal(self) -> HermesError | None:
        """Why no message fits; None where it depends on the message."""

    @property
    def reads_head(self) -> bool:
        """True if the head of the request says how the body is to be read."""

    def units(self, body: bytes) -> int:
        """The work on the loop that the body can be; more than UNITS_MAX for a worker."""

    def check(self, message: Message, head: BodyHead) -> Outcome:
        """Check a message whose body is at most UNITS_MAX units, at once."""

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Check a message, at once or in a worker."""
