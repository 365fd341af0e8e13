"""The thread that watches a loop: real loops, real threads."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import trio

from hermes_actors.runtime import guest
from hermes_actors.runtime.cpu import ThreadCpu
from hermes_actors.runtime.holders import FRAMES_MAX, Holder, frames_of, stack_lines
from hermes_actors.runtime.standstills import StallCause, Standstill, Standstills
from hermes_actors.runtime.watchdog import Telling, watching

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_a_stack_is_file_line_and_function_of_the_innermost_frames() -> None:
    def deeper(depth: int, secret: str) -> list[str]:
        return deeper(depth - 1, secret) if depth else stack_lines(frames_of(sys._getframe()))

    frames = deeper(100, "a payload")
    assert len(frames) == FRAMES_MAX
    assert all("test_watchdog.py:" in each and "deeper" in each for each in frames)
    assert "payload" not in "\n".join(frames)


HOLDER = Holder("Filters", "agent / a.b$c", "filters/paths.py:88 walk")


def standstill(
    began_s: float, for_s: float, cause: StallCause, *, is_over: bool = True
) -> Standstill:
    return Standstill(began_s, for_s, cause, is_over=is_over)


def test_the_first_standstill_is_told_at_once_and_the_others_are_summed_up_each_minute() -> None:
    telling, lines = Telling(), []
    for second in range(200):
        now_s = float(second)
        if second < 150:
            lines.append(telling.ended(standstill(now_s - 0.5, 0.25, StallCause.AWAY)))
        lines.append(telling.summary(now_s))
    first, *summaries = [each for each in lines if each]
    assert first.startswith("the process did not run for 0.25 s: it was stopped, or had no CPU")
    # Three for two and a half minutes; of a minute that has none nothing is told.
    assert [each.split(": ", 1)[1].split(" ")[0] for each in summaries] == ["60", "60", "29"]
    assert summaries[0] == (
        "the event loop stood still in the last minute: 60 times away (the process was stopped or "
        "had no CPU), 15.00 s in all and 0.25 s at most"
    )


def test_a_stack_is_told_only_of_what_was_the_loops_own_doing_the_longest_in_a_minute() -> None:
    telling = Telling()
    assert "had no CPU" in telling.ended(standstill(0.0, 0.2, StallCause.AWAY))
    for began_s, for_s in ((1.0, 0.3), (2.0, 0.9), (3.0, 0.2)):
        begun = standstill(began_s, 0.1, StallCause.BUSY, is_over=False)
        assert telling.begun(begun, HOLDER, [f"  frame {began_s}"]) == ""
        assert telling.ended(standstill(began_s, for_s, StallCause.BUSY)) == ""
    assert telling.ended(standstill(4.0, 5.0, StallCause.AWAY)) == ""
    line, *stack = telling.summary(61.0).splitlines()
    assert "3 times busy, 1.40 s in all and 0.90 s at most; 1 times away" in line
    assert line.endswith("where it did so itself for 0.90 s, innermost last:")
    assert "held by" not in line
    assert stack == ["  frame 2.0"]


def test_one_that_begins_a_bad_time_is_told_with_its_stack_while_it_lasts() -> None:
    telling = Telling()
    begun = standstill(1.0, 0.12, StallCause.BLOCKED, is_over=False)
    first, *stack = telling.begun(begun, HOLDER, ["  a", "  b"]).splitlines()
    assert first.startswith(
        "the event loop stands still for 0.12 s already, blocked, held by Filters (agent / a.b$c) "
        "in filters/paths.py:88 walk"
    )
    assert stack == ["  a", "  b"]
    assert telling.ended(standstill(1.0, 7.0, StallCause.BLOCKED)) == ""
    assert "7.00 s at most" in telling.summary(62.0)
    assert telling.summary(123.0) == ""
    # A minute of calm later it begins again.
    assert (
        telling.begun(standstill(130.0, 0.12, StallCause.BUSY, is_over=False), HOLDER, ["  c"])
        != ""
    )


def _watched(stall: Callable[[], None]) -> tuple[Standstills, float]:
    """What was seen of it, and for how long the loop's thread had no CPU then and just before."""
    standstills, waited_s = Standstills(0.05), 0.0

    async def main() -> None:
        nonlocal waited_s
        cpu = ThreadCpu()
        async with trio.open_nursery() as nursery:
            with watching(standstills, time.monotonic, nursery):
                began_s = time.monotonic()
                await trio.sleep(0.1)
                late_s = time.monotonic() - began_s - 0.1
                before_s = cpu.waited_s()
                stall()
                waited_s = late_s + cpu.waited_s() - before_s
                with trio.move_on_after(5):
                    # A busy machine may have made it stand still before, for a moment.
                    while not any(each.for_s > 0.2 for each in standstills.last):  # noqa: ASYNC110
                        await trio.sleep(0.01)
        cpu.close()

    guest.run(main)
    return standstills, waited_s


def _compute() -> None:
    end_s = time.thread_time() + 0.3
    while time.thread_time() < end_s:
        sum(range(1_000))


def _block() -> None:
    time.sleep(0.3)


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.parametrize(
    ("stall", "cause"), [(_compute, StallCause.BUSY), (_block, StallCause.BLOCKED)]
)
def test_a_loop_that_stands_still_is_counted_and_its_stack_logged_once(
    stall: Callable[[], None], cause: StallCause, caplog: pytest.LogCaptureFixture
) -> None:
    standstills, tries, waited_s = Standstills(), 0, 1.0
    while waited_s > 0.05 and tries < 20:
        tries += 1
        caplog.clear()
        with caplog.at_level(logging.WARNING, "hermes_actors.runtime.watchdog"):
            standstills, waited_s = _watched(stall)
    if waited_s > 0.05:
        # A machine on which a thread that computes never has a CPU for so long: the process may
        # rightly be said to have been away.
        assert sum(standstills.counts.values()) >= 1
        return
    assert standstills.counts[cause] == 1
    assert 0.2 < standstills.seconds[cause] < 2
    stacks = [each.getMessage() for each in caplog.records if "innermost last" in each.message]
    assert len(stacks) == 1
    assert stall.__name__ in stacks[0]
    # A busy machine may have kept it from running too.
    assert any(stall.__name__ in words for words in standstills.words(time.monotonic()))


_PROCESS = """
import logging, time, trio
from hermes_actors.runtime import guest
from hermes_actors.runtime.standstills import Standstills
from hermes_actors.runtime.watchdog import watching

logging.basicConfig(format="%(message)s")
standstills = Standstills()

async def main():
    async with trio.open_nursery() as nursery:
        with watching(standstills, time.monotonic, nursery):
            await trio.sleep(0.2)
            print("ready", flush=True)
            while not sum(standstills.counts.values()):
                await trio.sleep(0.01)

guest.run(main)
print({cause.value: count for cause, count in standstills.counts.items()}, flush=True)
"""


@pytest.mark.live
@pytest.mark.alone
def test_a_process_that_was_stopped_says_that_its_loop_is_not_to_blame() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROCESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(process.pid, signal.SIGCONT)
        said = process.stdout.read()
    assert "no fault of its event loop" in said
    assert "innermost last" not in said
    assert "{'busy': 0, 'blocked': 0, 'away': 1}" in said


def test_a_summary_names_who_held_the_loop_the_longest_first() -> None:
    telling = Telling()
    telling.begun(standstill(0.0, 0.2, StallCause.BUSY, is_over=False), HOLDER, ["  a"])
    for at, (kind, for_s) in enumerate((("Registry", 0.25), ("Filters", 0.5), ("Registry", 1.5))):
        over = Standstill(1.0 + at, for_s, StallCause.BUSY, is_over=True, holder=Holder(kind))
        assert telling.ended(over) == ""
    assert "held by Registry for 1.75 s, Filters for 0.50 s" in telling.summary(61.0)
