"""A yes of the spool is on the disk; a no is at once; nothing it has said yes to is forgotten."""

import pytest
import trio

from hermes_actors.fallback.spool.spool import Spool
from hermes_chaos.sim.environment.disk import SimulatedDisk


async def bodies_waiting(spool: Spool) -> list[bytes]:
    waiting = [each for queue in spool.index.queues.values() for each in queue.entries]
    return [entry.message.body for _, entry in await spool.read(waiting)]


async def test_an_offer_is_answered_when_it_is_on_the_disk_and_survives_a_crash(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        assert spooling.answers == []
        assert spooling.spool.index.holds("shop.orders", b"k")
        await trio.sleep(0.02)
        assert spooling.answers == [("1", "kept")]
    async with open_spooling(disk) as spooling:
        assert await bodies_waiting(spooling.spool) == [b"1"]
        assert spooling.spool.index.holds("shop.orders", b"k")
        assert spooling.shown("entries") == 1


async def test_what_waits_while_a_write_is_under_way_is_one_write(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"first"))
        await trio.sleep(0.005)
        for number in range(100):
            assert spooling.offer(entry(b"%d" % number))
        await trio.sleep(0.016)
        assert len(spooling.answers) == 101
        assert spooling.spool.measures.write.count == 2


async def test_a_full_disk_refuses_and_loses_nothing_and_is_used_again_when_there_is_room(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1"))
        await trio.sleep(0.1)
        disk.is_full = True
        assert spooling.offer(entry(b"2", b"k"))
        await trio.sleep(0.1)
        assert spooling.answers == [("1", "kept"), ("2", "full")]
        assert not spooling.spool.index.holds("shop.orders", b"k")
        await trio.sleep(10)
        assert not spooling.offer(entry(b"3")), "what cannot be written is refused at once"
        assert "no space left" in spooling.spool.trouble
        disk.is_full = False
        await trio.sleep(2)
        assert spooling.spool.trouble == ""
        assert spooling.offer(entry(b"4"))
        await trio.sleep(0.1)
        assert spooling.answers[-1] == ("4", "kept")
        assert spooling.spool.measures.refused["full"].value == 1
        assert spooling.spool.measures.refused["disk"].value == 1
    async with open_spooling(disk) as spooling:
        assert await bodies_waiting(spooling.spool) == [b"1", b"4"]


async def test_a_disk_that_does_not_answer_is_a_refusal_within_the_write_time_out(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk) as spooling:
        disk.slow_s = 60.0
        assert spooling.offer(entry(b"1"))
        await trio.sleep(1.1)
        assert spooling.answers == [("1", "slow")]
        disk.slow_s = 0.0
        await trio.sleep(2)
        assert spooling.offer(entry(b"2"))
        await trio.sleep(0.1)
        assert spooling.answers[-1] == ("2", "kept")


async def test_a_paused_process_does_not_take_its_disk_for_slow(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk) as spooling:
        # Nothing wakes the writer of a paused process before its time limit has passed.
        disk.slow_s = 60.0
        assert spooling.offer(entry(b"1"))
        await trio.sleep(0.1)
        disk.slow_s = 0.0
        await trio.sleep(1.0)
        assert spooling.answers == [("1", "slow")]
        assert spooling.offer(entry(b"2"))
        await trio.sleep(0.1)
        assert spooling.answers[-1] == ("2", "kept")


@pytest.mark.parametrize("settings", [{"disk_bytes_max": 2_000}, {"entries_max": 5}])
async def test_each_bound_refuses_at_once(open_spooling, entry, autojump_clock, settings):
    async with open_spooling(SimulatedDisk(), **settings) as spooling:
        accepted = 0
        while spooling.offer(entry(b"x" * 100)):
            accepted += 1
            await trio.sleep(0.1)
        assert 3 <= accepted <= 6
        assert spooling.spool.measures.refused["full"].value == 1
        assert [outcome for _, outcome in spooling.answers] == ["kept"] * accepted


async def test_several_entries_are_kept_together_or_not_at_all(
    open_spooling, entry, autojump_clock
):
    async with open_spooling(SimulatedDisk(), entries_max=3) as spooling:
        assert spooling.offer(entry(b"1"), entry(b"2"))
        await trio.sleep(0.1)
        assert not spooling.offer(entry(b"3"), entry(b"4"))
        assert spooling.offer(entry(b"5"))
        await trio.sleep(0.1)
        assert await bodies_waiting(spooling.spool) == [b"1", b"2", b"5"]


async def test_a_late_acknowledgement_settles_it_whether_it_is_written_already_or_not(
    open_spooling, entry, autojump_clock
):
    async with open_spooling(SimulatedDisk(write_s=(0.01, 0.01))) as spooling:
        spool = spooling.spool
        spool.concluded(spooling.offer(entry(b"1", b"a"), is_sent=True), [True])
        second = spooling.offer(entry(b"2", b"b"), entry(b"3", b"c"), is_sent=True)
        await trio.sleep(0.1)
        spool.concluded(second, [True, False])
        assert spooling.answers == [("1", "kept"), ("2", "kept")]
        assert spool.index.entries == 1
        assert [spool.index.holds("shop.orders", key) for key in (b"a", b"b", b"c")] == [
            False,
            False,
            True,
        ]
        assert spool.measures.late_acknowledgements.value == 2


async def test_what_waits_when_the_spool_is_stopped_is_written_first(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        for number in range(5):
            assert spooling.offer(entry(b"%d" % number))
        await spooling.supervisor.stop("spool writer")
        assert spooling.answers == [(str(number), "kept") for number in range(5)]
        assert not spooling.offer(entry(b"late"))
    async with open_spooling(disk) as spooling:
        assert len(await bodies_waiting(spooling.spool)) == 5


async def test_a_writer_that_fails_answers_what_it_wrote_and_writes_the_rest_later(
    open_spooling, entry, autojump_clock
):
    async with open_spooling(SimulatedDisk(write_s=(0.01, 0.01))) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        await trio.sleep(0.005)
        assert spooling.offer(entry(b"2"))
        spooling.supervisor.crash("spool writer")
        await trio.sleep(0.001)
        assert spooling.answers == [("1", "closed")]
        assert not spooling.spool.index.holds("shop.orders", b"k")
        await trio.sleep(2)
        assert spooling.answers == [("1", "closed"), ("2", "kept")]


async def test_an_emptied_spool_leaves_no_segment_when_it_is_stopped_and_none_grows_for_ever(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk, disk_bytes_max=64_000) as spooling:
        for number in range(1_000):
            offer = spooling.offer(entry(b"%d" % number), is_sent=True)
            await trio.sleep(0.01)
            spooling.spool.concluded(offer, [True])
        assert spooling.shown("disk_bytes") < 2_000
        await spooling.supervisor.stop("spool writer")
        assert not disk.files
