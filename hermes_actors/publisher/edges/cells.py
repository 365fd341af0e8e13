"""Where one request waits: for its body, which the deadline may interrupt, and for its outcome.

A cell is the `notify` of a publication. It costs nothing until something must be waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import trio

from hermes_actors.publisher.publication import Publication

T = TypeVar("T")


class Cell(Protocol):
    """For one request on one loop."""

    def __call__(self, publication: Publication) -> None:
        """The publication is settled."""

    async def read(self, receive: Callable[[], Awaitable[T]]) -> T | None:
        """What `receive` gives, or None when the publication is settled first."""

    async def wait(self) -> None:
        """Wait until the publication is settled."""


class AsyncioCell:
    """A cell on the asyncio host loop; may be told from a trio task of the same thread."""

    __slots__ = ("_future", "_is_settled", "_reading")

    def __init__(self) -> None:
        self._is_settled = False
        self._future: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[Any] | None = None

    def __call__(self, publication: Publication) -> None:
        """The publication is settled."""
        self._is_settled = True
        if self._future is not None:
            if not self._future.done():
                self._future.set_result(None)
        elif self._reading is not None:
            self._reading.cancel()

    async def read(self, receive: Callable[[], Awaitable[T]]) -> T | None:
        """What `receive` gives, or None when the publication is settled first."""
        if self._is_settled:
            return None
        # asyncio has no scopes; cancelling the own task costs nothing unless it happens.
        self._reading = task = asyncio.current_task()
        assert task is not None
        try:
            return await receive()
        except asyncio.CancelledError:
            if not self._is_settled or task.uncancel():
                raise
            return None
        finally:
            self._reading = None

    async def wait(self) -> None:
        """Wait until the publication is settled."""
        if not self._is_settled:
            self._future = asyncio.get_running_loop().create_future()
            await self._future


class TrioCell:
    """A cell in trio, for simulations and tests."""

    __slots__ = ("_event", "_scope")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._scope = trio.CancelScope()

    def __call__(self, publication: Publication) -> None:
        """The publication is settled."""
        self._event.set()
        self._scope.cancel()

    async def read(self, receive: Callable[[], Awaitable[T]]) -> T | None:
        """What `receive` gives, or None when the publication is settled first."""
        self._scope = trio.CancelScope()
        if self._event.is_set():
            return None
        with self._scope:
            return await receive()
        return None

    async def wait(self) -> None:
        """Wait until the publication is settled."""
        await self._event.wait()
