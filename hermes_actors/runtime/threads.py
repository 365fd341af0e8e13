"""Worker threads for what would hold the loop up: how to run there, and what it has cost."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class Threads(Protocol):
    """Where costly work is run, and the CPU clock that its bounds are kept by."""

    def cpu_s(self) -> float:
        """The CPU time that the thread which asks has used, in seconds."""

    def run(self, work: Callable[[], T], limiter: trio.CapacityLimiter) -> Awaitable[T]:
        """Return the result of `work`, once the limiter has let it run. Whoever is cancelled waits
        no more; the work ends by its own bounds.
        """


class SystemThreads:
    """Threads of the process."""

    def __init__(self) -> None:
        # Not methods: the clock is asked often.
        self.cpu_s: Callable[[], float] = time.thread_time

    async def run(self, work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """Run it in a thread; a caller that is cancelled waits no more, and the work goes on."""
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


class NoThreads:
    """All in one thread and free of cost: for a simulation, whose time is not the machine's."""

    def cpu_s(self) -> float:
        """Give 0: nothing costs anything."""
        return 0.0

    async def run(self, work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """Run it on the loop, once the limiter lets it."""
        async with limiter:
            return work()
