"""A sender's trio tasks: bounded in number, and each one's end is told exactly once.

This is the edge towards endpoints. What a transport or a plug-in raises that nobody has listed
fails the one push that met it, and is counted and logged as the fault that it is; it ends nothing
that pushes for others.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class PushTasks:
    """Tasks in a nursery. `start` may be called from either loop, and never waits.

    `on_fault` is told of each exception that a task did not expect; it must not raise.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        tasks_max: int,
        on_fault: Callable[[Exception], object] = lambda _error: None,
    ) -> None:
        self._nursery = nursery
        self._tasks_max = tasks_max
        self._on_fault = on_fault
        self._count = 0
        # Dictionaries for their order.
        self._scopes: dict[str, dict[trio.CancelScope, None]] = {}
        self.is_closed = False

    def start(
        self,
        work: Callable[[], Awaitable[T]],
        done: Callable[[T], object],
        *,
        closed: T,
        overloaded: T,
        broken: Callable[[Exception], T],
        subscription: str = "",
    ) -> None:
        """Tell `done` what `work` makes, later: `closed` when it was broken off, `overloaded` when
        too many others are at work, and what `broken` makes of an exception of it.
        """
        if self.is_closed:
            # A closed nursery takes no tasks.
            trio.lowlevel.spawn_system_task(self._tell, done, closed)
        elif self._count >= self._tasks_max:
            self._nursery.start_soon(self._tell, done, overloaded)
        else:
            self._count += 1
            scope = trio.CancelScope()
            self._scopes.setdefault(subscription, {})[scope] = None
            self._nursery.start_soon(self._run, work, done, closed, broken, subscription, scope)

    def forget(self, subscription: str) -> None:
        """Break off what is at work for the subscription; each ends with its `closed`, later."""
        for scope in self._scopes.get(subscription, {}):
            scope.cancel()

    def close(self) -> None:
        """End later tasks at once; those at work end when the nursery is cancelled."""
        self.is_closed = True

    async def _run(
        self,
        work: Callable[[], Awaitable[T]],
        done: Callable[[T], object],
        closed: T,
        broken: Callable[[Exception], T],
        subscription: str,
        scope: trio.CancelScope,
    ) -> None:
        made = closed
        try:
            with scope:
                made = await work()
        # All of them: no endpoint's bytes may end what pushes for all.
        except Exception as error:  # noqa: BLE001
            self._note(error)
            made = broken(error)
        finally:
            self._count -= 1
            of_subscription = self._scopes[subscription]
            del of_subscription[scope]
            if not of_subscription:
                del self._scopes[subscription]
            await self._tell(done, made)

    async def _tell(self, done: Callable[[T], object], made: T) -> None:
        """Tell `done` at once; what that raises is counted and logged as a fault, and ends
        nothing.
        """
        try:
            done(made)
        # Whoever is told has come to his end by it; the others have not.
        except Exception as error:  # noqa: BLE001
            self._note(error)

    def _note(self, error: Exception) -> None:
        _logger.error("a push met what it did not expect: %r", error, exc_info=error)
        self._on_fault(error)
