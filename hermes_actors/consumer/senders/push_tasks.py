"""A sender's trio tasks: bounded in number, and each one's end is told exactly once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class PushTasks:
    """Tasks in a nursery. `start` may be called from either loop, and never waits."""

    def __init__(self, nursery: trio.Nursery, tasks_max: int) -> None:
        self._nursery = nursery
        self._tasks_max = tasks_max
        self._count = 0
        self.is_closed = False

    def start(
        self,
        work: Callable[[], Awaitable[T]],
        done: Callable[[T], object],
        *,
        closed: T,
        overloaded: T,
    ) -> None:
        """Tell `done` what `work` makes, later: `closed` when it was broken off, `overloaded` when
        too many others are at work.
        """
        if self.is_closed:
            # A closed nursery takes no tasks.
            trio.lowlevel.spawn_system_task(_tell, done, closed)
        elif self._count >= self._tasks_max:
            self._nursery.start_soon(_tell, done, overloaded)
        else:
            self._count += 1
            self._nursery.start_soon(self._run, work, done, closed)

    def close(self) -> None:
        """Later ones end at once; those at work end when the nursery is cancelled."""
        self.is_closed = True

    async def _run(
        self, work: Callable[[], Awaitable[T]], done: Callable[[T], object], closed: T
    ) -> None:
        made = closed
        try:
            made = await work()
        finally:
            self._count -= 1
            done(made)


async def _tell(done: Callable[[T], object], made: T) -> None:
    done(made)
