"""The leader's workload: the datacentre's subscriptions, and the number of partitions of their
topics.

Only the log knows the partitions of a topic. Only the leader's node asks it: all other nodes learn
of added partitions from the plan. If a subscription already has owners, their partitions are used
until then.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.balancer.planning import Ownable, Workload
from hermes_actors.balancer.presence import Presence
from hermes_actors.coordination.room import drained
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import LogUnavailable
from hermes_actors.metadata.catalog import GroupChanged
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import DeliveryType, SubscriptionState
from hermes_actors.runtime.backoff import backoff_s

_ROUND_S = 10.0
"""How long it may take to notice added partitions."""
_TROUBLE_PAUSE_MIN_S, _TROUBLE_PAUSE_MAX_S = 0.1, 5.0
_ASKED_AT_ONCE = 100
_ANSWER_TIMEOUT_S = 5.0


class Workloads:
    """The workload for a node's leader, and the actor that keeps it up to date."""

    def __init__(self, metadata: Metadata, coordination: Coordination, presence: Presence) -> None:
        self._metadata = metadata
        self._coordination = coordination
        self._presence = presence
        self.on_change: Callable[[], None] = lambda: None
        """Called at each change; it must not wait."""
        # By log topic, for live topics with subscriptions.
        self._partitions: dict[str, int] = {}
        self._is_wanted = trio.Event()

    def current(self) -> Workload | None:
        """Return the whole workload; None while this datacentre's own metadata is unknown."""
        return workload_of(self._metadata, self._coordination.state, self._partitions)

    async def run(self, stop: trio.Event) -> None:
        """Keep the workload up to date until asked to stop."""
        await run_until(stop, self._follow, self._look_up)

    async def _follow(self) -> None:
        with self._metadata.watch() as watch:
            while await watch.wait():
                changes = watch.take_nowait()
                # Constraints and draining nodes matter too; checking again is cheap.
                if not all(isinstance(change, GroupChanged) for change in changes):
                    self._is_wanted.set()
                    self.on_change()

    async def _look_up(self) -> None:
        """While this node leads, look up the partitions of each topic: new topics at once, all of
        them in each round.
        """
        failed, round_at_s = 0, 0.0
        while True:
            await self._coordination.until(lambda _state: self._leads)
            self._is_wanted = trio.Event()
            topics, known, now_s = self._topics(), self._partitions, trio.current_time()
            self._partitions = {each: known[each] for each in topics if each in known}
            wanted = topics
            if now_s < round_at_s:
                wanted = [each for each in topics if each not in known]
            else:
                round_at_s = now_s + _ROUND_S
            for at in range(0, len(wanted), _ASKED_AT_ONCE):
                await self._ask(wanted[at : at + _ASKED_AT_ONCE])
            wait_s = max(0.0, round_at_s - trio.current_time())
            if len(self._partitions) < len(topics):
                # A topic is being created, or the log is unavailable.
                pause_s = backoff_s(failed, 0.5, _TROUBLE_PAUSE_MIN_S, _TROUBLE_PAUSE_MAX_S)
                wait_s = min(wait_s, pause_s)
                failed += 1
            else:
                failed = 0
            with trio.move_on_after(wait_s):
                await self._is_wanted.wait()
                failed = 0

    @property
    def _leads(self) -> bool:
        return self._coordination.state.leader == self._presence.boot != ""

    def _topics(self) -> list[str]:
        """The log topics of all live subscriptions, sorted."""
        catalog = self._metadata.catalog
        names = {str(live.name.topic) for live in catalog.subscriptions.values()}
        found = [catalog.topics[name].log_topic for name in names if name in catalog.topics]
        return sorted(set(found))

    async def _ask(self, topics: list[str]) -> None:
        with suppress(LogUnavailable), trio.move_on_after(_ANSWER_TIMEOUT_S):
            found = await self._metadata.log.topics.partitions(topics)
            if not found.items() <= self._partitions.items():
                self._partitions |= found
                self.on_change()


def workload_of(
    metadata: Metadata, state: CoordinationState, partitions: Mapping[str, int]
) -> Workload | None:
    """Return the whole workload; None while this datacentre's own metadata is unknown.

    `partitions` has the numbers looked up, by log topic. Without one, a subscription has as many
    partitions as its owners are to have; without owners too, it is left out for now.
    """
    catalog = metadata.catalog
    # A stand-in from another datacentre may be incomplete, and subscriptions missing from it would
    # lose their owners.
    if not metadata.is_own:
        return None
    constraints = catalog.constraints
    wanted: dict[str, Ownable] = {}
    for name in sorted(catalog.subscriptions):
        live = catalog.subscriptions[name]
        topic = catalog.topics.get(str(live.name.topic))
        count = 0 if topic is None else partitions.get(topic.log_topic, 0)
        count = count or sum(len(target.partitions) for target in state.targets_of(name))
        if count:
            asked = constraints.get(name) or constraints.get(str(live.name.topic))
            wanted[name] = Ownable(
                count,
                None if asked is None else asked.consumers_number,
                live.subscription.state is SubscriptionState.SUSPENDED,
                live.subscription.delivery_type is DeliveryType.PULL,
            )
    has_run = any(metadata.dc in live.active_in for live in catalog.subscriptions.values())
    return Workload(wanted, drained(state, catalog.draining_in(metadata.dc)), has_run)
