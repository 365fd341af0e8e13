"""SIGTERM and SIGINT ask for a drain; a second one ends the process at once."""

import os
import signal
from collections.abc import Callable

import trio


async def stop_on_signal(
    begin_drain: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `begin_drain` at the first SIGTERM or SIGINT; exit with 128 + n at the second."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        drains = False
        async for number in signals:
            if drains:
                os._exit(128 + number)
            drains = True
            begin_drain()
