"""The JSON of topics, subscriptions and message bodies in answers, without nulls and secrets."""

import base64
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.management.bodies.decoding import fields_of, without_nulls
from hermes_actors.management.bodies.secrets import masked
from hermes_actors.metadata.bodies import Suspension
from hermes_actors.model.subscription import (
    BEYOND_HERMES,
    SerialPolicy,
    Subscription,
    SubscriptionState,
)
from hermes_actors.model.topic import Topic
from hermes_actors.schema.reading import ShownBody


def topic_view(topic: Topic) -> dict[str, Any]:
    """The topic's JSON object."""
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(topic))
    drop_unused(topic, view)
    return view


def subscription_view(
    subscription: Subscription,
    state: SubscriptionState,
    suspension: Suspension | None = None,
    *,
    shows_headers: bool = False,
) -> dict[str, Any]:
    """The subscription's JSON object with this state, its secrets masked. With `shows_headers`,
    fixed headers are not masked.
    """
    shown = replace(masked(subscription, shows_headers=shows_headers), state=state)
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(shown))
    drop_unused(shown, view)
    drop_unused(shown.subscription_policy, view["subscriptionPolicy"])
    # This map belongs to the client, so its nulls are kept.
    view["endpointAddressResolverMetadata"] = subscription.endpoint_address_resolver_metadata
    if isinstance(subscription.subscription_policy, SerialPolicy):
        seconds = subscription.subscription_policy.backoff_max_interval_in_sec
        view["subscriptionPolicy"]["backoffMaxIntervalMillis"] = seconds * 1_000
    return view | suspension_shown(suspension)


def suspension_shown(suspension: Suspension | None) -> dict[str, Any]:
    """The suspension as JSON fields: when, by whom, and the reason if the broker suspended it.
    Empty if it is not suspended.
    """
    if suspension is None:
        return {}
    shown = {"suspendedAt": suspension.at_ms / 1_000, "suspendedBy": suspension.by}
    return shown | ({"suspensionReason": suspension.reason} if suspension.reason else {})


def body_fields(name: str, body: bytes | None, shown: ShownBody | None) -> dict[str, str | None]:
    """A message's body as JSON fields: text, or base64 if it is not text.

    `shown`: the decoded Avro, if the body is Avro. It is then JSON, or base64 and an `error`.
    """
    if shown is None or body is None:
        return as_text(name, body)
    if not shown.problem:
        return as_text(name, shown.json)
    return {"error": shown.problem, f"{name}Base64": base64.b64encode(body).decode()}


def as_text(name: str, value: bytes | None) -> dict[str, str | None]:
    """Bytes as a JSON field: text in `name`, or base64 in `nameBase64` if they are not UTF-8."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(value).decode()}


def drop_unused(value: Struct, view: dict[str, Any]) -> None:
    """Remove fields that Hermes does not have and that hold their defaults."""
    fields = {each.name: each for each in fields_of(type(value))}
    for name in BEYOND_HERMES[type(value)]:
        each = fields[name]
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        if getattr(value, name) == default:
            view.pop(each.encode_name, None)
