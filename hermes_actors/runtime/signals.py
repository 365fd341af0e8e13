"""SIGTERM and SIGINT ask for a drain; a second one ends the process at once. Others just call."""

import os
import signal
from collections.abc import Awaitable, Callable

import trio


async def stop_on_signal(
    begin_drain: Callable[[], None],
    *,
    before_exit: Callable[[], None] = lambda: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `begin_drain` at the first SIGTERM or SIGINT; exit with 128 + n at the second.

    Nothing is put away then but what `before_exit` does.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        drains = False
        async for number in signals:
            if drains:
                before_exit()
                os._exit(128 + number)
            drains = True
            begin_drain()


async def call_on_signal(
    number: signal.Signals,
    action: Callable[[], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `action` each time that signal comes, until cancelled; once for those that come
    meanwhile.
    """
    with trio.open_signal_receiver(number) as signals:
        task_status.started()
        async for _ in signals:
            await action()
