"""A watcher's view of a fold: first the current state, then each change."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import trio


class FoldWatch:
    """Reports the changes of a fold to one task; a value that changed several times is reported
    once.

    So a watch is limited by the size of the state, and the fold never waits for it. Use it as a
    context manager.
    """

    def __init__(self, on_close: Callable[[Any], None]) -> None:
        self._on_close = on_close
        self._wakeup = trio.Event()
        self._is_closed = False

    @property
    def has_changes(self) -> bool:
        """True if there is a change to take."""
        raise NotImplementedError

    async def wait(self) -> bool:
        """Wait until there is a change to take (True), or the watch is closed (False)."""
        await trio.lowlevel.checkpoint()
        while not self.has_changes:
            if self._is_closed:
                return False
            self._wakeup = trio.Event()
            await self._wakeup.wait()
        return not self._is_closed

    def close(self) -> None:
        """End the watch."""
        self._is_closed = True
        self._wakeup.set()
        self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
