"""Runs a task until it is closed: after an unexpected error it is logged and started again.

Otherwise a defect in the task that looks up leaders, or in the one that times out requests, would
leave a node that seems to be up and does nothing. For the host loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_logger = logging.getLogger(__name__)
_PAUSE_S = 1.0


class Perpetual:
    """Runs `work()`, and again a second after each failure. `what` names it in log messages."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        self._work = work
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self) -> None:
        """Start the task."""
        self._pause = None
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel the task, and wait for its end."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or self._is_closed:
            return
        _logger.error("%s failed and starts again", self._what, exc_info=error)
        self._pause = asyncio.get_running_loop().call_later(_PAUSE_S, self.start)
