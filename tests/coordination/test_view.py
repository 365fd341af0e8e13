"""A watch tells each thing once, however often it changed, and is told of another log."""

import pytest
import trio

from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Plan,
    Target,
    TermClaim,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.view import Coordination, ViewChanges
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import StoredRecord
from tests.hand_clock import HandClock


class Told:
    """A Coordination, and records told to it by hand."""

    def __init__(self):
        self.coordination = Coordination(MemoryLog("dc1", HandClock(0)))
        self.at_ms = 0

    def say(self, *said, after_s=0.0):
        for each in said:
            self.at_ms += int(after_s * 1_000)
            offset = self.coordination.state.position
            self.coordination.fold(StoredRecord(0, offset, self.at_ms, None, b"", ()), each)

    def plan(self, *names):
        state = self.coordination.state
        assignments = tuple(Assignment(name, (Target("a", (0,)),)) for name in names)
        self.say(Plan("a", state.term, state.plan_offset, assignments))


@pytest.fixture
def told():
    return Told()


def test_a_watch_begins_with_all_there_is(told):
    told.say(Join("a", "node-a"), TermClaim("a", 1))
    told.plan("g.t$two", "g.t$one")
    with told.coordination.watch() as watch:
        assert watch.take_nowait() == ViewChanges(("g.t$one", "g.t$two"), members=True)
        assert watch.take_nowait() == ViewChanges((), members=False)


async def test_heartbeats_wake_nobody(told, autojump_clock):
    told.say(Join("a", "node-a"))
    with told.coordination.watch() as watch:
        watch.take_nowait()
        told.say(Heartbeat("a", 1), Heartbeat("a", 2))
        with trio.move_on_after(10) as scope:
            await watch.wait()
        assert scope.cancelled_caught


def test_another_log_is_told_and_loses_the_lease(told):
    told.say(Join("a", "node-a"))
    lease = Lease("a", HandClock(0))
    told.coordination.hold(lease)
    with told.coordination.watch() as watch:
        watch.take_nowait()
        told.coordination.begin_anew(CoordinationState(), None)
        assert watch.take_nowait().members
    assert lease.is_lost
    assert told.coordination.generation == 1


def test_a_lease_opens_with_an_own_heartbeat_only_and_is_lost_with_the_membership(told):
    lease = Lease("a", HandClock(0))
    told.coordination.hold(lease)
    for number in (1, 2, 3):
        lease.sending(number)
    told.say(Heartbeat("a", 1))
    assert not lease.is_open()
    told.say(Join("a", "node-a"), Join("b", "node-b"), Heartbeat("b", 2))
    assert not lease.is_open()
    told.say(Heartbeat("a", 3))
    assert lease.is_open()
    for _ in range(4):
        told.say(Heartbeat("b", 3), after_s=1.0)
    assert lease.is_lost
    assert not lease.is_open()


def test_a_lease_of_a_boot_that_has_not_joined_yet_is_not_lost(told):
    lease = Lease("a", HandClock(0))
    told.coordination.hold(lease)
    told.say(Join("b", "node-b"), Heartbeat("b", 1))
    assert not lease.is_lost
