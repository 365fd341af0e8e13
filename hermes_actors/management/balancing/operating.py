"""Administrators' requests to the balancers: drain a node before it is stopped, and set how many
nodes consume a subscription, or each subscription of a topic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.workload import constraint_body, constraint_key, drain_body, drain_key
from hermes_actors.model.names import SubscriptionName, TopicName, is_name_part
from hermes_actors.model.workload import (
    CONSUMERS_MIN,
    REASON_CHARACTERS_MAX,
    Constraints,
    NodeDrain,
)
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.fold import StatusFold

NODE_CHARACTERS_MAX = 200

CONSUMERS = "consumers"
"""The role of nodes that deliver messages."""


class ConsumingNodes:
    """The consuming nodes of the given datacentres: nodes with that role in their status records,
    and `members`, which are the nodes that take part in coordination, by datacentre.
    """

    def __init__(
        self,
        datacenters: Iterable[str],
        fold: StatusFold | None,
        clock: Clock,
        members: Callable[[], Mapping[str, Sequence[str]]] = dict,
    ) -> None:
        self._datacenters = sorted(set(datacenters))
        self._fold = fold
        self._clock = clock
        self._members = members

    def by_datacenter(self) -> dict[str, list[str]]:
        """The running nodes of each datacentre, sorted. For a datacentre that cannot be reached
        now, the last known ones.
        """
        found: dict[str, set[str]] = {dc: set() for dc in self._datacenters}
        if self._fold is not None:
            for view in self._fold.nodes(self._clock.monotonic_s()):
                header = view.header
                may_be_there = view.is_there or view.is_unknown
                if may_be_there and CONSUMERS in header.roles and header.dc in found:
                    found[header.dc].add(header.node)
        for dc, members in self._members().items():
            found.setdefault(dc, set()).update(members)
        return {dc: sorted(nodes) for dc, nodes in found.items()}


class DrainRequest(Struct, frozen=True, rename="camel"):
    """The request to drain a node. `reason` is shown to operators."""

    reason: str = ""


class Drains:
    """The draining nodes in one datacentre's metadata; all datacentres share them.

    A drain holds for the node's name, so also after a restart. All methods are trio coroutines and
    raise Refused and Unavailable.
    """

    def __init__(
        self, metadata: Metadata, changes: Changes, clock: Clock, consuming: ConsumingNodes
    ) -> None:
        self._metadata = metadata
        self._changes = changes
        self._clock = clock
        self._consuming = consuming

    async def set(
        self,
        caller: Caller,
        dc: str,
        node: str,
        body: Mapping[str, Any] = MappingProxyType({}),
        force: bool = False,
    ) -> bool:
        """Drain a node: it owns nothing from now on. True if it was not drained already.

        Without `force`, an unknown node and the last undrained node of a datacentre are refused.
        """
        reason = decode_plain(DrainRequest, body).reason
        if len(reason) > REASON_CHARACTERS_MAX:
            raise Refused(f"reason must have at most {REASON_CHARACTERS_MAX} characters")
        if not is_name_part(node) or len(node) > NODE_CHARACTERS_MAX:
            raise Refused(f"'{node}' is not a node's name; use letters, digits, '_', '.', '-'")
        self._require_datacenter(dc)
        if not force:
            await self.require_sensible(dc, node)
        drain = NodeDrain(since_ms=self._clock.now_ms(), by=caller.name, reason=reason)
        return not await self._changes.store(drain_key(dc, node), drain_body(drain), lambda: True)

    async def undo(self, dc: str, node: str) -> bool:
        """Let a node own partitions again. False if it was not drained."""
        self._require_datacenter(dc)
        return await self._changes.store(drain_key(dc, node), None)

    def _require_datacenter(self, dc: str) -> None:
        known = self._consuming.by_datacenter()
        if dc not in known:
            raise Refused(f"Datacentre '{dc}' does not exist; known are {', '.join(sorted(known))}")

    async def require_sensible(self, dc: str, node: str) -> None:
        """Refuse to drain an unknown node and the last one that is not drained."""
        self._require_datacenter(dc)
        nodes = self._consuming.by_datacenter()[dc]
        if node not in nodes:
            known = ", ".join(nodes) or "none"
            raise Refused(
                f"No consuming node '{node}' of {dc} is known; known are: {known}. To drain a "
                "node that does not exist yet, use force"
            )
        draining = self._metadata.catalog.draining_in(dc)
        if node not in draining and all(each in draining for each in nodes if each != node):
            raise Refused(
                f"'{node}' is the last consuming node of {dc} that is not drained. If all nodes "
                "are drained, they share the work as if none were. To drain it anyway, use force"
            )


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

    As in Hermes, a constraint may be set before its topic exists, and stays when the topic is
    deleted. All methods are trio coroutines; those that change something raise Refused and
    Unavailable.
    """

    def __init__(self, metadata: Metadata, changes: Changes) -> None:
        self._metadata = metadata
        self._changes = changes

    async def all(self) -> dict[str, dict[str, Constraints]]:
        """The constraints of topics and of subscriptions, by name, sorted."""
        found = sorted(self._metadata.catalog.constraints.items())
        return {
            "topicConstraints": {name: each for name, each in found if "$" not in name},
            "subscriptionConstraints": {name: each for name, each in found if "$" in name},
        }

    async def set_for_topic(self, body: Mapping[str, Any]) -> bool:
        """Set a topic's constraint. True if it had none."""
        wanted = decode_plain(TopicConstraints, body)
        return await self._set(TopicName.parse(wanted.topic_name), "Topic", wanted.constraints)

    async def set_for_subscription(self, body: Mapping[str, Any]) -> bool:
        """Set a subscription's constraint. True if it had none."""
        wanted = decode_plain(SubscriptionConstraints, body)
        name = SubscriptionName.parse(wanted.subscription_name)
        return await self._set(name, "Subscription", wanted.constraints)

    async def delete(self, topic: str, subscription: str | None = None) -> None:
        """Remove a constraint; a missing one is no error."""
        of_topic = TopicName.parse(topic)
        name = of_topic if subscription is None else SubscriptionName(of_topic, subscription)
        await self._changes.store(constraint_key(name), None)

    async def _set(
        self, name: TopicName | SubscriptionName, kind: str, wanted: Constraints
    ) -> bool:
        _require_valid(kind, wanted)
        return not await self._changes.store(
            constraint_key(name),
            constraint_body(wanted),
            lambda: self._metadata.catalog.constraints.get(str(name)) == wanted,
        )


def _require_valid(kind: str, wanted: Constraints) -> None:
    path = f"{kind}Constraints.constraints"
    violations = []
    if wanted.consumers_number < CONSUMERS_MIN:
        violations.append(f"{path}.consumersNumber must be at least {CONSUMERS_MIN}")
    if len(wanted.reason) > REASON_CHARACTERS_MAX:
        violations.append(f"{path}.reason must have at most {REASON_CHARACTERS_MAX} characters")
    if violations:
        raise Refused("; ".join(violations))
