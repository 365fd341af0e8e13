"""What the leader has to place: the datacentre's subscriptions and their topics' partitions.

Only the log knows how many partitions a topic has. The leader's node alone asks it: all else learns
of added partitions by the plan. What has owners already is known by what they own.
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
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.backoff import backoff_s

_ROUND_S = 10.0
"""How long it may take until partitions that were added are noticed."""
_TROUBLE_PAUSE_MIN_S, _TROUBLE_PAUSE_MAX_S = 0.1, 5.0
_ASKED_AT_ONCE = 100
_ANSWER_TIMEOUT_S = 5.0


class Workloads:
    """What a node's leader asks what there is to be owned, and the actor behind it."""

    def __init__(self, metadata: Metadata, coordination: Coordination, presence: Presence) -> None:
        self._metadata = metadata
        self._coordination = coordination
        self._presence = presence
        self.on_change: Callable[[], None] = lambda: None
        """Called at each change; it must not wait."""
        # By log topic, of the live topics with subscriptions.
        self._partitions: dict[str, int] = {}
        self._is_wanted = trio.Event()

    def current(self) -> Workload | None:
        """Return the whole workload; None while the metadata of this datacentre is not known."""
        return workload_of(self._metadata, self._coordination.state, self._partitions)

    async def run(self, stop: trio.Event) -> None:
        """Follow until asked to stop."""
        await run_until(stop, self._follow, self._look_up)

    async def _follow(self) -> None:
        with self._metadata.watch() as watch:
            while await watch.wait():
                changes = watch.take_nowait()
                # Of the others constraints and draining nodes count; to look costs little.
                if not all(isinstance(change, GroupChanged) for change in changes):
                    self._is_wanted.set()
                    self.on_change()

    async def _look_up(self) -> None:
        """While this node leads, know the partitions of each topic: of new ones at once, of all in
        each round.
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
                # One is being made, or the log is away.
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
    """Return the whole workload; None while the metadata of this datacentre is not known.
    `partitions` has what was looked up, by log topic; else a subscription has as many as its owners
    are to have, and one that has neither is left out for now.
    """
    catalog = metadata.catalog
    # A stand-in's need not know all, and what it does not know would be taken from its owners.
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
