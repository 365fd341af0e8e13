"""The seams of the agent, which its node fills: consumers, their factory, the CPU, and the part
that looks after what rests; and by what a consumer runs.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Owned, Spent
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.subscription import DeliveryType, SerialPolicy
from hermes_actors.model.topic import ContentType
from hermes_actors.status.record import SubscriptionFigures


class Consumer(Protocol):
    """The actor that consumes one subscription; its messages are the subscription's versions."""

    def figures(self) -> SubscriptionFigures:
        """Return what the consumer has done and is doing, for the node's status."""

    def reached(self) -> tuple[str, Mapping[int, int]]:
        """Return its log topic, and for each partition how much is settled."""

    def spent(self) -> Spent:
        """Return the totals since the consumer was made, for the node's loads."""

    def known(self) -> RateState | None:
        """Return the endpoint's rate for the next owner to begin with; None when nothing is
        known.
        """

    def hand_over(self) -> None:
        """Shorten the grace of the stop, which comes now: another node waits to go on."""

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


class ConsumerPlan(Struct, frozen=True):
    """The version, the topic and the ownership by which one consumer runs, or should."""

    live: LiveSubscription
    topic: LiveTopic
    owned: Owned

    def is_same_consumer(self, other: "ConsumerPlan") -> bool:
        """True when a running consumer can take the other plan over without a restart."""
        return (
            self.owned is other.owned
            and self.live.incarnation == other.live.incarnation
            and self.live.topic_incarnation == other.live.topic_incarnation
            and self.topic.log_topic == other.topic.log_topic
            and self.topic.topic.content_type is other.topic.topic.content_type
            and _shape(self.live) == _shape(other.live)
        )


def _shape(live: LiveSubscription) -> tuple[DeliveryType, ContentType, bool, str]:
    """Return what is fixed while a consumer runs: its delivery type, what it is pushed, whether it
    keeps order, and what is tracked of it.
    """
    subscription = live.subscription
    policy = subscription.subscription_policy
    is_ordered = isinstance(policy, SerialPolicy) and policy.ordered
    tracked = subscription.tracking_mode
    return subscription.delivery_type, subscription.content_type, is_ordered, tracked


class NodeCpu(Protocol):
    """The CPU of the machine that the node's process uses and may use."""

    @property
    def cores(self) -> float:
        """How many cores the process may use."""

    def used_s(self) -> float:
        """Return the CPU time that the process has used, in seconds."""

    def available(self, now_s: float) -> float:
        """Return how many cores the machine leaves the process now; `now_s` is monotonic."""


class Resting(Protocol):
    """Looks after the places of subscriptions that are this node's and not consumed now."""

    def keep(self, live: LiveSubscription, log_topic: str, owned: Owned) -> None:
        """Look after one that is not consumed from now on, or has changed meanwhile. Never
        waits.
        """

    def release(self, name: str) -> None:
        """Stop looking after a subscription that is consumed from now on, or gone. Never waits."""

    def reached(self, name: str) -> tuple[str, Mapping[int, int]]:
        """Return its log topic, and for each partition how much is settled; nothing if unknown."""


class NoRest:
    """Looks after nothing."""

    def keep(self, live: LiveSubscription, log_topic: str, owned: Owned) -> None:
        """Do nothing."""

    def release(self, name: str) -> None:
        """Do nothing."""

    def reached(self, name: str) -> tuple[str, Mapping[int, int]]:
        """Return nothing, for nothing is known."""
        return "", {}
