"""A watcher's view of a fold: what there is first, then what changes, each thing once."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import trio


class FoldWatch:
    """Tells one task what changes in a fold, each thing once however often it changed.

    So it is bounded by the state, and the fold never waits for it. Use it as a context manager.
    """

    def __init__(self, on_close: Callable[[Any], None]) -> None:
        self._on_close = on_close
        self._wakeup = trio.Event()
        self._is_closed = False

    @property
    def has_changes(self) -> bool:
        """True while there is a change to take."""
        raise NotImplementedError

    async def wait(self) -> bool:
        """Wait until there is a change to take (True) or the watch is closed (False)."""
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
