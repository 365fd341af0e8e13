"""A thread that sees a loop stand still, and logs when that begins, and then how it goes on."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from hermes_actors.runtime.cpu import ThreadCpu
from hermes_actors.runtime.holders import (
    UNSEEN,
    Holder,
    frames_of,
    holder_of,
    stack_lines,
    task_paths,
)
from hermes_actors.runtime.standstills import Sample, StallCause, Standstill, Standstills

_SUMMARY_INTERVAL_S = 60.0
_JOIN_S = 1.0
_NAMED_MAX = 3

_logger = logging.getLogger(__name__)


@contextmanager
def watching(
    standstills: Standstills, now_s: Callable[[], float], nursery: trio.Nursery
) -> Iterator[None]:
    """Watch the loop of the calling thread for the length of the block. `now_s` is monotonic."""
    cpu, loop = ThreadCpu(), threading.get_ident()
    has_ended = threading.Event()
    scope = trio.CancelScope()

    async def beat() -> None:
        with scope:
            while True:
                standstills.beat(now_s())
                await trio.sleep(standstills.beat_interval_s)

    watch = _Watch(standstills, now_s, cpu, loop, task_paths())
    thread = threading.Thread(target=watch.run, args=(has_ended,), name="watchdog", daemon=True)
    standstills.beat(now_s())
    nursery.start_soon(beat)
    thread.start()
    try:
        yield
    finally:
        scope.cancel()
        standstills.end()
        has_ended.set()
        thread.join(_JOIN_S)
        if not thread.is_alive():
            cpu.close()


class _Watch:
    """The watching thread's work: it looks at each beat and logs."""

    def __init__(
        self,
        standstills: Standstills,
        now_s: Callable[[], float],
        cpu: ThreadCpu,
        loop: int,
        path_of_task: Callable[[], str],
    ) -> None:
        self._standstills = standstills
        self._now_s = now_s
        self._cpu = cpu
        self._loop = loop
        self._path_of_task = path_of_task
        self._telling = Telling()

    def run(self, has_ended: threading.Event) -> None:
        """Look each beat, until the end."""
        interval_s = self._standstills.beat_interval_s
        due_s, late_s = self._now_s() + interval_s, 0.0
        while not has_ended.wait(max(0.0, due_s - self._now_s())):
            at_s = self._now_s()
            late_s += max(0.0, at_s - due_s)
            due_s = at_s + interval_s
            cpu = self._cpu
            sample = Sample(at_s, cpu.used_s(), cpu.process_used_s(), cpu.waited_s(), late_s)
            for each in self._standstills.look(sample):
                self._log(self._telling.ended(each) if each.is_over else self._begun(each))
            self._log(self._telling.summary(at_s))

    def _begun(self, each: Standstill) -> str:
        frames = frames_of(sys._current_frames().get(self._loop))
        holder = self._standstills.holder = holder_of(frames, self._path_of_task)
        return self._telling.begun(each, holder, stack_lines(frames))

    def _log(self, line: str) -> None:
        if line:
            _logger.warning("%s", line)


class Telling:
    """The lines to log about a loop's standstills: the first at once, then a summary each minute
    until a minute has none. The stack is with those that were the loop's own doing. Pure.
    """

    def __init__(self) -> None:
        # When the next summary is due; None while all is well.
        self._due_s: float | None = None
        self._ended: list[Standstill] = []
        self._stack: tuple[float, list[str]] = 0.0, []
        self._worst: tuple[float, list[str]] = 0.0, []

    def begun(self, each: Standstill, holder: Holder, frames: list[str]) -> str:
        """The line to log when one is seen that is the loop's own doing, "" for none."""
        self._stack = each.began_s, frames
        if not self._begins(each):
            return ""
        return (
            f"the event loop stands still for {each.for_s:.2f} s already, {each.cause}, held by "
            f"{holder}; it is summed up each minute from now on; its stack, innermost last:\n"
            + "\n".join(frames)
        )

    def ended(self, each: Standstill) -> str:
        """The line to log when one is over, "" for none."""
        if self._begins(each):
            if each.cause is StallCause.AWAY:
                return (
                    f"the process did not run for {each.for_s:.2f} s: it was stopped, or had no "
                    "CPU; that is no fault of its event loop"
                )
            return f"the event loop stood still for {each.for_s:.2f} s, {each.cause}"
        self._ended.append(each)
        began_s, frames = self._stack
        if (
            each.cause is not StallCause.AWAY
            and each.began_s == began_s
            and each.for_s > self._worst[0]
        ):
            self._worst = each.for_s, frames
        return ""

    def summary(self, now_s: float) -> str:
        """The line to log now, "" for none: asked again and again."""
        if self._due_s is None or now_s < self._due_s:
            return ""
        ended, self._ended = self._ended, []
        (worst_s, frames), self._worst = self._worst, (0.0, [])
        self._due_s = now_s + _SUMMARY_INTERVAL_S if ended else None
        if not ended:
            return ""
        parts = [
            f"{len(found)} times {_WORDS[cause]}, {sum(each.for_s for each in found):.2f} s in all "
            f"and {max(each.for_s for each in found):.2f} s at most"
            for cause in StallCause
            if (found := [each for each in ended if each.cause is cause])
        ]
        line = f"the event loop stood still in the last minute: {'; '.join(parts)}"
        if held := _longest(ended):
            line += f"; held by {held}"
        if not frames:
            return line
        stack = "\n".join(frames)
        return f"{line}; where it did so itself for {worst_s:.2f} s, innermost last:\n{stack}"

    def _begins(self, each: Standstill) -> bool:
        """True for the first after a minute without one."""
        if self._due_s is not None:
            return False
        self._due_s = each.began_s + each.for_s + _SUMMARY_INTERVAL_S
        return True


_WORDS = {
    StallCause.BUSY: "busy",
    StallCause.BLOCKED: "blocked (it waited for a file, a lock or a thread)",
    StallCause.AWAY: "away (the process was stopped or had no CPU)",
}


def _longest(ended: list[Standstill]) -> str:
    """The holders of the loop and their times, the longest first; "" where nobody was seen."""
    held: dict[str, float] = {}
    for each in ended:
        if each.cause is not StallCause.AWAY:
            held[each.holder.kind] = held.get(each.holder.kind, 0.0) + each.for_s
    if not held.keys() - {UNSEEN}:
        return ""
    longest = sorted(held.items(), key=lambda each: -each[1])[:_NAMED_MAX]
    return ", ".join(f"{kind} for {for_s:.2f} s" for kind, for_s in longest)
