"""How long a message has waited in the spool, whatever the wall clock says meanwhile."""

import pytest
import trio

from hermes_chaos.sim.environment.disk import SimulatedDisk

WEEK_MS = 604_800_000


def expired(disk: SimulatedDisk) -> int:
    file = disk.files.get("set-aside/expired.jsonl")
    return bytes(file).count(b"\n") if file else 0


async def test_what_is_too_old_is_set_aside(open_spooling, entry, memory_log, autojump_clock):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk, age_max_ms=60_000) as spooling:
        assert spooling.offer(entry(b"old", b"k"))
        await trio.sleep(2)
        # It has waited as long, whatever the wall clock says.
        spooling.clock.skew_ms = -WEEK_MS
        assert spooling.offer(entry(b"young", b"k"))
        await trio.sleep(59)
        assert spooling.shown("oldest_age_s") == pytest.approx(61, abs=0.1)
        spooling.replay(log)
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"young"]
    assert expired(disk) == 1


async def test_a_wall_clock_that_jumps_ahead_makes_nothing_old(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    log.faults.unavailable_rate = 1.0
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        spooling.replay(log)
        await trio.sleep(10)
        spooling.clock.skew_ms = 2 * WEEK_MS
        await trio.sleep(100)
        assert spooling.shown("oldest_age_s") == pytest.approx(110, abs=0.1)
        log.faults.heal()
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"1"]
    assert expired(disk) == 0


async def left_by_an_earlier_process(open_spooling, entry, disk: SimulatedDisk) -> None:
    async with open_spooling(disk) as spooling:
        for number in range(3):
            assert spooling.offer(entry(b"%d" % number, b"k"))
        await trio.sleep(1)
        assert [answer for _, answer in spooling.answers] == ["kept"] * 3


async def test_what_seems_old_at_the_start_is_tried_before_it_is_set_aside(
    open_spooling, entry, memory_log, autojump_clock
):
    """The clock may be wrong, then or now; that the log takes the message is certain."""
    disk, log = SimulatedDisk(), await memory_log()
    await left_by_an_earlier_process(open_spooling, entry, disk)
    async with open_spooling(disk, seed=2, ahead_ms=2 * WEEK_MS) as spooling:
        # The node is up for long before the log has the topic, or anybody knows of it.
        await trio.sleep(500)
        log.faults.unavailable_rate = 1.0
        spooling.replay(log)
        await trio.sleep(20)
        log.faults.heal()
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"0", b"1", b"2"]
    assert expired(disk) == 0


async def test_what_seems_old_at_the_start_is_set_aside_when_no_log_takes_it_for_a_minute(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    log.faults.unavailable_rate = 1.0
    await left_by_an_earlier_process(open_spooling, entry, disk)
    async with open_spooling(disk, seed=2, ahead_ms=2 * WEEK_MS) as spooling:
        spooling.replay(log)
        await trio.sleep(55)
        assert spooling.shown("entries") == 3
        assert spooling.shown("oldest_age_s") > 2 * WEEK_MS / 1_000
        await trio.sleep(60)
        assert spooling.shown("entries") == 0
    assert expired(disk) == 3


@pytest.mark.parametrize("ahead_ms", [0, -2 * WEEK_MS])
async def test_what_an_earlier_process_left_a_moment_ago_has_its_time(
    open_spooling, entry, memory_log, autojump_clock, ahead_ms
):
    disk, log = SimulatedDisk(), await memory_log()
    log.faults.unavailable_rate = 1.0
    await left_by_an_earlier_process(open_spooling, entry, disk)
    async with open_spooling(disk, seed=2, ahead_ms=ahead_ms, age_max_ms=300_000) as spooling:
        spooling.replay(log)
        await trio.sleep(290)
        assert spooling.shown("entries") == 3
        await trio.sleep(60)
        assert spooling.shown("entries") == 0
    assert expired(disk) == 3


async def test_what_waits_for_a_topic_that_nobody_knows_is_set_aside_when_it_is_too_old(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk, age_max_ms=60_000) as spooling:
        assert spooling.offer(entry(b"unheard of", b"k", topic="shop.lost"))
        spooling.replay(log)
        await trio.sleep(59)
        assert spooling.shown("entries") == 1
        assert spooling.offer(entry(b"younger", b"k", topic="shop.lost"))
        await trio.sleep(3)
        assert spooling.shown("entries") == 1
        await trio.sleep(90)
        assert spooling.shown("entries") == 0
    assert expired(disk) == 2


async def test_what_seems_old_at_the_start_waits_for_its_topic_to_be_known(
    open_spooling, entry, live, memory_log, autojump_clock
):
    """As while the metadata log is away: nothing can be tried, so nothing is believed."""
    disk, log = SimulatedDisk(), await memory_log(topics=["shop.new"])
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", b"k", topic="shop.new"))
        await trio.sleep(1)
    async with open_spooling(disk, seed=2, ahead_ms=2 * WEEK_MS) as spooling:
        spooling.replay(log)
        await trio.sleep(600)
        assert spooling.shown("entries") == 1
        spooling.live["shop.new"] = live("shop.new")
        await spooling.wait_empty()
        assert await spooling.bodies(log, "shop.new") == [b"1"]
    assert expired(disk) == 0


async def test_of_an_earlier_process_what_nobody_knows_is_set_aside_when_this_one_is_old_itself(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"unheard of", b"k", topic="shop.lost"))
        await trio.sleep(1)
    async with open_spooling(disk, seed=2, ahead_ms=2 * WEEK_MS, age_max_ms=600_000) as spooling:
        spooling.replay(log)
        await trio.sleep(590)
        assert spooling.shown("entries") == 1
        await trio.sleep(60)
        assert spooling.shown("entries") == 0
    assert expired(disk) == 1
