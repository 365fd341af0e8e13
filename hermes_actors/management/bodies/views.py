"""Topics and subscriptions as they are shown: no nulls, no secrets, nothing that was not computed
from what is stored.
"""

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
    return view


def subscription_view(
    subscription: Subscription,
    state: SubscriptionState,
    suspension: Suspension | None = None,
    *,
    shows_headers: bool = False,
) -> dict[str, Any]:
    """The subscription's JSON object in the state that it is seen in, its secrets masked, those in
    fixed headers unless `shows_headers`.
    """
    shown = replace(masked(subscription, shows_headers=shows_headers), state=state)
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(shown))
    _drop_unused(shown, view)
    _drop_unused(shown.subscription_policy, view["subscriptionPolicy"])
    # A free map is the client's own: its nulls are not ours to drop.
    view["endpointAddressResolverMetadata"] = subscription.endpoint_address_resolver_metadata
    if isinstance(subscription.subscription_policy, SerialPolicy):
        seconds = subscription.subscription_policy.backoff_max_interval_in_sec
        view["subscriptionPolicy"]["backoffMaxIntervalMillis"] = seconds * 1_000
    return view | suspension_shown(suspension)


def suspension_shown(suspension: Suspension | None) -> dict[str, Any]:
    """Since when it is suspended, by whom, and why if the broker did it; nothing if it is not."""
    if suspension is None:
        return {}
    shown = {"suspendedAt": suspension.at_ms / 1_000, "suspendedBy": suspension.by}
    return shown | ({"suspensionReason": suspension.reason} if suspension.reason else {})


def body_fields(name: str, body: bytes | None, shown: ShownBody | None) -> dict[str, str | None]:
    """A body as fields of JSON: text, the JSON of Avro, or base64; of Avro with an `error`."""
    if shown is None or body is None:
        return as_text(name, body)
    if not shown.problem:
        return as_text(name, shown.json)
    return {"error": shown.problem, f"{name}Base64": base64.b64encode(body).decode()}


def as_text(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return bytes as a field of JSON: text, or in base64 under a name that says so."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(value).decode()}


def _drop_unused(value: Struct, view: dict[str, Any]) -> None:
    """Hermes' clients see only what they know, and what is used beyond it."""
    fields = {each.name: each for each in fields_of(type(value))}
    for name in BEYOND_HERMES[type(value)]:
        each = fields[name]
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        if getattr(value, name) == default:
            view.pop(each.encode_name, None)
