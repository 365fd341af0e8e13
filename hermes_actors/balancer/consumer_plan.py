"""What one consumer runs by, and whether a running one can take a change over."""

from msgspec import Struct

from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.subscription import DeliveryType, SerialPolicy
from hermes_actors.model.topic import ContentType


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
