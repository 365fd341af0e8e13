"""A thread that sees a loop stand still, and logs once for each time where the loop is."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import trio

from hermes_actors.runtime.cpu import ThreadCpu
from hermes_actors.runtime.standstills import Cause, Sample, Standstill, Standstills

FRAMES_MAX = 40
"""Of a stack, the innermost ones."""

_STACKS_A_MINUTE = 6
_JOIN_S = 1.0
_PACKAGE = "hermes_actors"

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

    watch = _Watch(standstills, now_s, cpu, loop)
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
    """What the thread does."""

    def __init__(
        self, standstills: Standstills, now_s: Callable[[], float], cpu: ThreadCpu, loop: int
    ) -> None:
        self._standstills = standstills
        self._now_s = now_s
        self._cpu = cpu
        self._loop = loop
        self._allowance = Allowance(now_s())
        self._logged_s: float | None = None

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
                if each.is_over:
                    self._tell_end(each)
                else:
                    self._tell_stack(each)

    def _tell_stack(self, each: Standstill) -> None:
        frames = frames_of(sys._current_frames().get(self._loop))
        self._standstills.place = place_of(frames)
        passed_over = self._allowance.take(each.began_s)
        if passed_over is None:
            return
        self._logged_s = each.began_s
        _logger.warning(
            "the event loop stands still for %.2f s already, %s%s; its stack, innermost last:\n%s",
            each.for_s,
            each.cause,
            f" (and {passed_over} times before, not logged)" if passed_over else "",
            "\n".join(frames),
        )

    def _tell_end(self, each: Standstill) -> None:
        if each.cause is Cause.AWAY:
            if self._allowance.take(each.began_s) is not None:
                _logger.warning(
                    "the process did not run for %.2f s: it was stopped, or had no CPU; that is "
                    "no fault of its event loop",
                    each.for_s,
                )
        elif self._logged_s == each.began_s:
            _logger.warning("the event loop stood still for %.2f s, %s", each.for_s, each.cause)


class Allowance:
    """So many stacks may be logged in a minute. Pure."""

    def __init__(self, now_s: float, most: int = _STACKS_A_MINUTE) -> None:
        self._most = most
        self._since_s = now_s
        self._taken = self._passed_over = 0

    def take(self, now_s: float) -> int | None:
        """How many were passed over since the last that might; None: pass this one over too."""
        if now_s - self._since_s >= 60:
            self._since_s, self._taken = now_s, 0
        if self._taken >= self._most:
            self._passed_over += 1
            return None
        self._taken += 1
        passed_over, self._passed_over = self._passed_over, 0
        return passed_over


def frames_of(innermost: FrameType | None) -> list[str]:
    """File, line and function of the innermost frames, these last: no values, no source text."""
    frames: list[str] = []
    frame = innermost
    while frame is not None and len(frames) < FRAMES_MAX:
        code = frame.f_code
        frames.append(f"  {code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return frames[::-1]


def place_of(frames: list[str]) -> str:
    """The innermost frame of ours, else the innermost, with its file from our package on."""
    # What drives the loop is in every stack.
    ours = [
        each for each in frames if f"/{_PACKAGE}/" in each and f"/{_PACKAGE}/runtime/" not in each
    ] or frames
    if not ours:
        return ""
    before, separator, rest = ours[-1].strip().rpartition(f"{_PACKAGE}/")
    return rest if separator else before + rest
