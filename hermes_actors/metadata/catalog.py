"""The groups, topics and subscriptions in the folded registers, by name. Reading never waits.

Registers may arrive in any order (a subscription before its topic): the same registers always give
the same catalog. A subscription is live while its topic exists in the incarnation that it was
created for; otherwise it is an orphan. A body that cannot be decoded is left out, counted and
reported.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.metadata.bodies import (
    Suspension,
    UndecodableBody,
    decode_activation,
    decode_group,
    decode_oauth,
    decode_readiness,
    decode_subscription,
    decode_topic,
)
from hermes_actors.metadata.creation import Creation
from hermes_actors.metadata.keys import (
    ACTIVATION,
    GROUP,
    OAUTH,
    READINESS,
    SEEK,
    SUBSCRIPTION,
    TOPIC,
    Key,
    log_topic_of,
    parse_key,
    seek_key,
    subscription_of,
    topic_of,
)
from hermes_actors.metadata.schemas import (
    decode_compatibility,
    decode_schema,
    decode_version,
    levelled_by,
    schema_of,
    version_of,
)
from hermes_actors.metadata.seek import Seek, decode_seek
from hermes_actors.metadata.state import Register
from hermes_actors.metadata.workload import (
    constrained_by,
    decode_constraint,
    decode_drain,
    drained_by,
)
from hermes_actors.model.group import Group
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.schema import Compatibility, Schema
from hermes_actors.model.subscription import Subscription, SubscriptionState
from hermes_actors.model.topic import Topic
from hermes_actors.model.workload import Constraints, NodeDrain


class LiveGroup(Struct, frozen=True):
    """A group, with the version that clients see."""

    name: str
    group: Group
    incarnation: int
    stamp: int


class LiveTopic(Struct, frozen=True):
    """A topic, with the version that clients see, and the log topic of this incarnation."""

    name: TopicName
    topic: Topic
    incarnation: int
    stamp: int
    log_topic: str


class LiveSubscription(Struct, frozen=True):
    """A subscription, and the datacentres, sorted, in which a consumer of this incarnation has
    started.

    `seek` is its last retransmission, or None. `suspension` None: it is not suspended, or since
    when is unknown. `creation` has the ends of the topic's partitions when it was created; None if
    unknown.
    """

    name: SubscriptionName
    subscription: Subscription
    topic_incarnation: int
    incarnation: int
    stamp: int
    active_in: tuple[str, ...] = ()
    seek: Seek | None = None
    suspension: Suspension | None = None
    creation: Creation | None = None

    @property
    def state(self) -> SubscriptionState:
        """The state shown: SUSPENDED if requested, ACTIVE once it is consumed in any datacentre,
        else PENDING.
        """
        if self.subscription.state is SubscriptionState.SUSPENDED:
            return SubscriptionState.SUSPENDED
        return SubscriptionState.ACTIVE if self.active_in else SubscriptionState.PENDING


class LiveOAuthProvider(Struct, frozen=True):
    """An OAuth provider, with the version that clients see."""

    provider: OAuthProvider
    incarnation: int
    stamp: int


class Orphan(Struct, frozen=True):
    """A subscription whose topic does not exist in the incarnation that it names.

    `is_final`: that incarnation is over for good, so the subscription may be deleted. Otherwise the
    topic's creation may still arrive from another datacentre.
    """

    name: SubscriptionName
    topic_incarnation: int
    stamp: int
    is_final: bool


class GroupChanged(Struct, frozen=True):
    """A group's new value; None if it was deleted."""

    name: str
    group: LiveGroup | None


class TopicChanged(Struct, frozen=True):
    """A topic's new value (`group.topic`); None if it was deleted. A new incarnation is a new
    topic.
    """

    name: str
    topic: LiveTopic | None


class SubscriptionChanged(Struct, frozen=True):
    """A subscription's new value (`group.topic$name`); None if it is no longer live."""

    name: str
    subscription: LiveSubscription | None


class OtherChanged(Struct, frozen=True):
    """The new register of any other kind; a tombstone if it was deleted."""

    key: str
    register: Register | None


CatalogChange = GroupChanged | TopicChanged | SubscriptionChanged | OtherChanged


class Catalog:
    """The current metadata. Only the registry calls `apply` and `forget`.

    The dictionaries are keyed by `group`, `group.topic` and `group.topic$subscription`; `others` by
    key. The following are also in `others`: `oauth_providers` by name; `constraints` by
    `group.topic` or `group.topic$subscription`, which need not exist; `drains` by datacentre and
    node; `schemas` by id; `compatibility` by subject; `subjects`, the schema ids of each subject's
    versions. `undecodable` maps keys to reasons.
    """

    def __init__(self, namespace: str = "") -> None:
        self.groups: dict[str, LiveGroup] = {}
        self.topics: dict[str, LiveTopic] = {}
        self.subscriptions: dict[str, LiveSubscription] = {}
        self.orphans: dict[str, Orphan] = {}
        self.oauth_providers: dict[str, LiveOAuthProvider] = {}
        self.constraints: dict[str, Constraints] = {}
        self.drains: dict[tuple[str, str], NodeDrain] = {}
        self.schemas: dict[int, Schema] = {}
        self.subjects: dict[str, dict[int, int]] = {}
        self.compatibility: dict[str, Compatibility] = {}
        self.others: dict[str, Register] = {}
        self.undecodable: dict[str, str] = {}
        self._namespace = namespace
        # Subscriptions whose registers are alive, live or orphaned; without activations and seeks.
        self._known: dict[str, LiveSubscription] = {}
        # The latest incarnation in each topic's register, even if that is a tombstone.
        self._topic_incarnations: dict[str, int] = {}
        self._names_by_topic: dict[str, dict[str, None]] = {}
        self._activations: dict[SubscriptionName, dict[str, int]] = {}
        self._seeks: dict[str, Seek] = {}
        self._readiness: dict[str, bool] = {}
        # Kinds that are just a decoded body under a name: the dictionary, the name for a key, and
        # the decoder.
        self._by_name: tuple[
            tuple[dict[Any, Any], Callable[[Key], object], Callable[[bytes], Any]], ...
        ] = (
            (self._readiness, _datacentre_of, decode_readiness),
            (self.constraints, constrained_by, decode_constraint),
            (self.drains, drained_by, decode_drain),
            (self.schemas, schema_of, decode_schema),
            (self.compatibility, levelled_by, decode_compatibility),
        )

    def branch(self) -> "Catalog":
        """A catalog with the same content, to be changed separately."""
        branch = Catalog(self._namespace)
        for name, content in vars(self).items():
            if isinstance(content, dict):
                # Into the dictionary that is there already, which `_by_name` refers to.
                vars(branch)[name].update(
                    {k: dict(v) if isinstance(v, dict) else v for k, v in content.items()}
                )
        return branch

    def is_ready(self, dc: str) -> bool:
        """False if an administrator has marked the datacentre as not ready."""
        return self._readiness.get(dc, True)

    def marked_datacenters(self) -> list[str]:
        """The datacentres that an administrator has ever marked, as ready or not, sorted."""
        return sorted(self._readiness)

    def draining_in(self, dc: str) -> list[str]:
        """The draining nodes of a datacentre, sorted; they need not exist."""
        return sorted(node for each, node in self.drains if each == dc)

    def subscriptions_of(self, topic: TopicName | str) -> list[LiveSubscription]:
        """The live subscriptions of a topic, sorted by name."""
        names = self._names_by_topic.get(str(topic), {})
        return [self.subscriptions[name] for name in sorted(names) if name in self.subscriptions]

    def activations_in(self, dc: str) -> list[tuple[SubscriptionName, int]]:
        """The subscriptions with an activation in this datacentre, each with the activated
        incarnation, sorted by name. Includes deleted subscriptions.
        """
        return [
            (name, self._activations[name][dc])
            for name in sorted(self._activations, key=str)
            if dc in self._activations[name]
        ]

    def seek_keys(self) -> list[str]:
        """The keys of all retransmissions, sorted, including those of ended incarnations."""
        return sorted(self._seeks)

    def topics_of(self, group: str) -> list[LiveTopic]:
        """The live topics of a group, sorted by name. Scans all topics."""
        return [self.topics[name] for name in sorted(self.topics) if _group_of(name) == group]

    def versions_of(self, subject: str) -> dict[int, Schema]:
        """The versions of a subject, oldest first, without those whose schema has not arrived
        yet.
        """
        ids = self.subjects.get(subject, {})
        return {each: self.schemas[ids[each]] for each in sorted(ids) if ids[each] in self.schemas}

    def subjects_by(self, key: str) -> list[str]:
        """Return the subjects whose versions a change of this key may affect."""
        parsed = parse_key(key)
        version = version_of(parsed)
        if version is not None:
            return [version[0]]
        schema_id = schema_of(parsed)
        if schema_id is None:
            return []
        return [name for name, ids in self.subjects.items() if schema_id in ids.values()]

    def apply(self, register: Register) -> list[CatalogChange]:
        """Apply a register's new value. Returns the resulting changes, perhaps none."""
        return self._take_in(register.key, register)

    def forget(self, key: str) -> list[CatalogChange]:
        """Remove a register that has disappeared (its log was lost; it was not deleted)."""
        return self._take_in(key, None)

    def _take_in(self, key: str, register: Register | None) -> list[CatalogChange]:
        self.undecodable.pop(key, None)
        parsed = parse_key(key)
        alive = register if register is not None and register.is_alive else None
        match parsed.kind:
            case kind if kind == GROUP and len(parsed.names) == 1:
                return self._take_in_group(parsed.names[0], alive)
            case kind if kind == TOPIC and (topic := topic_of(parsed)) is not None:
                return self._take_in_topic(topic, register)
            case kind if kind in (SUBSCRIPTION, ACTIVATION, SEEK):
                name = subscription_of(parsed)
                if name is not None and kind == SUBSCRIPTION:
                    return self._take_in_subscription(name, alive)
                if name is not None and kind == SEEK:
                    return self._take_in_seek(key, name, alive)
                if name is not None:
                    return self._take_in_activation(name, parsed, alive)
        for values, name_of, decode in self._by_name:
            if (named := name_of(parsed)) is not None:
                _replace(values, named, self._decode(alive, decode))
        if parsed.kind == OAUTH and len(parsed.names) == 1:
            self._take_in_oauth(parsed.names[0], alive)
        if (version := version_of(parsed)) is not None:
            self._take_in_version(*version, alive)
        if alive is None:
            return [OtherChanged(key, register)] if self.others.pop(key, None) else []
        if self.others.get(key) == alive:
            return []
        self.others[key] = alive
        return [OtherChanged(key, alive)]

    def _take_in_group(self, name: str, alive: Register | None) -> list[CatalogChange]:
        decoded = self._decode(alive, decode_group)
        group = None
        if alive is not None and decoded is not None:
            group = LiveGroup(name, decoded, alive.incarnation, alive.stamp)
        if not _replace(self.groups, name, group):
            return []
        return [GroupChanged(name, group)]

    def _take_in_topic(self, name: TopicName, register: Register | None) -> list[CatalogChange]:
        text = str(name)
        decoded = self._decode(register, decode_topic)
        topic = None
        if register is not None and decoded is not None:
            log_topic = log_topic_of(
                name, register.incarnation, self._namespace, is_in_memory=decoded.is_in_memory
            )
            topic = LiveTopic(name, decoded, register.incarnation, register.stamp, log_topic)
        if register is None:
            self._topic_incarnations.pop(text, None)
        else:
            self._topic_incarnations[text] = register.incarnation
        changes: list[CatalogChange] = []
        if _replace(self.topics, text, topic):
            changes.append(TopicChanged(text, topic))
        for subscription in list(self._names_by_topic.get(text, ())):
            changes += self._settle(subscription)
        return changes

    def _take_in_subscription(
        self, name: SubscriptionName, alive: Register | None
    ) -> list[CatalogChange]:
        text, topic = str(name), str(name.topic)
        decoded = self._decode(alive, decode_subscription)
        siblings = self._names_by_topic.setdefault(topic, {})
        if alive is not None and decoded is not None:
            self._known[text] = LiveSubscription(
                name,
                decoded.subscription,
                decoded.topic_incarnation,
                alive.incarnation,
                alive.stamp,
                suspension=decoded.suspended,
                creation=decoded.creation,
            )
            siblings[text] = None
        else:
            self._known.pop(text, None)
            siblings.pop(text, None)
            if not siblings:
                del self._names_by_topic[topic]
        return self._settle(text)

    def _take_in_activation(
        self, name: SubscriptionName, parsed: Key, alive: Register | None
    ) -> list[CatalogChange]:
        dc = parsed.names[3]
        incarnation = self._decode(alive, decode_activation)
        activations = self._activations.setdefault(name, {})
        if incarnation is not None:
            activations[dc] = incarnation
        else:
            activations.pop(dc, None)
            if not activations:
                del self._activations[name]
        return self._settle(str(name))

    def _take_in_seek(
        self, key: str, name: SubscriptionName, alive: Register | None
    ) -> list[CatalogChange]:
        body = self._decode(alive, decode_seek)
        seek = None if alive is None or body is None else Seek(alive.stamp, body)
        _replace(self._seeks, key, seek)
        return self._settle(str(name))

    def _take_in_oauth(self, name: str, alive: Register | None) -> None:
        decoded = self._decode(alive, decode_oauth)
        provider = None
        if alive is not None and decoded is not None:
            provider = LiveOAuthProvider(decoded, alive.incarnation, alive.stamp)
        _replace(self.oauth_providers, name, provider)

    def _take_in_version(self, subject: str, version: int, alive: Register | None) -> None:
        versions = self.subjects.setdefault(subject, {})
        _replace(versions, version, self._decode(alive, decode_version))
        if not versions:
            del self.subjects[subject]

    def _settle(self, name: str) -> list[CatalogChange]:
        """Determine again whether a subscription is live, an orphan, or neither."""
        known = self._known.get(name)
        live = orphan = None
        if known is not None:
            topic = self.topics.get(str(known.name.topic))
            if topic is not None and topic.incarnation == known.topic_incarnation:
                live = self._live(known)
            else:
                latest = self._topic_incarnations.get(str(known.name.topic), 0)
                is_final = latest > known.topic_incarnation
                orphan = Orphan(known.name, known.topic_incarnation, known.stamp, is_final)
        _replace(self.orphans, name, orphan)
        if not _replace(self.subscriptions, name, live):
            return []
        return [SubscriptionChanged(name, live)]

    def _live(self, known: LiveSubscription) -> LiveSubscription:
        started = self._activations.get(known.name, {})
        active_in = sorted(dc for dc in started if started[dc] == known.incarnation)
        return replace(known, active_in=tuple(active_in), seek=self._seek_of(known))

    def _seek_of(self, known: LiveSubscription) -> Seek | None:
        seek = self._seeks.get(seek_key(known.name, known.incarnation))
        # A seek of an earlier incarnation does not count.
        if seek is None or (
            seek.body.subscription_incarnation,
            seek.body.topic_incarnation,
        ) != (known.incarnation, known.topic_incarnation):
            return None
        return seek

    def _decode(self, register: Register | None, decode: Callable[[bytes], Any]) -> Any:
        """Decode the body; None if there is none, or it cannot be decoded."""
        if register is None or register.body is None:
            return None
        try:
            return decode(register.body)
        except UndecodableBody as error:
            self.undecodable[register.key] = str(error)
            return None


def _datacentre_of(parsed: Key) -> str | None:
    return parsed.names[0] if parsed.kind == READINESS and len(parsed.names) == 1 else None


def _group_of(topic: str) -> str:
    return topic.rpartition(".")[0]


def _replace(values: dict[Any, Any], name: object, value: Any) -> bool:
    """Set a value, or remove it if None. True if that changed anything."""
    if values.get(name) == value:
        return False
    if value is None:
        del values[name]
    else:
        values[name] = value
    return True
