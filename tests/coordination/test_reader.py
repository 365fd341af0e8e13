"""The reader begins with the newest snapshot, follows the log, and notices if it is another."""

import random
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from hermes_actors.coordination.commands import (
    COORDINATION_TOPIC,
    SETTINGS,
    Heartbeat,
    Join,
    Leave,
    Snapshot,
    TermClaim,
    encode,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.reader import CoordinationReader
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.clock import SimulatedClock


class Site:
    def __init__(self):
        self.clock = SimulatedClock()
        self.log = MemoryLog("dc1", self.clock)

    async def say(self, *said):
        for each in said:
            await self.log.append(COORDINATION_TOPIC, 0, [encode(each, 0)], Ack.ALL)

    async def pass_hours(self, hours):
        """By all clocks; the reader has some seconds of them to do what it does meanwhile."""
        self.clock.skew_ms += hours * 3_600_000
        await trio.sleep(10)

    async def hold_heartbeats(self, *boots, for_s):
        for number in range(int(for_s * 2)):
            await trio.sleep(0.5)
            await self.say(*(Heartbeat(boot, number) for boot in boots))

    async def snapshot(self, state, boot="a", parts=1):
        packed = state.snapshot()
        size = -(-len(packed) // parts)
        for part in range(parts):
            piece = packed[part * size : (part + 1) * size]
            await self.say(Snapshot(boot, state.term, state.position - 1, piece, part, parts))

    @asynccontextmanager
    async def reading(self, coordination=None):
        coordination = coordination or Coordination(self.log)
        stop = trio.Event()
        reader = CoordinationReader(coordination, clock=self.clock, rng=random.Random(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run, stop)
            with trio.fail_after(30):
                await coordination.wait_current()
            yield coordination
            stop.set()


@pytest.fixture
def site():
    return Site()


async def test_into_another_datacentres_log_it_makes_no_topic(site, autojump_clock):
    coordination = Coordination(site.log)
    stop = trio.Event()
    reader = CoordinationReader(
        coordination, clock=site.clock, rng=random.Random(1), makes_topic=False
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run, stop)
        await trio.sleep(5)
        assert COORDINATION_TOPIC in coordination.trouble
        assert await site.log.topics.names() == []
        await site.log.topics.create(COORDINATION_TOPIC, SETTINGS)
        await site.say(Join("a", "node-a"))
        with trio.fail_after(5):
            await coordination.until(lambda state: "a" in state.members)
        stop.set()


async def test_it_makes_the_topic_and_follows_it(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"))
        await coordination.until(lambda state: "a" in state.members)
        assert await site.log.topics.describe(COORDINATION_TOPIC) == SETTINGS
    assert not coordination.is_current


async def test_a_topic_that_its_writers_stamp_is_stamped_by_the_log_from_then_on(
    site, autojump_clock
):
    await site.log.topics.create(COORDINATION_TOPIC, TopicSettings(retention_ms=1_000))
    async with site.reading():
        assert await site.log.topics.describe(COORDINATION_TOPIC) == SETTINGS


async def test_it_begins_with_the_newest_snapshot_and_has_the_state_of_who_read_all(
    site, autojump_clock
):
    async with site.reading() as first:
        await site.say(Join("a", "node-a"), Join("b", "node-b"), TermClaim("a", 1))
        await site.hold_heartbeats("a", "b", for_s=30)
        await site.snapshot(first.state)
        await site.hold_heartbeats("a", "b", for_s=30)
        await site.snapshot(first.state, parts=3)
        await site.hold_heartbeats("a", "b", for_s=10)
        counted = []
        log, read = site.log, site.log.reader

        @asynccontextmanager
        async def counting(topic, positions):
            counted.append(positions[0])
            async with read(topic, positions) as reader:
                yield reader

        log.reader = counting
        async with site.reading() as second:
            assert second.state == first.state
        # Nobody read more than the last 45 seconds.
        assert min(counted) > 100


async def test_a_snapshot_of_long_ago_is_found_too(site, autojump_clock):
    async with site.reading() as first:
        await site.say(Join("a", "node-a"))
        await site.snapshot(first.state)
        await site.hold_heartbeats("a", for_s=300)
        async with site.reading() as second:
            assert second.state == first.state


@pytest.mark.parametrize("spoil", ["damaged", "a part missing", "as of another record"])
async def test_a_snapshot_that_cannot_be_used_is_passed_over(site, autojump_clock, spoil):
    async with site.reading() as first:
        await site.say(Join("a", "node-a"), TermClaim("a", 1))
        await site.hold_heartbeats("a", for_s=2)
        await site.snapshot(first.state)
        await site.hold_heartbeats("a", for_s=2)
        if spoil == "damaged":
            await site.say(Snapshot("a", 1, first.state.position - 1, b"hc1\nxyz"))
        elif spoil == "a part missing":
            await site.say(Snapshot("a", 1, first.state.position - 1, b"", 1, 2))
        else:
            await site.say(Snapshot("a", 1, 3, CoordinationState().snapshot()))
        async with site.reading() as second:
            assert second.state == first.state


async def test_a_snapshot_of_the_log_that_was_here_before_is_passed_over(site, autojump_clock):
    await site.log.topics.create(COORDINATION_TOPIC, SETTINGS)
    before = CoordinationState()
    for offset in range(100):
        before.apply(offset, offset, Join("z", "node-z"))
    # Its leader has not noticed yet that the log is a new one.
    await site.snapshot(before, boot="z")
    await site.say(Join("a", "node-a"))
    async with site.reading() as coordination:
        assert list(coordination.state.members) == ["a"]
        await trio.sleep(10)
        assert coordination.is_current
        assert coordination.generation == 1


async def test_what_cannot_be_decoded_changes_nothing_and_is_counted(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"))
        for value in (b"", b"{}", b'["join"]', b'["join","x",7]', b"\xff\xfe", b'["dance","a"]'):
            await site.log.append(COORDINATION_TOPIC, 0, [Record(None, value, (), 0)], Ack.ALL)
        await site.say(TermClaim("a", 1))
        await coordination.until(lambda state: state.leader == "a")
        assert set(coordination.state.members) == {"a"}
        assert coordination.undecodable == 6


async def test_a_log_that_is_away_is_reported_and_the_state_stays(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"))
        await coordination.until(lambda state: "a" in state.members)
        state = coordination.state
        site.log.faults.cut()
        await trio.sleep(3)
        assert "unavailable" in coordination.trouble
        site.log.faults.heal()
        site.log.faults.reads_silent = True
        await trio.sleep(8)
        assert "does not answer" in coordination.trouble
        site.log.faults.heal()
        await trio.sleep(1)
        assert coordination.is_current
        assert coordination.state is state


async def test_a_reader_that_is_restarted_goes_on_with_the_same_state(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"))
        await coordination.until(lambda state: "a" in state.members)
        state = coordination.state
    await site.say(TermClaim("a", 1))
    async with site.reading(coordination):
        assert coordination.state is state
        assert state.leader == "a"
        assert coordination.generation == 1


async def test_a_shorter_log_is_read_anew_and_the_lease_is_lost(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"), Join("b", "node-b"))
        lease = Lease("a", site.clock)
        coordination.hold(lease)
        lease.sending(1)
        await site.say(Heartbeat("a", 1))
        await trio.testing.wait_all_tasks_blocked()
        assert lease.is_open()
        with coordination.watch() as watch:
            watch.take_nowait()
            await site.log.topics.delete(COORDINATION_TOPIC)
            await site.log.topics.create(COORDINATION_TOPIC, SETTINGS)
            await site.say(Join("c", "node-c"))
            await coordination.until(lambda state: "c" in state.members)
            assert watch.take_nowait().members
        assert lease.is_lost
        assert set(coordination.state.members) == {"c"}
        assert coordination.generation == 2


async def test_a_log_that_shrank_and_grew_again_is_noticed_within_seconds(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"))
        await site.hold_heartbeats("a", for_s=5)
        partition = site.log.topics.known(COORDINATION_TOPIC).partitions[0]
        # What an unclean election leaves: other records at the same offsets.
        del partition.records[3:]
        await site.say(*(Heartbeat("z", number) for number in range(20)))
        await site.hold_heartbeats("a", for_s=7)
        assert coordination.generation == 2
        async with site.reading() as fresh:
            assert fresh.state == coordination.state


async def test_who_finds_a_cut_log_with_strangers_waits_for_their_snapshot(site, autojump_clock):
    async with site.reading() as first:
        await site.say(Join("a", "node-a"), TermClaim("a", 1))
        await site.hold_heartbeats("a", for_s=3)
        await trio.sleep(0.1)
        partition = site.log.topics.known(COORDINATION_TOPIC).partitions[0]
        partition.start += 3
        del partition.records[:3]
        second = Coordination(site.log)
        stop = trio.Event()
        reader = CoordinationReader(second, clock=site.clock, rng=random.Random(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run, stop)
            await site.hold_heartbeats("a", for_s=20)
            assert not second.is_current
            assert "cut" in second.trouble
            await site.snapshot(first.state)
            await site.hold_heartbeats("a", for_s=1)
            assert second.is_current
            assert second.state == first.state
            nursery.cancel_scope.cancel()


async def test_who_finds_a_cut_log_whose_members_are_gone_begins_after_ten_seconds(
    site, autojump_clock
):
    async with site.reading():
        await site.say(Join("a", "node-a"))
        await site.hold_heartbeats("a", for_s=3)
    partition = site.log.topics.known(COORDINATION_TOPIC).partitions[0]
    partition.start += 3
    del partition.records[:3]
    began_s = trio.current_time()
    async with site.reading() as coordination:
        assert 10 <= trio.current_time() - began_s < 13
        assert not coordination.state.members


async def test_a_log_cut_after_what_its_only_snapshot_knows_is_begun_without_it(
    site, autojump_clock
):
    async with site.reading() as first:
        await site.say(Join("a", "node-a"), TermClaim("a", 1))
        await first.until(lambda state: state.leader == "a")
        packed, as_of = first.state.snapshot(), first.state.position - 1
    # It takes a while to make one.
    await site.say(Heartbeat("a", 1), Snapshot("a", 1, as_of, packed), Leave("a"))
    partition = site.log.topics.known(COORDINATION_TOPIC).partitions[0]
    partition.start = as_of + 2
    del partition.records[: partition.start]
    async with site.reading() as coordination:
        assert not coordination.state.members


async def test_who_finds_a_cut_and_empty_log_listens_for_a_lease_before_it_begins(
    site, autojump_clock
):
    async with site.reading():
        await site.say(Join("a", "node-a"))
    await site.pass_hours(7)
    site.log.expire(site.clock.now_ms())
    began_s = trio.current_time()
    async with site.reading() as coordination:
        # Members who live say so each half second.
        assert 3 <= trio.current_time() - began_s < 4.5
        assert coordination.state.position == 1


async def test_who_was_there_before_a_long_silence_begins_where_a_newcomer_does(
    site, autojump_clock
):
    async with site.reading() as old:
        await site.say(Join("a", "node-a"), TermClaim("a", 1), TermClaim("z", 7))
        await old.until(lambda state: state.leader == "a")
        await site.pass_hours(7)
        site.log.expire(site.clock.now_ms())
        async with site.reading() as new:
            await site.say(Join("b", "node-b"), TermClaim("b", 1))
            with trio.fail_after(5):
                await new.until(lambda state: state.leader == "b")
                await old.until(lambda state: state.leader == "b")
            assert old.state == new.state
            assert old.generation == 2


async def test_whose_log_has_forgotten_him_is_lost_at_once_though_strangers_are_waited_for(
    site, autojump_clock
):
    async with site.reading() as coordination:
        lease = Lease("a", site.clock)
        coordination.hold(lease)
        await site.say(Join("a", "node-a"), TermClaim("a", 1))
        await coordination.until(lambda state: state.leader == "a")
        await site.pass_hours(7)
        site.log.expire(site.clock.now_ms())
        # His own next word is a stranger's: who said more would wait for himself.
        await site.say(Heartbeat("a", 1))
        await trio.sleep(0.1)
        assert not coordination.is_current
        assert lease.is_lost


async def test_a_long_silence_that_the_log_remembers_ends_nothing(site, autojump_clock):
    async with site.reading() as coordination:
        await site.say(Join("a", "node-a"), TermClaim("a", 1))
        await site.pass_hours(5)
        await site.say(Heartbeat("a", 1), Join("b", "node-b"))
        await coordination.until(lambda state: "b" in state.members)
        await trio.sleep(0.1)
        assert coordination.state.leader == "a"
        assert coordination.generation == 1
