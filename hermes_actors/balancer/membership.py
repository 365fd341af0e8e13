"""The actor that keeps a node a member: it joins, sends a heartbeat each half second, and leaves.

Membership exists only in the coordination log. A node whose lease has expired (it was paused or cut
off) waits until nothing of that life runs any more, and joins again under a new id.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest

import trio
from msgspec import Struct, field

from hermes_actors.actors.supervisor import run_until
from hermes_actors.balancer.presence import Presence
from hermes_actors.coordination.commands import (
    Heartbeat,
    Join,
    Leave,
    Loads,
    Said,
    TaskLoad,
    encode,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.values import LEASE_MS
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import Outcome, Stored, stored_count
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock, IdSource

_logger = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S = 0.5
LOADS_INTERVAL_S = 10.0
_APPEND_TIMEOUT_S = 1.0
_LEAVE_TIMEOUT_S = 1.0
_UNSEEN_MAX_S = 10.0
_TASKS_MAX = 10_000
"""Maximum number of tasks, with long names, in one record."""
_TASKS_IN_A_TURN = 250
"""Tasks handled before other tasks run: a millisecond."""


class NodeLoads(Struct, frozen=True):
    """The load that a node has measured since the last call; see `Loads`."""

    cpu: float = 0.0
    cpu_available: float = 0.0
    tasks: Mapping[str, TaskLoad] = field(default_factory=dict)


class Membership:
    """Keeps the node a member, under the ids that `presence` shows. Create a new one for each
    start.

    Stop it after all parts that act for the node: its last record frees everything that the node
    owns.
    """

    def __init__(
        self,
        coordination: Coordination,
        presence: Presence,
        *,
        node: str,
        cores: float,
        version: str,
        clock: Clock,
        ids: IdSource,
        loads: Callable[[], NodeLoads] = NodeLoads,
    ) -> None:
        self._coordination = coordination
        self._presence = presence
        self._node = node
        self._cores = cores
        self._version = version
        self._clock = clock
        self._ids = ids
        self._loads = loads

    async def run(self, stop: trio.Event) -> None:
        """Be a member until asked to stop, then leave."""
        try:
            await run_until(stop, self._live)
            await self._leave()
        finally:
            # Nothing renews the lease any more.
            if self._presence.lease is not None:
                self._presence.lease.lose()

    async def _live(self) -> None:
        """Be a member in one life after another."""
        coordination, presence = self._coordination, self._presence
        generation = 0
        while True:
            await presence.wait_ended()
            await coordination.wait_current()
            if generation not in (0, coordination.generation):
                # The log was replaced. Other nodes may not have noticed, and may still act by the
                # old one.
                await trio.sleep(2 * LEASE_MS / 1_000)
            generation = coordination.generation
            lease = Lease(self._ids.message_id(), self._clock)
            coordination.hold(lease)
            presence.begin(lease)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._be_heard, lease)
                nursery.start_soon(self._tell_loads, lease)
                await lease.wait_lost()
                nursery.cancel_scope.cancel()
            _logger.warning(
                "the lease of node %s in %s has expired; its consumers stop, and it joins again",
                self._node,
                coordination.dc,
            )

    async def _be_heard(self, lease: Lease) -> None:
        coordination, boot = self._coordination, lease.boot
        unseen_since_s: float | None = None
        at_s, number = trio.current_time(), 0
        while True:
            now_s = trio.current_time()
            if lease.is_open():
                unseen_since_s = None
            is_deaf = unseen_since_s is not None and now_s - unseen_since_s > _UNSEEN_MAX_S
            # A node that cannot read the log but sends heartbeats would keep grants that it cannot
            # use.
            if coordination.is_current or not is_deaf:
                number += 1
                said: list[Said] = [Heartbeat(boot, number)]
                if boot not in coordination.state.members:
                    said.insert(0, Join(boot, self._node, self._cores, self._version))
                lease.sending(number)
                is_stored = await self._append(said, Ack.LEADER, _APPEND_TIMEOUT_S)
                if is_stored and unseen_since_s is None:
                    unseen_since_s = now_s
            at_s = max(at_s + HEARTBEAT_INTERVAL_S, trio.current_time())
            await trio.sleep_until(at_s)

    async def _tell_loads(self, lease: Lease) -> None:
        while True:
            await trio.sleep(LOADS_INTERVAL_S)
            if lease.is_open():
                loads = self._loads()
                await trio.lowlevel.checkpoint()
                tasks: dict[str, TaskLoad] = {}
                for count, name in enumerate(_heaviest(loads.tasks), 1):
                    tasks[name] = _rounded(loads.tasks[name])
                    if count % _TASKS_IN_A_TURN == 0:
                        await trio.lowlevel.checkpoint()
                if not lease.is_open():
                    continue
                said = Loads(lease.boot, round(loads.cpu, 4), round(loads.cpu_available, 4), tasks)
                await self._append([said], Ack.LEADER, LOADS_INTERVAL_S)

    async def _leave(self) -> None:
        lease = self._presence.lease
        if lease is not None and not lease.is_lost:
            lease.lose()
            await self._append([Leave(lease.boot)], Ack.ALL, _LEAVE_TIMEOUT_S)

    async def _append(self, said: list[Said], ack: Ack, timeout_s: float) -> bool:
        """Append. True if the log has confirmed all records; lost ones are repeated by later
        calls.
        """
        coordination, now_ms = self._coordination, self._clock.now_ms()
        records = [encode(each, now_ms) for each in said]
        generation, position = coordination.generation, coordination.state.position
        with trio.move_on_after(timeout_s):
            outcomes = await coordination.log.append(coordination.topic, 0, records, ack)
            offset = _first_offset(outcomes)
            if offset is not None and offset < position and generation == coordination.generation:
                coordination.doubt(f"it takes records at {offset}, and {position} was read already")
            return stored_count(outcomes) == len(records)
        return False


def _first_offset(outcomes: Sequence[Outcome]) -> int | None:
    return next((each.offset for each in outcomes if isinstance(each, Stored)), None)


def _heaviest(tasks: Mapping[str, TaskLoad]) -> list[str]:
    """Return the sorted names of the tasks with any load; the heaviest ones if one record cannot
    hold all.
    """
    names = [name for name, load in tasks.items() if load != TaskLoad()]
    if len(names) > _TASKS_MAX:
        names = nlargest(_TASKS_MAX, names, key=lambda name: (tasks[name].cpu, name))
    return sorted(names)


def _rounded(load: TaskLoad) -> TaskLoad:
    """Round to the digits that a plan needs, because each record is kept for six hours."""
    return TaskLoad(
        round(load.messages, 2), round(load.size_bytes), round(load.cpu, 5), round(load.used, 3)
    )
