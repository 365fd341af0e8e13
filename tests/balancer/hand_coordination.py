"""A coordination log that is folded as it is written, by a test or by the code under test."""

from contextlib import asynccontextmanager

import trio

from hermes_actors.balancer.presence import Presence
from hermes_actors.balancer.releases import Releases
from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Plan,
    Target,
    TermClaim,
    decode,
    encode,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import Stored, UnavailableRecord
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.environment.clock import SimulatedClock


class HandCoordination:
    """The log, its fold, one node's presence and releases. `said` has the node's own records."""

    dc = "dc1"

    def __init__(self):
        self.clock = SimulatedClock()
        self.view = Coordination(self)
        self.presence = Presence()
        self.releases = Releases(self.view, self.clock)
        self.said = []
        self.is_failing = False
        # Records that are stored but not acknowledged, and arrive when a test says so.
        self.is_late = False
        self.late = []
        self.lease = None
        self._offset = 0
        self._number = 0
        self.view.report("")

    @property
    def state(self):
        return self.view.state

    async def append(self, topic, partition, batch, ack):
        await trio.lowlevel.checkpoint()
        if self.is_failing:
            return [UnavailableRecord("away") for _ in batch]
        said = [decode(record.value) for record in batch]
        if self.is_late:
            self.late += said
            return [UnavailableRecord("who knows") for _ in batch]
        self.said += said
        return [Stored(self.say(each)) for each in said]

    def say(self, said):
        record = encode(said, self.clock.now_ms())
        stored = StoredRecord(
            key=None,
            value=record.value,
            headers=(),
            timestamp_ms=self.clock.now_ms(),
            partition=0,
            offset=self._offset,
        )
        self._offset += 1
        self.view.fold(stored, said)
        return stored.offset

    def join(self, boot, node):
        self.say(Join(boot, node))
        if not self.state.leader:
            self.say(TermClaim(boot, self.state.term + 1))

    def leave(self, boot):
        self.say(Leave(boot))

    def plan(self, name, *targets):
        """Targets are (boot, partitions) or (boot, partitions, share)."""
        state = self.state
        wanted = tuple(Target(*each) for each in targets)
        self.say(Plan(state.leader, state.term, state.plan_offset, (Assignment(name, wanted),)))

    def grant(self, name, boot):
        return self.state.grants_of(boot).get(name)

    def begin_life(self, boot, node):
        self.join(boot, node)
        self.lease = Lease(boot, self.clock)
        self.view.hold(self.lease)
        self._number = 0
        self._beat()
        self.presence.begin(self.lease)

    def _beat(self):
        self._number += 1
        self.lease.sending(self._number)
        for boot in list(self.state.members):
            self.say(Heartbeat(boot, self._number))

    async def beat_on(self):
        while True:
            await trio.sleep(0.5)
            if not self.is_failing and not self.lease.is_lost:
                self._beat()

    @asynccontextmanager
    async def beating(self, boot, node):
        self.begin_life(boot, node)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.beat_on)
            yield
            nursery.cancel_scope.cancel()
