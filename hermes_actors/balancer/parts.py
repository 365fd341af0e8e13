"""What the agent is given by its node: who makes consumers, and who looks after what rests."""

from collections.abc import Callable, Mapping
from typing import Protocol

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Owned, Spent
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.status.collector import SubscriptionFigures


class Consumer(Protocol):
    """The actor that consumes one subscription; its messages are the subscription's versions."""

    @property
    def why(self) -> str:
        """What keeps it from delivering; "" when nothing does."""

    def figures(self) -> SubscriptionFigures:
        """What it has done and is doing, for the node's status."""

    def spent(self) -> Spent:
        """What it has done, for the node's loads."""

    def known(self) -> RateState | None:
        """What the next owner begins with."""

    def hand_over(self) -> None:
        """Its stop, which comes now, lets another node go on."""

    async def run(self, inbox: Inbox[LiveSubscription]) -> None:
        """Consume until asked to stop, then drain and commit."""


class ConsumerFactory(Protocol):
    """Makes consumers; the node passes it in."""

    def refusal(self, live: LiveSubscription, topic: LiveTopic) -> str:
        """Why the subscription cannot be consumed as it stands; "" when it can."""

    def make(
        self,
        live: LiveSubscription,
        topic: LiveTopic,
        owned: Owned,
        on_started: Callable[[], None],
    ) -> Consumer:
        """A consumer of what is owned, which `refusal` let through; it calls `on_started` when it
        has begun.
        """


class NodeCpu(Protocol):
    """What the node's process uses of the machine."""

    @property
    def cores(self) -> float:
        """How many it may use."""

    def used_s(self) -> float:
        """The CPU time that it has used, in seconds."""

    def available(self, now_s: float) -> float:
        """How many cores the machine leaves it now; `now_s` is monotonic."""


class Resting(Protocol):
    """Looks after the places of subscriptions that are this node's and not consumed now."""

    def keep(self, live: LiveSubscription, log_topic: str, owned: Owned) -> None:
        """It is not consumed from now on, or has changed meanwhile. Never waits."""

    def release(self, name: str) -> None:
        """It is consumed from now on, or gone. Never waits."""

    def reached(self, name: str) -> tuple[str, Mapping[int, int]]:
        """Its log topic, and for each partition how much is settled; nothing when not known."""


class NoRest:
    """Looks after nothing."""

    def keep(self, live: LiveSubscription, log_topic: str, owned: Owned) -> None:
        """Nothing comes of it."""

    def release(self, name: str) -> None:
        """Nothing comes of it."""

    def reached(self, name: str) -> tuple[str, Mapping[int, int]]:
        """Nothing is known."""
        return "", {}
