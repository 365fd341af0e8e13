"""SIGTERM and SIGINT begin a drain; a second one ends the process at once. Other signals call a
function.
"""

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

    The second one does no clean-up except `before_exit`.
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
    """Call `action` each time the signal arrives, until cancelled; once for all signals that arrive
    during a call.
    """
    with trio.open_signal_receiver(number) as signals:
        task_status.started()
        async for _ in signals:
            await action()
