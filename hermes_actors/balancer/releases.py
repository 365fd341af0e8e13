"""Appends releases of grants, and repeats them until they are in the coordination log.

An append that seemed to fail may still arrive. So nothing may run under a grant after the first
attempt, whatever the leader plans meanwhile. Therefore this outlives the agent, which may be
restarted.
"""

import logging

import trio
from msgspec import Struct

from hermes_actors.actors.supervisor import run_until
from hermes_actors.coordination.commands import RateState, Release, Stopping, encode
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.view import Coordination
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock

_logger = logging.getLogger(__name__)

_RECORDS_MAX = 500
_APPEND_TIMEOUT_S = 2.0
_FOLD_TIMEOUT_S = 1.0
_STOPPING_TIMEOUT_S = 0.5
_PAUSE_S = 0.25


class _Free(Struct, frozen=True):
    lease: Lease
    subscription: str
    epoch: int
    rate: RateState | None


class Releases:
    """The pending releases, and the actor that appends them. Created once for each node."""

    def __init__(self, coordination: Coordination, clock: Clock) -> None:
        self._coordination = coordination
        self._clock = clock
        # One for each grant of the present life.
        self._free: dict[str, _Free] = {}
        self._is_wanted = trio.Event()

    def say(self, lease: Lease, subscription: str, epoch: int, rate: RateState | None) -> None:
        """Release this grant: nothing runs under it any more, and nothing may again. Does not
        wait.
        """
        self._free[subscription] = _Free(lease, subscription, epoch, rate)
        self._is_wanted.set()

    def is_said(self, lease: Lease, subscription: str, epoch: int) -> bool:
        """True if this grant has been released, though the log may still show it."""
        free = self._free.get(subscription)
        return free is not None and (free.lease, free.epoch) == (lease, epoch)

    async def stop(self, lease: Lease) -> None:
        """Announce that the node will leave, before its grants are released. Then other nodes can
        take each subscription as soon as it is released, instead of when the node has left.
        """
        coordination = self._coordination
        member = coordination.state.members.get(lease.boot)
        if lease.is_lost or member is None or member.is_stopping:
            return
        record = encode(Stopping(lease.boot), self._clock.now_ms())
        with trio.move_on_after(_STOPPING_TIMEOUT_S):
            await coordination.log.append(coordination.topic, 0, [record], Ack.ALL)

    async def run(self, stop: trio.Event) -> None:
        """Append the releases until asked to stop."""
        await run_until(stop, self._work)

    async def flush(self) -> None:
        """Return when all releases are in the log. The caller limits the time."""
        while await self._append_some():
            pass

    async def _work(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            if await self._append_some():
                # Check again: a lost record is repeated.
                self._is_wanted.set()
                await trio.sleep(_PAUSE_S)

    async def _append_some(self) -> bool:
        """Append releases that the log does not show yet. False if there are none."""
        coordination = self._coordination
        for name in [name for name, free in self._free.items() if not self._is_owned(free)]:
            del self._free[name]
        some = list(self._free.values())[:_RECORDS_MAX]
        if not some:
            return False
        now_ms = self._clock.now_ms()
        records = [
            encode(Release(each.lease.boot, each.subscription, each.epoch, each.rate), now_ms)
            for each in some
        ]
        with trio.move_on_after(_APPEND_TIMEOUT_S):
            await coordination.log.append(coordination.topic, 0, records, Ack.ALL)
        with trio.move_on_after(_FOLD_TIMEOUT_S):
            await coordination.until(lambda _state: not any(map(self._is_owned, some)))
        return True

    def _is_owned(self, free: _Free) -> bool:
        """True while the log still shows the grant, under a lease that is not lost."""
        grant = self._coordination.state.grants_of(free.lease.boot).get(free.subscription)
        return not free.lease.is_lost and grant is not None and grant.epoch == free.epoch
