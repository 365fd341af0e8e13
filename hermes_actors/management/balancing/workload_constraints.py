"""How many nodes are to consume a topic's subscriptions, or one of them: set by administrators."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller, require_admin
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.commands import Absent, Change, StampIs, delete, put
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.workload import constraint_body, constraint_key
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.workload import CONSUMERS_MIN, REASON_CHARACTERS_MAX, Constraints


class TopicConstraints(Struct, frozen=True, rename="camel"):
    """The request that sets a topic's constraint."""

    topic_name: str
    constraints: Constraints


class SubscriptionConstraints(Struct, frozen=True, rename="camel"):
    """The request that sets a subscription's constraint; its name is `group.topic$subscription`."""

    subscription_name: str
    constraints: Constraints


class WorkloadConstraints:
    """The constraints in one datacentre's metadata; all datacentres share them.

    A constraint may be set before its topic is there, and stays when that goes, as in Hermes. All
    methods are trio coroutines; those that change something raise Refused and Unavailable.
    """

    def __init__(self, metadata: Metadata, changes: Changes) -> None:
        self._metadata = metadata
        self._changes = changes

    async def all(self) -> dict[str, dict[str, Constraints]]:
        """The constraints of topics and of subscriptions by their names, sorted."""
        found = sorted(self._metadata.catalog.constraints.items())
        return {
            "topicConstraints": {name: each for name, each in found if "$" not in name},
            "subscriptionConstraints": {name: each for name, each in found if "$" in name},
        }

    async def set_for_topic(self, caller: Caller, body: Mapping[str, Any]) -> bool:
        """Set a topic's constraint; True when it had none."""
        require_admin(caller, "set workload constraints")
        wanted = decode_plain(TopicConstraints, body)
        return await self._set(TopicName.parse(wanted.topic_name), "Topic", wanted.constraints)

    async def set_for_subscription(self, caller: Caller, body: Mapping[str, Any]) -> bool:
        """Set a subscription's constraint; True when it had none."""
        require_admin(caller, "set workload constraints")
        wanted = decode_plain(SubscriptionConstraints, body)
        name = SubscriptionName.parse(wanted.subscription_name)
        return await self._set(name, "Subscription", wanted.constraints)

    async def remove(self, caller: Caller, topic: str, subscription: str | None = None) -> None:
        """Remove a constraint; one that is not there is no error."""
        require_admin(caller, "remove workload constraints")
        of_topic = TopicName.parse(topic)
        name = of_topic if subscription is None else SubscriptionName(of_topic, subscription)
        key = constraint_key(name)

        def decide() -> Change | None:
            register = self._metadata.catalog.others.get(key)
            return None if register is None else delete(key, StampIs(key, register.stamp))

        await self._changes.make(decide)

    async def _set(
        self, name: TopicName | SubscriptionName, kind: str, wanted: Constraints
    ) -> bool:
        _require_valid(kind, wanted)
        key = constraint_key(name)
        is_new = False

        def decide() -> Change | None:
            nonlocal is_new
            register = self._metadata.catalog.others.get(key)
            is_new = register is None
            if register is None:
                return put(key, constraint_body(wanted), Absent(key))
            if self._metadata.catalog.constraints.get(str(name)) == wanted:
                return None
            return put(key, constraint_body(wanted), StampIs(key, register.stamp))

        await self._changes.make(decide)
        return is_new


def _require_valid(kind: str, wanted: Constraints) -> None:
    path = f"{kind}Constraints.constraints"
    violations = []
    if wanted.consumers_number < CONSUMERS_MIN:
        violations.append(f"{path}.consumersNumber must be at least {CONSUMERS_MIN}")
    if len(wanted.reason) > REASON_CHARACTERS_MAX:
        violations.append(f"{path}.reason must have at most {REASON_CHARACTERS_MAX} characters")
    if violations:
        raise Refused("; ".join(violations))
