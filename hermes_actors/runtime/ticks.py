"""Drives a guest run from the host's own poll: no thread waits for trio's I/O.

As a guest, trio normally waits in a worker thread, so every wake-up passes through a socket, that
thread and the interpreter's lock, which is a large part of the cost of a small message. But an
epoll set is itself a file that can be polled: here the host watches trio's, and a task that the
host makes runnable runs in the host's next turn.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import sniffio
import trio
from outcome import Error, Outcome, Value, capture

_TIMER_SLACK_S = 0.001
"""How early a timer of the host may fire."""


class Ticks:
    """The `run_sync_soon_not_threadsafe` of a guest run; drives that run on `loop`.

    It uses private names of trio. If one is missing (another version, a system without epoll), the
    guest runs in trio's normal way, with the thread, and `is_direct` stays False.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_direct = False
        self._loop = loop
        self._state: Any = None
        self._io: Any = None
        self._has_events = False
        self._is_waiting = False
        self._is_calling = False
        self._at_end: list[Callable[[], object]] = []
        self._wait_ends_s = 0.0
        # uvloop's handle of a timer that is due immediately does not know its time.
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0

    def soon(self, tick: Callable[[], object]) -> None:
        """Run the guest's next tick in the host's next turn. When the run is driven directly, this
        is called only once.
        """
        state: Any = getattr(tick, "__self__", None)
        if not _is_known(state):
            self._loop.call_soon(tick)
            return
        self.is_direct = True
        self._state = state
        self._io = state.runner.io_manager
        self._loop.add_reader(self._io._epoll.fileno(), self._on_events)
        state.runner.io_manager = _WatchedIO(self._io, self.wake, self._close)
        self._loop.call_soon(self._tick)

    def wake(self) -> None:
        """A task became runnable, or a deadline moved, in a turn of the host."""
        if self._is_waiting:
            self._end_wait(Value(_Woken()))
            if not self._is_calling:
                self._loop.call_soon(self._tick)

    def at_end(self, call: Callable[[], object]) -> None:
        """Call it when the tasks that are runnable now have run; for tasks only.

        A thread that is woken then finds the interpreter free, because the loop goes to wait.
        """
        if self.is_direct:
            self._at_end.append(call)
        else:
            call()

    def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        """Call it on this loop soon, and run at once the tasks that it makes runnable. Raises
        RuntimeError if the loop has been closed. Any thread may call this.

        It takes a system call for each side. Trio's own way takes six, because it goes through a
        socket and trio's epoll set.
        """
        self._loop.call_soon_threadsafe(self._call, call)

    def _call(self, call: Callable[[], object]) -> None:
        was_waiting = self._is_waiting
        self._is_calling = True
        try:
            call()
        finally:
            self._is_calling = False
            if was_waiting and not self._is_waiting:
                self._tick()

    def _tick(self) -> None:
        """As trio's own, except for how it waits."""
        state = self._state
        previous, sniffio.thread_local.name = sniffio.thread_local.name, "trio"
        try:
            timeout_s = state.unrolled_run_next_send.send(state.unrolled_run_gen)
        except StopIteration:
            self._end_turn()
            state.done_callback(state.runner.main_task_outcome)
            return
        except trio.TrioInternalError as error:
            state.done_callback(Error(error))
            return
        finally:
            sniffio.thread_local.name = previous
        if self._has_events:
            state.unrolled_run_next_send = self._poll()
        elif timeout_s > 0:
            self._wait(timeout_s)
            self._end_turn()
            return
        else:
            state.unrolled_run_next_send = Value([])
        state.runner.guest_tick_scheduled = True
        self._loop.call_soon(self._tick)
        self._end_turn()

    def _end_turn(self) -> None:
        calls = self._at_end
        if calls:
            self._at_end = []
            for call in calls:
                call()

    def _wait(self, timeout_s: float) -> None:
        self._is_waiting = True
        self._state.runner.guest_tick_scheduled = False
        self._wait_ends_s = self._loop.time() + timeout_s
        # An earlier timer is kept; it checks the time when it fires. Most waits end long before.
        if self._timer is None or self._timer_at_s > self._wait_ends_s:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = self._wait_ends_s
        self._timer = self._loop.call_at(self._timer_at_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not self._is_waiting:
            return
        if self._wait_ends_s - self._loop.time() > _TIMER_SLACK_S:
            self._set_timer()
            return
        self._end_wait(Value([]))
        self._tick()

    def _on_events(self) -> None:
        self._has_events = True
        if self._is_waiting:
            self._end_wait(self._poll())
            self._tick()

    def _poll(self) -> Outcome[Any]:
        # If trio leaves some events (it takes a bounded number), the host reports them again.
        self._has_events = False
        return capture(lambda: _Woken(self._io.get_events(0)))

    def _end_wait(self, events: Outcome[Any]) -> None:
        self._is_waiting = False
        self._state.runner.guest_tick_scheduled = True
        self._state.unrolled_run_next_send = events

    def _close(self) -> None:
        self._loop.remove_reader(self._io._epoll.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._io.close()


class _Woken(list[Any]):
    """The events of a wait that did not time out; trio checks their truth value."""

    def __bool__(self) -> bool:
        return True


class _WatchedIO:
    """trio's I/O manager, with a replaced wake-up and a close that the host learns of."""

    def __init__(self, io: Any, wake: Callable[[], None], close: Callable[[], None]) -> None:
        self._io = io
        self.force_wakeup = wake
        self.close = close
        self.process_events = io.process_events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)


def _is_known(state: Any) -> bool:
    runner = getattr(state, "runner", None)
    io = getattr(runner, "io_manager", None)
    return all(
        hasattr(owner, name)
        for owner, names in (
            (state, ("unrolled_run_gen", "unrolled_run_next_send", "done_callback")),
            (runner, ("guest_tick_scheduled", "main_task_outcome")),
            (io, ("_epoll", "get_events", "process_events", "force_wakeup", "close")),
        )
        for name in names
    )
