"""How late a loop is, and the thread that logs its stack."""

import logging
import time

import pytest
import trio

from hermes_actors.runtime import guest
from hermes_actors.runtime.watchdog import LoopWatch, watching


def beats(watch: LoopWatch, *times_s: float) -> LoopWatch:
    for each in times_s:
        watch.beat(each)
    return watch


def test_a_loop_that_beats_in_time_is_not_late() -> None:
    watch = beats(LoopWatch(), *(10 + 0.05 * beat for beat in range(100)))
    assert watch.lag_s < 0.001
    assert (watch.stalls, watch.trouble(15.0)) == (0, "")


def test_the_lag_is_the_worst_of_the_last_second_or_two() -> None:
    watch = beats(LoopWatch(), 10.0, 10.05, 10.35)
    assert watch.lag_s == pytest.approx(0.25)
    beats(watch, *(10.4 + 0.05 * beat for beat in range(60)))
    assert watch.lag_s < 0.001


def test_a_standstill_is_counted_and_told_for_ten_minutes() -> None:
    watch = beats(LoopWatch(), 10.0, 10.3, 10.35, 11.4)
    assert watch.stalls == 2
    assert watch.stalled_s == pytest.approx(1.25)
    assert "2 times" in watch.trouble(610.0)
    assert "1.00 s" in watch.trouble(610.0)
    assert watch.trouble(612.0) == ""


def _holds_the_loop() -> None:
    time.sleep(0.5)


@pytest.mark.live
def test_a_loop_that_stands_still_has_its_stack_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = LoopWatch()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with watching(watch, time.monotonic, nursery):
                for _ in range(2):
                    _holds_the_loop()
                    await trio.sleep(0.1)

    with caplog.at_level(logging.WARNING, "hermes_actors.runtime.watchdog"):
        guest.run(main)
    assert watch.stalls >= 2
    (said,) = [each.getMessage() for each in caplog.records if "has stalled" in each.message]
    assert "_holds_the_loop" in said
