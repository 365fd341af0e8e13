"""Lets code on the host loop await trio coroutines; `guest.call` is the other direction.

It is for low traffic (management), because each call costs a trio task. The publish path does not
use it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
import outcome
import sniffio
import trio

T = TypeVar("T")
A = TypeVarTuple("A")


class TrioBridge:
    """Runs trio coroutines for callers on either loop. Open it with `open_bridge`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._is_closed = False

    def close(self) -> None:
        """Refuse new calls and cancel the open ones."""
        self._is_closed = True
        self._nursery.cancel_scope.cancel()

    async def call(self, async_fn: Callable[[Unpack[A]], Awaitable[T]], *args: *A) -> T:
        """Await `async_fn(*args)` in trio; from a trio task this is a plain await.

        Cancelling the caller cancels the trio side. Raises what `async_fn` raises; BridgeClosed if
        the node stops first.
        """
        if sniffio.current_async_library() == "trio":
            return await async_fn(*args)
        scope = trio.CancelScope()
        ended = anyio.Event()
        results: list[outcome.Outcome[T]] = []

        async def body() -> None:
            try:
                with scope:
                    result = await outcome.acapture(async_fn, *args)
                    if isinstance(result, outcome.Error) and not isinstance(
                        result.error, Exception
                    ):
                        # A cancellation belongs to trio; it must not appear on the other loop.
                        result.unwrap()
                    results.append(result)
            finally:
                ended.set()

        if self._is_closed:
            raise BridgeClosed("the node is stopping")
        self._nursery.start_soon(body)
        try:
            await ended.wait()
        finally:
            scope.cancel()
        if not results:
            raise BridgeClosed("the node is stopping")
        return results[0].unwrap()


class BridgeClosed(Exception):
    """The trio side was cancelled during the call, because the node is stopping."""


@asynccontextmanager
async def open_bridge() -> AsyncIterator[TrioBridge]:
    """Open a bridge during the block; calls still open at its end are cancelled."""
    async with trio.open_nursery() as nursery:
        bridge = TrioBridge(nursery)
        try:
            yield bridge
        finally:
            bridge.close()
