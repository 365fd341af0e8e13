"""Calls of clients that a node answers on its own side."""

from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeVar

import outcome
import trio

from hermes_actors.errors import Unavailable

T = TypeVar("T")


class Calls:
    """The calls of one node. They run in its process, so they pause and end with it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()

    async def make(self, process: Context, answer: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `answer`; None if the node dies first. Raises Unavailable."""
        scope, is_over = trio.CancelScope(), trio.Event()
        results: list[outcome.Outcome[T]] = []

        async def answered() -> None:
            try:
                with scope:
                    results.append(outcome.Value(await answer()))
            except Unavailable as error:
                results.append(outcome.Error(error))
            finally:
                self._scopes.discard(scope)
                is_over.set()

        self._scopes.add(scope)
        process.run(self._nursery.start_soon, answered)
        try:
            await is_over.wait()
        finally:
            scope.cancel()
        return results[0].unwrap() if results else None

    def die(self) -> None:
        """The node is gone: its calls get no answer."""
        for scope in self._scopes:
            scope.cancel()
