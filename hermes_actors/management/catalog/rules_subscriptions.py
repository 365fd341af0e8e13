"""The business rules of subscriptions, as pure functions of what is there, wanted, and who asks."""

from collections.abc import Iterable

from msgspec import Struct

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.endpoint import (
    require_allowed_endpoint,
    require_valid_endpoint,
)
from hermes_actors.management.catalog.rules_topics import require_known_source
from hermes_actors.model.group import Group
from hermes_actors.model.subscription import Filter, SerialPolicy, Subscription
from hermes_actors.model.topic import ContentType, Owner, Topic
from hermes_actors.security.address_guard import AddressGuard

_FILTERS_OF = {
    ContentType.JSON: ("jsonpath", "header"),
    ContentType.AVRO: ("avropath", "header"),
}
_RESTRICTED = "Subscribing to this topic has been restricted. Contact the topic owner to {action}."


def require_acceptable(
    subscription: Subscription,
    old: Subscription | None,
    caller: Caller,
    config: ManagementConfig,
    guard: AddressGuard,
) -> None:
    """Raises Refused unless the caller may have this subscription in place of `old` (None: new).

    Checks what can be said without the topic, in the order: owner's source, endpoint, ownership,
    inflightSize.
    """
    require_known_source(subscription.owner, "Subscription", config.owner_sources)
    require_valid_endpoint(subscription.endpoint, config.additional_endpoint_protocols)
    if old is None or subscription.endpoint != old.endpoint:
        require_allowed_endpoint(subscription.endpoint, guard)
    if caller.is_admin:
        return
    if not caller.owns(subscription.owner):
        raise Refused(
            "Provide an owner that includes you, you would not be able to manage this "
            "subscription later"
        )
    if _inflight_size(subscription) != _inflight_size(old):
        raise Refused(
            "Subscription.subscriptionPolicy.inflightSize can be set by administrators only; "
            "leave it as it is"
        )


def require_fitting_filters(filters: Iterable[Filter], topic: Topic) -> None:
    """Raises Refused for a filter that cannot look into what the topic holds."""
    allowed = _FILTERS_OF[topic.content_type]
    for each in filters:
        if each.type not in allowed:
            raise Refused(
                f"Filter type '{each.type}' does not fit topic {topic.name} of content type "
                f"{topic.content_type.value}; allowed are {', '.join(allowed)}"
            )


class PrivilegedSubscriber(Struct, frozen=True):
    """An owner whose subscriptions need no topic owner's leave, and his endpoints' protocols."""

    owner: Owner
    protocols: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "PrivilegedSubscriber":
        """From `source:id protocol…`, which the configuration has checked."""
        owner, *protocols = text.split(" ")
        source, _, owner_id = owner.partition(":")
        return cls(Owner(source, owner_id), frozenset(protocols))

    def covers(self, subscription: Subscription) -> bool:
        """True for a subscription of this owner, to an endpoint of these protocols."""
        scheme = subscription.endpoint.partition("://")[0].lower()
        return subscription.owner == self.owner and scheme in self.protocols


def require_open_topic(
    subscription: Subscription,
    old: Subscription | None,
    topic: Topic,
    group: Group,
    caller: Caller,
    privileged: Iterable[PrivilegedSubscriber] = (),
) -> None:
    """Raises Refused (403) when the topic restricts subscribing and the caller is not exempt.

    Exempt are administrators, the owners of the topic and of its group, whom the group names as
    subscribers, and the privileged. An update is restricted only where it changes the endpoint.
    """
    if not topic.subscribing_restricted or caller.is_admin or caller.owns(topic.owner):
        return
    if group.owner is not None and caller.owns(group.owner):
        return
    if subscription.owner in group.subscribers and caller.owns(subscription.owner):
        return
    if any(each.covers(subscription) for each in privileged):
        return
    if old is None:
        action = "create a new subscription"
    elif subscription.endpoint != old.endpoint:
        action = "modify the endpoint of this subscription"
    else:
        return
    raise Refused(_RESTRICTED.format(action=action), ErrorCode.PERMISSION_DENIED)


def _inflight_size(subscription: Subscription | None) -> int | None:
    policy = None if subscription is None else subscription.subscription_policy
    return policy.inflight_size if isinstance(policy, SerialPolicy) else None
