"""Names of groups, topics and subscriptions: how they are written, read and checked."""

import re
from dataclasses import dataclass

from hermes_actors.errors import ErrorCode, Refused

_NAME_PART = re.compile(r"[a-zA-Z0-9_.-]+")
_GROUP = re.compile(r"[a-zA-Z0-9.]+")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's full name, written `group.topic`; the group may hold dots, the topic may not."""

    group: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "TopicName":
        """Read `group.topic`, split at the last dot. Raises Refused with FORMAT_ERROR."""
        group, dot, name = text.rpartition(".")
        if not dot or not group or not name:
            raise Refused(
                f"Invalid topic name '{text}': expected <group>.<topic>, for example shop.orders",
                ErrorCode.FORMAT_ERROR,
            )
        return cls(group, name)

    def __str__(self) -> str:
        return f"{self.group}.{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class SubscriptionName:
    """A subscription's full name, written `group.topic$subscription`."""

    topic: TopicName
    name: str

    @classmethod
    def parse(cls, text: str) -> "SubscriptionName":
        """Read `group.topic$subscription`. Raises Refused with FORMAT_ERROR."""
        topic, dollar, name = text.rpartition("$")
        if not dollar or not name:
            raise Refused(
                f"Invalid subscription name '{text}': expected <group>.<topic>$<subscription>",
                ErrorCode.FORMAT_ERROR,
            )
        return cls(TopicName.parse(topic), name)

    def __str__(self) -> str:
        return f"{self.topic}${self.name}"

    def consumer_group(self, namespace: str = "") -> str:
        """The log's consumer group: parts joined by `_`, each `_` inside a part doubled."""
        parts = (self.topic.group, self.topic.name, self.name)
        joined = "_".join(part.replace("_", "__") for part in parts)
        return f"{namespace}_{joined}" if namespace else joined


def is_name_part(text: str) -> bool:
    """True for what a topic or a subscription may be called: letters, digits, `_`, `.`, `-`."""
    return _NAME_PART.fullmatch(text) is not None


def is_group_name(text: str, pattern: str | None = None) -> bool:
    """True for what a group may be called: letters, digits and dots, or the operator's pattern."""
    if pattern is not None:
        return re.fullmatch(pattern, text) is not None
    return _GROUP.fullmatch(text) is not None


def log_topic(name: TopicName, namespace: str = "", separator: str = "_") -> str:
    """The name under which a topic's records lie in the log."""
    return f"{namespace}{separator}{name}" if namespace else str(name)
