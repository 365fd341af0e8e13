"""Topics and subscriptions with all required fields; a test overrides what it is about."""

from typing import Any

from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.subscription import Subscription
from hermes_actors.model.topic import ContentType, Owner, RetentionTime, Topic

_OWNER = Owner("Plaintext", "team")


def a_topic(name: str = "shop.orders", **fields: Any) -> Topic:
    """A JSON topic with that full name, kept for a day."""
    needed = {"owner": _OWNER, "content_type": ContentType.JSON, "retention_time": RetentionTime(1)}
    return Topic(name=name, **{"description": "", **needed, **fields})


def a_subscription(
    name: str = "push", topic: str = "shop.orders", endpoint: str = "http://sink/in", **fields: Any
) -> Subscription:
    """A subscription to the topic with that full name."""
    needed = {"endpoint": endpoint, "description": "", "owner": _OWNER}
    return Subscription(topic_name=topic, name=name, **{**needed, **fields})


def a_live_topic(topic: Topic) -> LiveTopic:
    """The topic in its first incarnation, with its own name as log topic."""
    return LiveTopic(TopicName.parse(topic.name), topic, 0, 1, topic.name)


def a_live_subscription(subscription: Subscription) -> LiveSubscription:
    """The subscription in its seventh incarnation, to its topic's first one."""
    name = SubscriptionName.parse(f"{subscription.topic_name}${subscription.name}")
    return LiveSubscription(name, subscription, 0, 7, 1)


def stored(record: Record) -> StoredRecord:
    """The record at the beginning of dc1's log of `shop.orders`."""
    return StoredRecord(
        0, 0, record.timestamp_ms, record.key, record.value, record.headers, "dc1:shop.orders"
    )
