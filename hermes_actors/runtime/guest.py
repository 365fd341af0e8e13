"""Runs trio as the guest of an asyncio host: two loops, one thread.

The host (uvloop if installed, else asyncio) owns the sockets of the HTTP servers and of the sender;
the actors are trio tasks. Both share a thread, so either side may call the other's non-waiting
functions directly; only waiting needs `call`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple, Unpack

import outcome
import trio

from hermes_actors.runtime.ticks import Ticks

T = TypeVar("T")
A = TypeVarTuple("A")

# A thread that waits for the interpreter requests it only after waiting this long without being
# woken, and each system call of a busy loop wakes it in vain. With CPython's 5 ms, a busy loop
# delayed the log's writer by up to 130 ms as a guest, and by seconds in plain trio; with this value
# by about 60 ms in both.
_SWITCH_INTERVAL_S = 0.0005

_ticks: trio.lowlevel.RunVar[Ticks | None] = trio.lowlevel.RunVar("_ticks", None)
"""None if trio is no guest."""


def run(main: Callable[[Unpack[A]], Awaitable[T]], *args: *A, host: str = "uvloop") -> T:
    """Run a trio main as the guest of an asyncio host, and return its result.

    `host` is "uvloop" or "asyncio"; if uvloop is not installed, asyncio is used. Raises what `main`
    raises; KeyboardInterrupt after SIGINT if `main` does not receive that signal itself (it is
    cancelled first). To receive signals, call it from the main thread.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=_loop_factory(host)) as runner:
            result: T = runner.run(_host(main, *args))
            return result
    finally:
        sys.setswitchinterval(interval_s)


class HostCancelled(Exception):
    """The asyncio side of a `call` was cancelled, but not by the caller."""


async def call(async_fn: Callable[[Unpack[A]], Awaitable[T]], *args: *A) -> T:
    """Run an asyncio coroutine function from a trio task, and return its result.

    Cancelling the trio side cancels the asyncio task and waits until it has ended, so nothing
    continues in the background. If the coroutine finished despite the cancellation, its value is
    dropped and trio's cancellation wins. Raises what the coroutine raises; HostCancelled if it was
    cancelled on the host side.
    """
    task = asyncio.ensure_future(async_fn(*args))
    done = trio.Event()
    task.add_done_callback(lambda _: done.set())
    try:
        await done.wait()
    except trio.Cancelled:
        task.cancel()
        with trio.CancelScope(shield=True):
            await done.wait()
        if not task.cancelled():
            # Retrieve it, so that asyncio does not warn about an exception that was never
            # retrieved.
            task.exception()
        raise
    if task.cancelled():
        # asyncio's CancelledError is a BaseException that no trio scope catches: it would end the
        # whole guest.
        raise HostCancelled("the coroutine was cancelled on the host side")
    return task.result()


def threads_caller() -> Callable[[Callable[[], object]], object]:
    """Return a function with which any thread calls a function on this trio's loop, soon and in
    order. It raises RuntimeError once the loop has ended.
    """
    ticks = _ticks.get()
    if ticks is None:
        return trio.lowlevel.current_trio_token().run_sync_soon
    return ticks.call_soon_threadsafe


def end_of_turn() -> Callable[[Callable[[], object]], object]:
    """Return a function by which a task wakes a thread: it calls a function at the end of this
    turn of the loop, so that the thread does not have to wait for the interpreter.
    """
    ticks = _ticks.get()
    return (lambda call: call()) if ticks is None else ticks.at_end


def _loop_factory(host: str) -> Callable[[], asyncio.AbstractEventLoop]:
    assert host in ("uvloop", "asyncio"), f"no such host loop: {host}"
    if host == "uvloop":
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop
        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return asyncio.new_event_loop


async def _host(main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[outcome.Outcome[Any]] = loop.create_future()
    scope = trio.CancelScope()

    ticks = Ticks(loop)

    async def guest() -> Any:
        _ticks.set(ticks)
        with scope:
            return await main(*args)

    def done(result: outcome.Outcome[Any]) -> None:
        if not ended.done():
            ended.set_result(result)

    trio.lowlevel.start_guest_run(
        guest,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=ticks.soon,
        done_callback=done,
        host_uses_signal_set_wakeup_fd=True,
    )
    try:
        return (await asyncio.shield(ended)).unwrap()
    except asyncio.CancelledError:
        # Ctrl-C without a signal handler: finish the guest before the loop closes. The guest's own
        # error, if any, wins.
        scope.cancel()
        (await asyncio.shield(ended)).unwrap()
        raise
