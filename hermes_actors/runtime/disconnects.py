"""Ends the work for an HTTP client when the client has gone; on either loop."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import outcome

from hermes_actors.runtime.bridge import BridgeClosed

T = TypeVar("T")


async def until_gone(receive: Callable[[], Awaitable[Any]], work: Awaitable[T]) -> T:
    """Await `work`, and cancel it when ASGI's `receive` reports a disconnect. The request's body
    must have been read. Raises BridgeClosed then, and what `work` raises.
    """
    results: list[outcome.Outcome[T]] = []

    async def awaited() -> T:
        return await work

    async with anyio.create_task_group() as group:

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(listen)
        result = await outcome.acapture(awaited)
        if isinstance(result, outcome.Error) and not isinstance(result.error, Exception):
            # A cancellation.
            result.unwrap()
        results.append(result)
        group.cancel_scope.cancel()
    # After the block, which would wrap the error.
    if not results:
        raise BridgeClosed("the client has disconnected")
    return results[0].unwrap()
