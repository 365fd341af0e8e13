"""The keys of registers, and the log topic of each incarnation of a topic.

A key is a path: a kind, then names, escaped so that `/` is only a separator. Group names contain
dots, so only `topic/shop/orders` (not `topic/shop.orders`) makes "everything in a group" a prefix
that no other group shares.
"""

from urllib.parse import quote, unquote

from msgspec import Struct

from hermes_actors.model.names import MARK, SubscriptionName, TopicName, log_topic

GROUP = "group"
TOPIC = "topic"
SUBSCRIPTION = "subscription"
ACTIVATION = "activation"
READINESS = "readiness"
SEEK = "seek"
REDRIVE = "redrive"
OAUTH = "oauth"
HOLDER = "holder"


class Key(Struct, frozen=True):
    """A parsed key: its kind and its unescaped names."""

    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return key(self.kind, *self.names)


def key(kind: str, *names: str) -> str:
    """The key for any kind, e.g. `key("colour", "red")`."""
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
    """The key of an activation: a consumer of this subscription has started in this datacentre."""
    return key(ACTIVATION, name.topic.group, name.topic.name, name.name, dc)


def seek_key(name: SubscriptionName, incarnation: int = 0) -> str:
    """The key of the last retransmission of this incarnation of a subscription."""
    return life_key(SEEK, name, incarnation)


def life_key(kind: str, name: SubscriptionName, incarnation: int) -> str:
    """A key for one incarnation of a subscription; the first one has no number.

    Separate keys ensure that nothing of an ended incarnation affects a later one.
    """
    life = (str(incarnation),) if incarnation else ()
    return key(kind, name.topic.group, name.topic.name, name.name, *life)


def life_of(parsed: Key) -> tuple[SubscriptionName, int] | None:
    """The subscription and incarnation that such a key names; None for other keys."""
    names = parsed.names
    if len(names) not in (3, 4):
        return None
    life = names[3] if len(names) == 4 else "0"
    if not life.isascii() or not life.isdigit():
        return None
    return SubscriptionName(TopicName(*names[:2]), names[2]), int(life)


def oauth_key(provider: str) -> str:
    """The key of an OAuth provider."""
    return key(OAUTH, provider)


def readiness_key(dc: str) -> str:
    """The key of a datacentre's readiness: whether other datacentres may publish to it."""
    return key(READINESS, dc)


def holder_key(dc: str, partition: int) -> str:
    """The key of the claim of a partition of all topics in memory, in a datacentre."""
    return key(HOLDER, dc, str(partition))


def topics_below(group: str) -> str:
    """The prefix of all topics of a group, for `Childless`."""
    return key(TOPIC, group) + "/"


def subscriptions_below(name: TopicName) -> str:
    """The prefix of all subscriptions of a topic, for `Childless`."""
    return key(SUBSCRIPTION, name.group, name.name) + "/"


def parse_key(text: str) -> Key:
    """Parse a key into its kind and names. Any text is a key; each kind checks its names."""
    kind, *names = text.split("/")
    return Key(kind, tuple(unquote(name) for name in names))


def topic_of(parsed: Key) -> TopicName | None:
    """The topic that a topic key names; None for other keys."""
    if parsed.kind != TOPIC or len(parsed.names) != 2:
        return None
    return TopicName(*parsed.names)


def subscription_of(parsed: Key) -> SubscriptionName | None:
    """The subscription that a key of a subscription, activation or seek names; None for other
    keys.
    """
    if parsed.kind == SEEK:
        life = life_of(parsed)
        return None if life is None else life[0]
    length = {SUBSCRIPTION: 3, ACTIVATION: 4}.get(parsed.kind)
    if length is None or len(parsed.names) != length:
        return None
    return SubscriptionName(TopicName(*parsed.names[:2]), parsed.names[2])


def log_topic_of(
    name: TopicName, incarnation: int, namespace: str = "", *, is_in_memory: bool = False
) -> str:
    """The log topic of this incarnation of a topic; the plain name for the first one. Of a topic in
    memory it has a mark.

    A topic that was created again gets another log topic, `group.topic_.<incarnation>`. So it never
    shows its predecessor's messages, and those can be deleted without a race. A group's name
    contains no `_`, so the name is unique.
    """
    plain = log_topic(name, namespace)
    named = f"{plain}_.{incarnation}" if incarnation else plain
    return named + MARK if is_in_memory else named


def parse_log_topic(text: str, namespace: str = "") -> tuple[TopicName, int] | None:
    """The topic and incarnation to which a log topic would belong; None if the name is impossible.

    Only the metadata knows whether it does belong to them: a foreign topic may have such a name.
    """
    if namespace:
        if not text.startswith(f"{namespace}_"):
            return None
        text = text.removeprefix(f"{namespace}_")
    text, incarnation = text.removesuffix(MARK), 0
    head, mark, tail = text.rpartition("_.")
    if mark and tail.isascii() and tail.isdigit() and not tail.startswith("0"):
        text, incarnation = head, int(tail)
    group, dot, name = text.rpartition(".")
    if not dot or not group or not name:
        return None
    return TopicName(group, name), incarnation
