"""Tells who waits for something that the node will know that it is known, within half a second.

What a node knows comes by itself. To look whether it has come costs no log anything, so that
nobody who only waits for that needs to wait longer each time.
"""

from collections.abc import Callable

import trio

_LOOK_EVERY_S = 0.5
_AT_ONCE = 64
_PAUSE_S = 0.01
"""So many go on at a time: there may be thousands, and a node has other things to do."""


class Known:
    """Run `watch` beside those who `wait`. One look in half a second serves all of them."""

    def __init__(self) -> None:
        self._waiting: dict[trio.Event, Callable[[], bool]] = {}
        self._somebody_waits = trio.Event()

    async def wait(self, is_known: Callable[[], bool]) -> None:
        """Return when that is so; `is_known` must be quick, and is asked now and again."""
        if is_known():
            return
        is_there = trio.Event()
        self._waiting[is_there] = is_known
        self._somebody_waits.set()
        try:
            await is_there.wait()
        finally:
            del self._waiting[is_there]

    async def watch(self) -> None:
        """Look, for ever."""
        while True:
            if not self._waiting:
                self._somebody_waits = trio.Event()
                await self._somebody_waits.wait()
            await trio.sleep(_LOOK_EVERY_S)
            waiting = list(self._waiting.items())
            for at in range(0, len(waiting), _AT_ONCE):
                found = [each for each, is_known in waiting[at : at + _AT_ONCE] if is_known()]
                for is_there in found:
                    is_there.set()
                # Nobody goes on where nothing is found, yet thousands of looks take their time.
                await trio.sleep(_PAUSE_S if found else 0)
