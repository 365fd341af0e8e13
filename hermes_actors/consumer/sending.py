"""The seam between the actor of a subscription, which waits, and what decides, which never does."""

from typing import Protocol

from hermes_actors.consumer.delivery import Delivery
from hermes_actors.consumer.measures import Undelivered
from hermes_actors.consumer.rates.ladder import Level
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.coordination.commands import RateState
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason

FILL_MAX = 128
"""Messages between two looks at the other actors: about 2 ms of work."""

PAUSED = (
    "paused: this node has not seen its own heartbeat in the coordination log for 2 s, so that "
    "other nodes may have taken its place; it goes on when it sees one"
)


class Surroundings(Protocol):
    """The actor around it, told of what it waits for. None of these waits."""

    def wake(self) -> None:
        """Wake the sending loop: it has something to do before its alarm."""

    def note_room(self) -> None:
        """Note that fresh messages have been taken up."""

    def note_settled(self) -> None:
        """Note that a message is gone: its bytes are free, and there is progress to commit."""

    def note_landed(self) -> None:
        """Note that nothing is under way any more, for an actor that stops."""


class Sending(Protocol):
    """The part of a consumer that decides what is pushed when, and what follows from the answers.
    Nothing here waits.

    `alarm_s` is when the sending loop wakes by itself, set by it. `error` is what a callback
    raised, for the actor to raise again. `gone` says that the endpoint is gone for good, "" while
    it is not. `taken` is how many messages have been pushed, each attempt counted (the rate is used
    for them), and `taken_bytes` what they held. `last_attempts` counts those of what failed last.
    """

    live: LiveSubscription
    alarm_s: float
    error: Exception | None
    gone: str
    last_undelivered: Undelivered | None
    last_failure_ms: int
    last_success_ms: int
    last_attempts: int
    taken: int
    taken_bytes: int

    @property
    def last_failure(self) -> SendOutcome | None:
        """The outcome of the last attempt that was no success; None while there was none."""

    @property
    def read_ahead(self) -> int:
        """How many fresh messages are worth having at hand."""

    @property
    def level(self) -> Level:
        """How much the endpoint is trusted with."""

    @property
    def rate_now(self) -> float:
        """How many messages a second may be sent now; 0 when nothing limits it."""

    @property
    def allowed(self) -> float:
        """The owner's share of the rate, in messages a second; below 0 when there is no limit."""

    @property
    def held_back(self) -> str:
        """For people: what keeps it from sending faster now; "" when nothing does."""

    @property
    def dropped_headers(self) -> tuple[str, ...]:
        """Fixed headers of the subscription that are not sent."""

    def adopt(self, live: LiveSubscription) -> None:
        """Go on with this version of the subscription."""

    def divide(self) -> None:
        """Put another share of the rate in force at once."""

    def known(self) -> RateState | None:
        """Return the endpoint's rate for the next owner to begin with; None when nothing is
        learned.
        """

    def stop(self) -> None:
        """Begin no attempt any more; what is under way is still taken in."""

    def abandon(self) -> None:
        """Ignore the outcomes of what is still under way."""

    def give_up(self, delivery: Delivery, reason: DiscardReason, detail: str) -> None:
        """Make a message that has just been read a dead letter, without an attempt."""

    def on_read(self) -> bool:
        """Take note that messages have been read; True if there may be something to do about it."""

    def fill(self, now_s: float) -> int:
        """Attempt what may be attempted now; FILL_MAX when there may be more to do at once."""

    def idle_s(self, now_s: float) -> float:
        """Return how long there is nothing to do unless an answer comes or a batch is read."""
