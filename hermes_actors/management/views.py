"""Topics and subscriptions as they are shown: no nulls, no secrets, nothing that was not computed
from what is stored.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from hermes_actors.management.endpoint import mask_endpoint
from hermes_actors.management.patch import without_nulls
from hermes_actors.model.subscription import SerialPolicy, Subscription, SubscriptionState
from hermes_actors.model.topic import Topic

MASKED_OAUTH_PASSWORD = "******"  # noqa: S105 -- what is shown in place of one


def topic_view(topic: Topic) -> dict[str, Any]:
    """The topic's JSON object."""
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(topic))
    return view


def subscription_view(subscription: Subscription, state: SubscriptionState) -> dict[str, Any]:
    """The subscription's JSON object in the state that it is seen in, its passwords masked."""
    policy = subscription.o_auth_policy
    if policy is not None and policy.password is not None:
        policy = replace(policy, password=MASKED_OAUTH_PASSWORD)
    shown = replace(
        subscription,
        state=state,
        endpoint=mask_endpoint(subscription.endpoint),
        o_auth_policy=policy,
    )
    view: dict[str, Any] = without_nulls(msgspec.to_builtins(shown))
    # A free map is the client's own: its nulls are not ours to drop.
    view["endpointAddressResolverMetadata"] = subscription.endpoint_address_resolver_metadata
    if isinstance(subscription.subscription_policy, SerialPolicy):
        seconds = subscription.subscription_policy.backoff_max_interval_in_sec
        view["subscriptionPolicy"]["backoffMaxIntervalMillis"] = seconds * 1_000
    return view
