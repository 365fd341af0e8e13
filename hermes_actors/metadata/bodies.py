"""Encodes and decodes the JSON bodies of groups, topics, subscriptions and so on.

Unknown fields are ignored, so that an older node can read what a newer one wrote.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hermes_actors.metadata.audit import BROKER
from hermes_actors.metadata.creation import Creation
from hermes_actors.metadata.keys import GROUP, OAUTH, SUBSCRIPTION, TOPIC
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryType,
    SerialPolicy,
    Subscription,
)
from hermes_actors.model.topic import Topic

T = TypeVar("T")


class UndecodableBody(Exception):
    """The body does not match its key's kind; the message names the field."""


class Suspension(Struct, frozen=True, rename="camel", omit_defaults=True):
    """When a subscription was suspended, and by which account. `reason` is the broker's; empty
    string if a person did it.
    """

    at_ms: int
    by: str = BROKER
    reason: str = ""


class SubscriptionBody(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A subscription, and the incarnation of the topic that it was created for.

    `suspended` None: it is not suspended, or since when is unknown. `creation` has the ends of the
    topic's partitions when it was created; None if unknown.
    """

    subscription: Subscription
    topic_incarnation: int
    suspended: Suspension | None = None
    creation: Creation | None = None


class _Activation(Struct, frozen=True, rename="camel"):
    subscription_incarnation: int


class _Readiness(Struct, frozen=True, rename="camel"):
    is_ready: bool


class _RawSubscriptionBody(Struct, frozen=True, rename="camel"):
    subscription: dict[str, Any]
    topic_incarnation: int
    suspended: Suspension | None = None
    creation: Creation | None = None


class _SerialSubscription(Subscription, frozen=True, rename="camel", kw_only=True):
    """A subscription with a serial policy: msgspec cannot decode a union of untagged structs."""

    subscription_policy: SerialPolicy = msgspec.field(default_factory=SerialPolicy)


class _BatchSubscription(Subscription, frozen=True, rename="camel", kw_only=True):
    subscription_policy: BatchPolicy = msgspec.field(default_factory=BatchPolicy)


_FIELDS = tuple(field.name for field in msgspec.structs.fields(Subscription))


def group_body(group: Group) -> bytes:
    """Encode a group in its wire form."""
    return msgspec.json.encode(group)


def topic_body(topic: Topic) -> bytes:
    """Encode a topic in its wire form."""
    return msgspec.json.encode(topic)


def subscription_body(
    subscription: Subscription,
    topic_incarnation: int,
    suspended: Suspension | None = None,
    creation: Creation | None = None,
) -> bytes:
    """Encode a subscription to this incarnation of its topic."""
    return msgspec.json.encode(
        SubscriptionBody(subscription, topic_incarnation, suspended, creation)
    )


def activation_body(subscription_incarnation: int) -> bytes:
    """Encode that a consumer of this incarnation of the subscription has started."""
    return msgspec.json.encode(_Activation(subscription_incarnation))


def readiness_body(is_ready: bool) -> bytes:
    """Encode whether a datacentre is ready."""
    return msgspec.json.encode(_Readiness(is_ready))


def oauth_body(provider: OAuthProvider) -> bytes:
    """Encode an OAuth provider, including its secret."""
    return msgspec.json.encode(provider)


def decode_group(body: bytes) -> Group:
    """Decode a group. Raises UndecodableBody."""
    return decode_body(body, Group)


def decode_topic(body: bytes) -> Topic:
    """Decode a topic. Raises UndecodableBody."""
    return decode_body(body, Topic)


def decode_subscription(body: bytes) -> SubscriptionBody:
    """Decode a subscription; its `deliveryType` determines the type of its policy. Raises
    UndecodableBody.
    """
    raw = decode_body(body, _RawSubscriptionBody)
    is_batch = raw.subscription.get("deliveryType") == DeliveryType.BATCH
    try:
        decoded = msgspec.convert(
            raw.subscription, _BatchSubscription if is_batch else _SerialSubscription
        )
    except (msgspec.ValidationError, RecursionError) as error:
        raise UndecodableBody(str(error)) from error
    plain = Subscription(**{name: getattr(decoded, name) for name in _FIELDS})
    return SubscriptionBody(plain, raw.topic_incarnation, raw.suspended, raw.creation)


def decode_activation(body: bytes) -> int:
    """Decode the incarnation of the subscription that was started. Raises UndecodableBody."""
    return decode_body(body, _Activation).subscription_incarnation


def decode_readiness(body: bytes) -> bool:
    """Decode whether the datacentre is ready. Raises UndecodableBody."""
    return decode_body(body, _Readiness).is_ready


def decode_oauth(body: bytes) -> OAuthProvider:
    """Decode an OAuth provider. Raises UndecodableBody."""
    return decode_body(body, OAuthProvider)


def with_unknown(kind: str, before: bytes, after: bytes) -> bytes:
    """Return `after` with the fields of `before` that this version does not know. So a change by an
    older node keeps what a newer one has set.
    """
    decode = _DECODERS.get(kind)
    if decode is None:
        return after
    try:
        known = msgspec.json.decode(msgspec.json.encode(decode(before)))
    except UndecodableBody:
        return after
    raw, body = msgspec.json.decode(before), msgspec.json.decode(after)
    _carry(raw, known, body)
    return msgspec.json.encode(body)


def _carry(raw: dict[str, Any], known: dict[str, Any], body: dict[str, Any]) -> None:
    for name, value in raw.items():
        if name not in known:
            body.setdefault(name, value)
        elif all(isinstance(each, dict) for each in (value, known[name], body.get(name))):
            _carry(value, known[name], body[name])


def decode_body(body: bytes, kind: type[T]) -> T:
    """Decode a value of that type. Raises UndecodableBody."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableBody(str(error)) from error


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    GROUP: decode_group,
    TOPIC: decode_topic,
    SUBSCRIPTION: decode_subscription,
    OAUTH: decode_oauth,
}
