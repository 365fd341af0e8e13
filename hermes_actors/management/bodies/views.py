"""Topics and subscriptions as they are shown: no nulls, no secrets, nothing that was not computed
from what is stored.
"""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.management.bodies.endpoint import mask_endpoint
from hermes_actors.management.bodies.patch import without_nulls
from hermes_actors.model.subscription import (
    BEYOND_HERMES,
    SerialPolicy,
    SigningPolicy,
    Subscription,
    SubscriptionState,
)
from hermes_actors.model.topic import Topic

MASKED_OAUTH_PASSWORD = "******"  # noqa: S105 -- what is shown in place of one
MASKED_SIGNING_SECRET = "******"  # noqa: S105 -- likewise


def topic_view(topic: Topic) -> dict[str, Any]:
    """The topic's JSON object."""
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(topic))
    return view


def subscription_view(
    subscription: Subscription, state: SubscriptionState, suspension: str = ""
) -> dict[str, Any]:
    """The subscription's JSON object in the state that it is seen in, its passwords masked.

    `suspension`: why the broker has suspended it, shown only where it has.
    """
    policy = subscription.o_auth_policy
    if policy is not None and policy.password is not None:
        policy = replace(policy, password=MASKED_OAUTH_PASSWORD)
    signing = subscription.signing
    if signing is not None:
        signing = SigningPolicy([MASKED_SIGNING_SECRET] * len(signing.secrets))
    shown = replace(
        subscription,
        state=state,
        endpoint=mask_endpoint(subscription.endpoint),
        o_auth_policy=policy,
        signing=signing,
    )
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(shown))
    _drop_unused(shown, view)
    _drop_unused(shown.subscription_policy, view["subscriptionPolicy"])
    # A free map is the client's own: its nulls are not ours to drop.
    view["endpointAddressResolverMetadata"] = subscription.endpoint_address_resolver_metadata
    if isinstance(subscription.subscription_policy, SerialPolicy):
        seconds = subscription.subscription_policy.backoff_max_interval_in_sec
        view["subscriptionPolicy"]["backoffMaxIntervalMillis"] = seconds * 1_000
    if suspension:
        view["suspensionReason"] = suspension
    return view


def _drop_unused(value: Struct, view: dict[str, Any]) -> None:
    """Hermes' clients see only what they know, and what is used beyond it."""
    fields = {each.name: each for each in msgspec.structs.fields(value)}
    for name in BEYOND_HERMES[type(value)]:
        each = fields[name]
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        if getattr(value, name) == default:
            view.pop(each.encode_name, None)
