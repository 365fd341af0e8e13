"""The rules of topics and subscriptions, as pure functions of the old value, the new value and the
caller.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.endpoint import (
    require_allowed_endpoint,
    require_valid_endpoint,
)
from hermes_actors.model.group import Group
from hermes_actors.model.subscription import DeliveryType, Filter, SerialPolicy, Subscription
from hermes_actors.model.topic import ChaosMode, ContentType, Owner, Topic
from hermes_actors.security.address_guard import AddressGuard

_NON_ADMIN_RETENTION_MS_MAX = 2 * 86_400_000


def require_known_source(owner: Owner, kind: str, sources: Sequence[str]) -> None:
    """Raises Refused if the owner's source is not one of these."""
    if owner.source not in sources:
        raise Refused(
            f"{kind}.owner.source '{owner.source}' does not exist; known are {', '.join(sources)}"
        )


def require_creatable(topic: Topic, caller: Caller, config: ManagementConfig) -> None:
    """Raises Refused unless this caller may create this topic."""
    require_known_source(topic.owner, "Topic", config.owner_sources)
    if not caller.is_admin:
        default = config.default_fallback_to_remote_datacenter and not topic.is_in_memory
        if topic.fallback_to_remote_datacenter_enabled != default:
            raise Refused(
                "User is not allowed to set non-default fallback to remote datacenter "
                "for this topic"
            )
        if topic.chaos.mode is not ChaosMode.DISABLED:
            raise Refused("User is not allowed to set chaos policy for this topic")
    if topic.migrated_from_json_type:
        raise Refused(
            "Topic.migratedFromJsonType must be false for a new topic; it is set by the update "
            "that turns a JSON topic into an AVRO topic"
        )
    if not caller.is_admin:
        if not caller.owns(topic.owner):
            raise Refused(
                "Provide an owner that includes you, you would not be able to manage this topic "
                "later"
            )
        _require_short_retention(topic)


def require_open_group(group: Group, caller: Caller) -> None:
    """Raises Refused (403) for a topic in a group that somebody else owns."""
    if group.owner is not None and not caller.is_admin and not caller.owns(group.owner):
        raise Refused(
            f"{caller.name} may not create topics in group {group.group_name}: only its owner and "
            "administrators may",
            ErrorCode.PERMISSION_DENIED,
        )


def require_updatable(old: Topic, new: Topic, caller: Caller, config: ManagementConfig) -> None:
    """Raises Refused unless this caller may change the topic from `old` to `new`."""
    if new.name != old.name:
        raise Refused(f"Topic.name is '{new.name}', but the path names '{old.name}'")
    if new.is_in_memory is not old.is_in_memory:
        raise Refused(
            f"Topic.durability cannot change from {old.durability.value} to "
            f"{new.durability.value}: the messages of a PERFORMANCE topic are elsewhere; create "
            "another topic"
        )
    require_known_source(new.owner, "Topic", config.owner_sources)
    if not caller.is_admin:
        if (
            old.fallback_to_remote_datacenter_enabled
            and not new.fallback_to_remote_datacenter_enabled
        ):
            raise Refused(
                "User is not allowed to disable fallback to remote datacenter for this topic"
            )
        if new.chaos != old.chaos:
            raise Refused("User is not allowed to update chaos policy for this topic")
        if new.retention_time != old.retention_time:
            _require_short_retention(new)


def require_content_type_kept(old: Topic, new: Topic, *, has_schema: bool) -> None:
    """Raises Refused for every change of the content type except a complete migration to AVRO."""
    flag_set = new.migrated_from_json_type and not old.migrated_from_json_type
    if old.migrated_from_json_type and not new.migrated_from_json_type:
        raise Refused("Topic.migratedFromJsonType cannot be taken back: the migration has happened")
    if flag_set and new.content_type is not ContentType.AVRO:
        raise Refused("Topic.migratedFromJsonType needs contentType AVRO in the same update")
    if new.content_type is not old.content_type:
        if new.content_type is ContentType.JSON:
            raise Refused("Topic.contentType cannot change from AVRO to JSON")
        if not flag_set:
            raise Refused(
                "Topic.contentType can change from JSON to AVRO only with migratedFromJsonType true"
            )
        if not has_schema:
            raise Refused("Topic.schema must hold the Avro schema that the topic migrates to")


def require_schema(topic: Topic, schema: str | None) -> None:
    """Raises Refused for an AVRO topic without a schema."""
    if topic.content_type is ContentType.AVRO and not schema:
        raise Refused("Message schema cannot be empty", ErrorCode.OTHER, status=400)


def _require_short_retention(topic: Topic) -> None:
    if topic.retention_time.milliseconds > _NON_ADMIN_RETENTION_MS_MAX:
        raise Refused(
            "Topic.retentionTime must be at most 2 days; only an administrator may set more"
        )


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
    """Raises Refused unless the caller may replace `old` (None: create) by this subscription.

    Checks what does not depend on the topic, in this order: owner's source, endpoint, ownership,
    inflightSize.
    """
    require_known_source(subscription.owner, "Subscription", config.owner_sources)
    if subscription.delivery_type is not DeliveryType.PULL:
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
    """Raises Refused for a filter that does not work with the topic's content type."""
    allowed = _FILTERS_OF[topic.content_type]
    for each in filters:
        if each.type not in allowed:
            raise Refused(
                f"Filter type '{each.type}' does not fit topic {topic.name} of content type "
                f"{topic.content_type.value}; allowed are {', '.join(allowed)}"
            )


class PrivilegedSubscriber(Struct, frozen=True):
    """An owner who may subscribe to restricted topics, to endpoints of these protocols."""

    owner: Owner
    protocols: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "PrivilegedSubscriber":
        """Parse `source:id protocol…`, which the configuration has validated."""
        owner, *protocols = text.split(" ")
        source, _, owner_id = owner.partition(":")
        return cls(Owner(source, owner_id), frozenset(protocols))

    def covers(self, subscription: Subscription) -> bool:
        """True for a subscription of this owner to an endpoint with one of these protocols."""
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
    """Raises Refused (403) if the topic restricts subscribing and the caller is not exempt.

    Exempt are administrators, the owners of the topic and its group, the subscribers that the group
    names, and privileged subscribers. An update is restricted only if it changes the endpoint.
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
