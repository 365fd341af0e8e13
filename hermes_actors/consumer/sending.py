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
        """The sending loop has something to do before its alarm."""

    def note_room(self) -> None:
        """Fresh messages have been taken up."""

    def note_settled(self) -> None:
        """A message is gone: its bytes are free, and there is progress to commit."""

    def note_landed(self) -> None:
        """Nothing is under way any more, for an actor that stops."""


class Sending(Protocol):
    """What is pushed when, and what follows from the answers. Nothing here waits.

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
        """What the endpoint is trusted with."""

    @property
    def rate_now(self) -> float:
        """What may be sent to it, in messages a second; 0 when nothing limits it."""

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
        """The owner's share of the rate is another one: in force at once."""

    def known(self) -> RateState | None:
        """What the next owner begins with; None when nothing is learned of the endpoint."""

    def stop(self) -> None:
        """Begin no attempt any more; what is under way is still taken in."""

    def abandon(self) -> None:
        """Nobody hears of what is still under way."""

    def give_up(self, delivery: Delivery, reason: DiscardReason, detail: str) -> None:
        """A message that has just been read is not attempted: it becomes a dead letter."""

    def on_read(self) -> bool:
        """Messages have been read; True if there may be something to do about it."""

    def fill(self, now_s: float) -> int:
        """Attempt what may be attempted now; FILL_MAX when there may be more to do at once."""

    def idle_s(self, now_s: float) -> float:
        """How long there is nothing to do unless an answer comes or a batch is read."""
