"""The plan of one consumer, and whether a running consumer can adopt a changed one."""

from msgspec import Struct

from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.subscription import DeliveryType, SerialPolicy
from hermes_actors.model.topic import ContentType


class ConsumerPlan(Struct, frozen=True):
    """What one consumer runs with: its subscription, the topic and the ownership."""

    live: LiveSubscription
    topic: LiveTopic
    owned: Owned

    def is_same_consumer(self, other: "ConsumerPlan") -> bool:
        """True if a running consumer can adopt the other plan without a restart."""
        return (
            self.owned is other.owned
            and self.live.incarnation == other.live.incarnation
            and self.live.topic_incarnation == other.live.topic_incarnation
            and self.topic.log_topic == other.topic.log_topic
            and self.topic.topic.content_type is other.topic.topic.content_type
            and _shape(self.live) == _shape(other.live)
        )


def _shape(live: LiveSubscription) -> tuple[DeliveryType, ContentType, bool, str]:
    """Return the settings that are fixed while a consumer runs: delivery type, content type,
    whether it keeps order, and its tracking mode.
    """
    subscription = live.subscription
    policy = subscription.subscription_policy
    is_ordered = isinstance(policy, SerialPolicy) and policy.ordered
    tracked = subscription.tracking_mode
    return subscription.delivery_type, subscription.content_type, is_ordered, tracked
