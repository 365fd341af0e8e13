"""Names of groups, topics and subscriptions: format, parsing and checks."""

import re
from dataclasses import dataclass

from hermes_actors.errors import ErrorCode, Refused

KAFKA_CHARACTERS_MAX = 249
"""Maximum length of a Kafka topic's name."""
TOPIC_CHARACTERS_MAX = 200
"""Maximum length of `group.topic`: Kafka's maximum, with room for what a later incarnation adds."""
GROUP_CHARACTERS_MAX = TOPIC_CHARACTERS_MAX - 2
"""Maximum length of a group: a dot and a topic follow it, and `_hermes.dlq.` may precede it."""
RESERVED_GROUP = "_hermes"
"""The group of the broker's own topics."""
REDRIVE_SUFFIX = ".redrive"
"""Suffix of the consumer group in which a re-drive commits."""
NAME_RULE = "[a-zA-Z0-9_.-]+"

_NAME_PART = re.compile(NAME_RULE)
_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's full name, written `group.topic`; the group may hold dots, the topic may not."""

    group: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "TopicName":
        """Parse `group.topic`, split at the last dot. Raises Refused with FORMAT_ERROR."""
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
        """Parse `group.topic$subscription`. Raises Refused with FORMAT_ERROR."""
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
        """The consumer group in the log: parts joined by `_`, with each `_` inside a part
        doubled.
        """
        parts = (self.topic.group, self.topic.name, self.name)
        joined = "_".join(part.replace("_", "__") for part in parts)
        return f"{namespace}_{joined}" if namespace else joined


def is_name_part(text: str) -> bool:
    """True for valid names of topics and subscriptions: letters, digits, `_`, `.`, `-`."""
    return _NAME_PART.fullmatch(text) is not None


def group_problem(text: str, pattern: str) -> str:
    """Why a new group cannot have this name; empty string if it can. `pattern` is the operator's.

    A group's name is part of its topics' names in the log, so it is limited to Kafka's characters
    and leaves room for a topic. It is also a part of URLs.
    """
    if len(text) > GROUP_CHARACTERS_MAX:
        return (
            f"it has {len(text)} characters; the maximum is {GROUP_CHARACTERS_MAX}, so that "
            "group and "
            f"topic together stay within {TOPIC_CHARACTERS_MAX}"
        )
    if re.fullmatch(pattern, text) is None:
        return f"it must match {pattern}"
    if not is_name_part(text):
        return f"it must match {NAME_RULE}, as topics of Kafka do"
    if not text.strip("."):
        return "it must not consist of dots only, which have a meaning in URLs and in Kafka"
    if f"{text}.".startswith(f"{RESERVED_GROUP}."):
        return f"{RESERVED_GROUP} and everything below it belongs to the broker"
    return ""


def subscription_problem(name: SubscriptionName) -> str:
    """Why a new subscription cannot have this name; empty string if it can. Does not check the
    characters.
    """
    if not name.name.strip("."):
        return "must not consist of dots only, which have a meaning in URLs and in Kafka"
    group = name.consumer_group()
    if len(group) + len(REDRIVE_SUFFIX) > KAFKA_CHARACTERS_MAX:
        most = KAFKA_CHARACTERS_MAX - len(REDRIVE_SUFFIX)
        return (
            f"is too long: its consumer group {group[:_SHOWN_MAX]}… (each _ counts twice) has "
            f"{len(group)} characters, and the maximum is {most}; take a shorter name"
        )
    return ""


MARK = "~memory"
"""What the log topic of a topic in memory ends with; no name in Kafka has a tilde."""


def is_volatile(log_topic: str) -> bool:
    """True for the log topic of a topic whose messages are in memory."""
    return log_topic.endswith(MARK)


def log_topic(name: TopicName, namespace: str = "", separator: str = "_") -> str:
    """The name of a topic in the log."""
    return f"{namespace}{separator}{name}" if namespace else str(name)
