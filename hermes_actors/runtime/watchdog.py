"""Detects a stalled event loop: measures how late it is, and logs one stack of it."""

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

STALL_S = 0.1
"""A loop that is this late has stalled."""

_BEAT_S = STALL_S / 2
_WINDOW_S = 1.0
_TOLD_FOR_S = 600.0
_STACK_INTERVAL_S = 60.0
_FRAMES = 40
_JOIN_S = 1.0

_logger = logging.getLogger(__name__)


class LoopWatch:
    """How late a loop is. Without `watching`, as in a simulation, it is never late."""

    def __init__(self) -> None:
        self.stalls = 0
        self.stalled_s = 0.0
        self._beat_s: float | None = None
        self._last: tuple[float, float] | None = None
        # The maximum of the current second, and of the one before.
        self._worst_s = self._worst_before_s = self._window_s = 0.0

    @property
    def beat_s(self) -> float | None:
        """When the loop last ran, by the monotonic clock; None before it is watched."""
        return self._beat_s

    def beat(self, now_s: float) -> None:
        """Record that the loop runs; to be called every _BEAT_S."""
        before_s, self._beat_s = self._beat_s, now_s
        if before_s is None:
            return
        late_s = max(0.0, now_s - before_s - _BEAT_S)
        if now_s - self._window_s >= _WINDOW_S:
            self._worst_before_s, self._worst_s, self._window_s = self._worst_s, 0.0, now_s
        self._worst_s = max(self._worst_s, late_s)
        if late_s > STALL_S:
            self.stalls += 1
            self.stalled_s += late_s
            self._last = now_s, late_s

    @property
    def lag_s(self) -> float:
        """The loop's maximum delay in the last second or two."""
        return max(self._worst_s, self._worst_before_s)

    def trouble(self, now_s: float) -> str:
        """For ten minutes after a stall, how long it was; otherwise an empty string."""
        if self._last is None or now_s - self._last[0] > _TOLD_FOR_S:
            return ""
        return f"it stalled {self.stalls} times since the start, last for {self._last[1]:.2f} s"


@contextmanager
def watching(
    watch: LoopWatch, now_s: Callable[[], float], nursery: trio.Nursery, logged_s: float = STALL_S
) -> Iterator[None]:
    """Watch the calling thread's loop during the block; `now_s` is monotonic. Stalls of `logged_s`
    are logged.
    """
    has_ended, scope, loop = threading.Event(), trio.CancelScope(), threading.get_ident()

    async def beat() -> None:
        with scope:
            while True:
                watch.beat(now_s())
                await trio.sleep(_BEAT_S)

    def look() -> None:
        stack_s, due_s = -_STACK_INTERVAL_S, now_s() + _BEAT_S
        while not has_ended.wait(_BEAT_S):
            at_s = now_s()
            # If the process was stopped or has no CPU, this thread is late as well.
            late_s, due_s = at_s - due_s, at_s + _BEAT_S
            for_s = at_s - (watch.beat_s or at_s)
            if for_s - late_s > logged_s and at_s - stack_s > _STACK_INTERVAL_S:
                stack_s = at_s
                frame = sys._current_frames().get(loop)
                stack = "".join(traceback.format_stack(frame, _FRAMES))
                _logger.warning("the event loop has stalled for %.2f s:\n%s", for_s, stack)

    watch.beat(now_s())
    nursery.start_soon(beat)
    thread = threading.Thread(target=look, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        scope.cancel()
        has_ended.set()
        thread.join(_JOIN_S)
