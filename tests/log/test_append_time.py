"""The timestamps that the logs of our own give themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.append_time import AppendTime
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.hand_clock import HandClock

SETTINGS = TopicSettings(log_append_time=True)
steps = st.lists(st.tuples(st.integers(0, 5_000), st.integers(-3_600_000, 3_600_000)), max_size=30)


async def stamps_of(log, clock):
    """Those of a heartbeat each half second, with the clock set back by an hour amid them."""

    async def append():
        await log.append("t", 0, [Record(None, b"x", (), 1)], Ack.ALL)
        clock.pass_time(0.5)

    for _ in range(4):
        await append()
    clock.wall_ms -= 3_600_000
    for _ in range(9):
        await append()
    async with log.reader("t", {0: 0}) as reader:
        found = []
        while len(found) < 13:
            found += await reader.next_batch(100, 100_000)
    return [each.timestamp_ms - 1_700_000_000_000 for each in found]


EXPECTED = [0, 500, 1_000, 1_500, 1_500, *range(1_750, 3_501, 250)]


async def test_the_memory_logs_time_goes_on_while_the_wall_clock_is_behind():
    clock = HandClock()
    log = MemoryLog("dc1", clock)
    await log.topics.create("t", SETTINGS)
    assert await stamps_of(log, clock) == EXPECTED


async def test_the_embedded_logs_time_goes_on_while_the_wall_clock_is_behind(tmp_path):
    clock = HandClock()
    async with open_embedded_log(tmp_path, "dc1", clock) as log:
        await log.topics.create("t", SETTINGS)
        assert await stamps_of(log, clock) == EXPECTED
    # A process that was started anew finds its clock behind, and goes on too.
    async with open_embedded_log(tmp_path, "dc1", clock) as log:
        for _ in range(3):
            await log.append("t", 0, [Record(None, b"x", (), 1)], Ack.ALL)
            clock.pass_time(1)
        async with log.reader("t", {0: 13}) as reader:
            found = []
            while len(found) < 3:
                found += await reader.next_batch(100, 100_000)
    assert [each.timestamp_ms - 1_700_000_000_000 for each in found] == [3_500, 4_000, 4_500]


@given(steps)
def test_stamps_never_go_back_and_never_run_ahead_of_both_clocks(steps):
    times, high_ms, now_ms, passed_ms = AppendTime(), 0, 10_000_000, 0
    for passes_ms, jumps_ms in steps:
        passed_ms += passes_ms
        now_ms = max(0, now_ms + passes_ms + jumps_ms)
        stamp_ms = times.stamp_ms(high_ms, now_ms, passed_ms / 1_000)
        assert high_ms <= stamp_ms
        assert stamp_ms <= max(now_ms, high_ms + passed_ms)
        assert stamp_ms >= now_ms
        high_ms = stamp_ms


@pytest.mark.parametrize("back_ms", [100, 10_000])
def test_the_wall_clock_catches_up(back_ms):
    times, at_ms = AppendTime(), 0
    at_ms = times.stamp_ms(0, 1_000_000, 0.0)
    for passed_s in range(1, 3 + back_ms // 500):
        wall_ms = 1_000_000 - back_ms + 1_000 * passed_s
        at_ms = times.stamp_ms(at_ms, wall_ms, float(passed_s))
    assert at_ms == wall_ms


def test_frequent_appends_lose_no_time():
    times, high_ms = AppendTime(), 1_000
    for step in range(10_001):
        high_ms = times.stamp_ms(high_ms, 0, step / 10_000)
    assert high_ms == 1_500
