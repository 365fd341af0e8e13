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
from hermes_actors.runtime.standstills import Cause, Standstills
from hermes_actors.runtime.watchdog import FRAMES_MAX, Allowance, frames_of, place_of, watching

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_a_stack_is_file_line_and_function_of_the_innermost_frames() -> None:
    def deeper(depth: int, secret: str) -> list[str]:
        return deeper(depth - 1, secret) if depth else frames_of(sys._getframe())

    frames = deeper(100, "a payload")
    assert len(frames) == FRAMES_MAX
    assert all("test_watchdog.py:" in each and "deeper" in each for each in frames)
    assert "payload" not in "\n".join(frames)


def test_the_place_is_the_innermost_line_of_ours() -> None:
    frames = ["  /x/hermes_actors/a.py:1 f", "  /x/hermes_actors/b/c.py:2 g", "  /lib/re.py:3 m"]
    assert place_of(frames) == "b/c.py:2 g"
    assert place_of(["  /lib/re.py:3 m"]) == "/lib/re.py:3 m"
    assert place_of([]) == ""


def test_six_stacks_a_minute_are_logged_and_the_others_counted() -> None:
    allowance = Allowance(0.0)
    taken = [allowance.take(float(second)) for second in range(10)]
    assert taken == [0] * 6 + [None] * 4
    assert allowance.take(60.0) == 4


def _watched(stall: Callable[[], None]) -> Standstills:
    standstills = Standstills(0.05)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with watching(standstills, time.monotonic, nursery):
                await trio.sleep(0.1)
                stall()
                with trio.move_on_after(5):
                    while not sum(standstills.counts.values()):  # noqa: ASYNC110
                        await trio.sleep(0.01)

    guest.run(main)
    return standstills


def _compute() -> None:
    end_s = time.thread_time() + 0.3
    while time.thread_time() < end_s:
        sum(range(1_000))


def _block() -> None:
    time.sleep(0.3)


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.parametrize(("stall", "cause"), [(_compute, Cause.BUSY), (_block, Cause.BLOCKED)])
def test_a_loop_that_stands_still_is_counted_and_its_stack_logged_once(
    stall: Callable[[], None], cause: Cause, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hermes_actors.runtime.watchdog"):
        standstills = _watched(stall)
    assert standstills.counts[cause] == 1
    assert 0.2 < standstills.seconds[cause] < 2
    stacks = [each.getMessage() for each in caplog.records if "innermost last" in each.message]
    assert len(stacks) == 1
    assert stall.__name__ in stacks[0]
    (words,) = standstills.words(time.monotonic())
    assert stall.__name__ in words


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
