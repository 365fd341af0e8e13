"""How registers are keyed, and under which log topic each life of a topic lies.

A key is a path: a kind, then names, each escaped so that `/` only ever separates. Group names hold
dots, so `topic/shop/orders` (and not `topic/shop.orders`) is what makes "everything below a group"
a prefix that no other group shares.
"""

from urllib.parse import quote, unquote

from msgspec import Struct

from hermes_actors.model.names import SubscriptionName, TopicName, log_topic

GROUP = "group"
TOPIC = "topic"
SUBSCRIPTION = "subscription"
ACTIVATION = "activation"
READINESS = "readiness"
SEEK = "seek"
OAUTH = "oauth"


class Key(Struct, frozen=True):
    """A key, taken apart: its kind and its unescaped names."""

    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return key(self.kind, *self.names)


def key(kind: str, *names: str) -> str:
    """The key of any kind, e.g. `key("colour", "red")`; use it for kinds of your own."""
    return "/".join((kind, *(quote(name, safe="$ ,:@+") for name in names)))


def group_key(group: str) -> str:
    """The key of a group."""
    return key(GROUP, group)


def topic_key(name: TopicName) -> str:
    """The key of a topic."""
    return key(TOPIC, name.group, name.name)


def subscription_key(name: SubscriptionName) -> str:
    """The key of a subscription."""
    return key(SUBSCRIPTION, name.topic.group, name.topic.name, name.name)


def activation_key(name: SubscriptionName, dc: str) -> str:
    """The key that says: in this datacentre a consumer of this subscription has started."""
    return key(ACTIVATION, name.topic.group, name.topic.name, name.name, dc)


def seek_key(name: SubscriptionName, incarnation: int = 0) -> str:
    """The key that says where this life of a subscription is to go on: its last retransmission."""
    return life_key(SEEK, name, incarnation)


def life_key(kind: str, name: SubscriptionName, incarnation: int) -> str:
    """A key of one life of a subscription; the first life's has no number.

    Each life has its own key, so nothing of a life that is over counts for a later one.
    """
    life = (str(incarnation),) if incarnation else ()
    return key(kind, name.topic.group, name.topic.name, name.name, *life)


def life_of(parsed: Key) -> tuple[SubscriptionName, int] | None:
    """Which life of which subscription such a key names; None for a key of another shape."""
    names = parsed.names
    if len(names) not in (3, 4):
        return None
    life = names[3] if len(names) == 4 else "0"
    if not life.isascii() or not life.isdigit():
        return None
    return SubscriptionName(TopicName(*names[:2]), names[2]), int(life)


def oauth_key(provider: str) -> str:
    """The key of a provider of OAuth tokens."""
    return key(OAUTH, provider)


def readiness_key(dc: str) -> str:
    """The key that says whether a datacentre may be published to from others."""
    return key(READINESS, dc)


def topics_below(group: str) -> str:
    """The prefix of all topics of a group, for `Childless`."""
    return key(TOPIC, group) + "/"


def subscriptions_below(name: TopicName) -> str:
    """The prefix of all subscriptions of a topic, for `Childless`."""
    return key(SUBSCRIPTION, name.group, name.name) + "/"


def parse_key(text: str) -> Key:
    """A key's kind and names. Any text is some key; what the names mean is its kind's affair."""
    kind, *names = text.split("/")
    return Key(kind, tuple(unquote(name) for name in names))


def topic_of(parsed: Key) -> TopicName | None:
    """The topic that a topic's key names; None for a key of another kind or shape."""
    if parsed.kind != TOPIC or len(parsed.names) != 2:
        return None
    return TopicName(*parsed.names)


def subscription_of(parsed: Key) -> SubscriptionName | None:
    """The subscription that its own key, an activation's or a seek's names; None for others."""
    if parsed.kind == SEEK:
        life = life_of(parsed)
        return None if life is None else life[0]
    length = {SUBSCRIPTION: 3, ACTIVATION: 4}.get(parsed.kind)
    if length is None or len(parsed.names) != length:
        return None
    return SubscriptionName(TopicName(*parsed.names[:2]), parsed.names[2])


def log_topic_of(name: TopicName, incarnation: int, namespace: str = "") -> str:
    """The log topic that holds this life of a topic: the plain name for the first life.

    A re-created topic gets a log topic of its own, `group.topic_.<incarnation>`, so that it never
    shows its predecessor's messages and the predecessor's data can be deleted without any race.
    A group's name holds no `_`, so no other topic is called that.
    """
    plain = log_topic(name, namespace)
    return f"{plain}_.{incarnation}" if incarnation else plain


def parse_log_topic(text: str, namespace: str = "") -> tuple[TopicName, int] | None:
    """Which life of which topic a log topic would hold; None when it cannot be one of ours.

    Whether it is one is known to the metadata only: a foreign topic may look like ours.
    """
    if namespace:
        if not text.startswith(f"{namespace}_"):
            return None
        text = text.removeprefix(f"{namespace}_")
    incarnation = 0
    head, mark, tail = text.rpartition("_.")
    if mark and tail.isascii() and tail.isdigit() and not tail.startswith("0"):
        text, incarnation = head, int(tail)
    group, dot, name = text.rpartition(".")
    if not dot or not group or not name:
        return None
    return TopicName(group, name), incarnation
