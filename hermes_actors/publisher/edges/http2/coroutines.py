"""Runs coroutines without tasks: a queue of those that can continue, and the events that the others
await.

hypercorn's protocol consists of coroutines. A task for each would cost more than their work.
"""

from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any

Waiting = Coroutine["Event", None, None]


class Event:
    """An event that coroutines wait for; as `hypercorn.typing.Event`."""

    __slots__ = ("_is_set", "_ready", "_waiting")

    def __init__(self, ready: deque[Waiting]) -> None:
        self._ready = ready
        self._is_set = False
        self._waiting: list[Waiting] = []

    async def set(self) -> None:
        """Set the event; coroutines that wait for it continue."""
        self._is_set = True
        if self._waiting:
            self._ready.extend(self._waiting)
            self._waiting = []

    async def clear(self) -> None:
        """Clear the event; later calls of `wait` block."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the event is set."""
        if not self._is_set:
            await self

    def __await__(self) -> Generator["Event", None, None]:
        yield self

    def resumes(self, coroutine: Waiting) -> None:
        """Continue this coroutine when the event is set."""
        self._waiting.append(coroutine)


class Coroutines:
    """The coroutines of one connection. They may await only each other and events made by
    `event`.
    """

    def __init__(self) -> None:
        self._ready: deque[Waiting] = deque()

    def event(self) -> Event:
        """Make an event."""
        return Event(self._ready)

    def add(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start it in the next `run`."""
        self._ready.append(coroutine)

    def run(self) -> None:
        """Run all until each has ended or waits for an event."""
        ready = self._ready
        while ready:
            coroutine = ready.popleft()
            try:
                event = coroutine.send(None)
            except StopIteration:
                continue
            event.resumes(coroutine)
