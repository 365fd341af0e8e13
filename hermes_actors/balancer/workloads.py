"""The leader's workload: the datacentre's subscriptions, and the number of partitions of their
topics.

Only the log knows the partitions of a topic. Only the leader's node asks it, one topic after
another. If a subscription already has owners, their partitions are used until then.
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
from hermes_actors.log.base import EARLIEST, LogUnavailable, UnknownTopic
from hermes_actors.metadata.catalog import GroupChanged
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.backoff import backoff_s

_ROUND_S = 20.0
"""How long it may take to notice added partitions, with few topics."""
_PAUSE_MIN_S = 0.05
_TROUBLE_PAUSE_MIN_S, _TROUBLE_PAUSE_MAX_S = 0.1, 5.0
_ASKED_AT_ONCE = 16
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
        """While this node leads, look up the partitions of each topic: new topics at once, all
        others one after another.
        """
        failed = 0
        while True:
            await self._coordination.until(lambda _state: self._leads)
            self._is_wanted = trio.Event()
            topics = self._topics()
            for log_topic in [each for each in self._partitions if each not in topics]:
                del self._partitions[log_topic]
            new = [each for each in topics if each not in self._partitions]
            for at in range(0, len(new), _ASKED_AT_ONCE):
                await self._ask_all(new[at : at + _ASKED_AT_ONCE])
            if all(each in self._partitions for each in new):
                failed = 0
                wait_s = max(_PAUSE_MIN_S, _ROUND_S / max(1, len(topics)))
            else:
                # The topic is being created, or the log is unavailable.
                wait_s = backoff_s(failed, 0.5, _TROUBLE_PAUSE_MIN_S, _TROUBLE_PAUSE_MAX_S)
                failed += 1
            with trio.move_on_after(wait_s) as pause:
                await self._is_wanted.wait()
                failed = 0
            if pause.cancelled_caught and self._partitions:
                # The topic that was looked up longest ago comes first.
                await self._ask(next(iter(self._partitions)))

    @property
    def _leads(self) -> bool:
        return self._coordination.state.leader == self._presence.boot != ""

    def _topics(self) -> dict[str, None]:
        """The log topics of all live subscriptions, sorted."""
        catalog = self._metadata.catalog
        names = {str(live.name.topic) for live in catalog.subscriptions.values()}
        found = [catalog.topics[name].log_topic for name in names if name in catalog.topics]
        return dict.fromkeys(sorted(found))

    async def _ask_all(self, topics: list[str]) -> None:
        async with trio.open_nursery() as nursery:
            for log_topic in topics:
                nursery.start_soon(self._ask, log_topic)

    async def _ask(self, log_topic: str) -> None:
        before = found = self._partitions.get(log_topic, 0)
        # A topic without an answer must not keep the others from having owners.
        with suppress(LogUnavailable, UnknownTopic), trio.move_on_after(_ANSWER_TIMEOUT_S):
            found = len(await self._metadata.log.positions(log_topic, EARLIEST))
        if found:
            self._partitions.pop(log_topic, None)
            self._partitions[log_topic] = found
        if found != before:
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
            )
    has_run = any(metadata.dc in live.active_in for live in catalog.subscriptions.values())
    return Workload(wanted, drained(state, catalog.draining_in(metadata.dc)), has_run)
