"""Where a request over HTTP/2 waits: for its body, which the deadline may interrupt, and for its
outcome.

A cell is the `notify` of a publication. It costs nothing until something must be waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hermes_actors.publisher.publication import Publication

T = TypeVar("T")


class Cell:
    """For one request on the asyncio host loop; may be told from a trio task of the same thread."""

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
