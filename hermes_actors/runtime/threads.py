"""Worker threads for work that would block the loop, and the measurement of its cost."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class Threads(Protocol):
    """Runs costly work, and has the CPU clock for its limits."""

    def cpu_s(self) -> float:
        """The CPU time that the calling thread has used, in seconds."""

    def run(self, work: Callable[[], T], limiter: trio.CapacityLimiter) -> Awaitable[T]:
        """Run `work` once the limiter allows it, and return its result. A cancelled caller stops
        waiting; the work continues until its own limits end it.
        """


class SystemThreads:
    """Threads of this process."""

    def __init__(self) -> None:
        # An attribute instead of a method: the clock is read often.
        self.cpu_s: Callable[[], float] = time.thread_time

    async def run(self, work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """Run it in a thread; a cancelled caller stops waiting, and the work continues."""
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


class NoThreads:
    """Runs everything in one thread at no cost, for a simulation, whose time is not the
    machine's.
    """

    def cpu_s(self) -> float:
        """Always 0."""
        return 0.0

    async def run(self, work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """Run it on the loop, once the limiter allows it."""
        async with limiter:
            return work()
