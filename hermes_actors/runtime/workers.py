"""A pool of worker processes for all work that may not run on the event loop.

A library may overflow the C stack or never return. In a worker that ends the process and not the
node: the kernel kills a worker whose job exceeds its CPU limit, and the pool starts another one.
Owners take turns, so one owner's many jobs do not delay another's. If too many jobs wait, the owner
with the most loses one.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import trio
from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.runtime.threads import SystemThreads

PROCESSES = 2
WAITING_MAX = 256
"""Maximum number of jobs of all owners that wait for a worker."""

OWNER_WAITING_MAX = 64
_ANSWER_TIMEOUT_S = 15.0
_MEMORY_BYTES_MAX = 1_073_741_824
_NICENESS = 10
_LENGTH_BYTES = 4
_CHUNK_BYTES = 65_536
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}


class TooCostly(Refused):
    """The job exceeded its CPU limit, or crashed its worker."""


class Job(Struct, frozen=True):
    """One call of `work`, a function of a module, with arguments that can be pickled.

    `done` gets the result or a HermesError: one that `work` raised, TooCostly or Unavailable. A job
    whose `is_wanted` returns False when its turn comes is not run.
    """

    owner: str
    cpu_s: float
    work: Callable[..., Any]
    args: tuple[Any, ...]
    done: Callable[[Any], None]
    is_wanted: Callable[[], bool] = lambda: True


class WorkerPool:
    """Runs the jobs of a node. `cpu_s` is the clock for measuring work on the loop."""

    def __init__(self, cpu_s: Callable[[], float] | None = None) -> None:
        self.cpu_s = cpu_s or SystemThreads().cpu_s
        # By owner; the one whose turn is next comes first.
        self._waiting: dict[str, deque[Job]] = {}
        self._count = 0
        self._idle = trio.lowlevel.ParkingLot()
        self._is_stopped = False

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for a worker."""
        return self._count

    def submit(self, job: Job) -> None:
        """Run a job when its owner's turn comes; `done` is called once."""
        jobs = self._waiting.get(job.owner, ())
        if self._is_stopped:
            job.done(_stopping())
        elif len(jobs) >= OWNER_WAITING_MAX or not self._has_room(len(jobs)):
            job.done(_full())
        else:
            self._waiting.setdefault(job.owner, deque()).append(job)
            self._count += 1
            self._idle.unpark()
            if self._count > WAITING_MAX:
                self._drop_newest_of_longest()

    async def ask(self, owner: str, cpu_s: float, work: Callable[..., Any], *args: Any) -> Any:
        """Run a job and return its result. Raises HermesError."""
        results: list[Any] = []
        answered = trio.Event()

        def done(result: Any) -> None:
            results.append(result)
            answered.set()

        is_wanted = True
        try:
            self.submit(Job(owner, cpu_s, work, args, done, lambda: is_wanted))
            await answered.wait()
        finally:
            is_wanted = False
        if isinstance(results[0], HermesError):
            raise results[0]
        return results[0]

    async def run(self, stop: trio.Event) -> None:
        """Run jobs until asked to stop; jobs that still wait then fail with Unavailable."""
        async with trio.open_nursery() as nursery:
            for _ in range(PROCESSES):
                nursery.start_soon(self._serve, Worker())
            await stop.wait()
            self._is_stopped = True
            nursery.cancel_scope.cancel()
        while (job := self._take()) is not None:
            job.done(_stopping())

    async def _serve(self, worker: "Worker") -> None:
        try:
            while True:
                while (job := self._take()) is None:
                    await self._idle.park()
                result: Any = _stopping()
                try:
                    result = await worker.run(job)
                finally:
                    job.done(result)
        finally:
            with trio.CancelScope(shield=True):
                await worker.end()

    def _has_room(self, count: int) -> bool:
        """True if an owner with `count` jobs may add one: if the pool is full, another owner must
        have more, and loses one.
        """
        return self._count < WAITING_MAX or count + 1 < max(map(len, self._waiting.values()))

    def _drop_newest_of_longest(self) -> None:
        dropped = max(self._waiting.values(), key=len).pop()
        self._count -= 1
        dropped.done(_full())

    def _take(self) -> Job | None:
        while self._waiting:
            owner = next(iter(self._waiting))
            jobs = self._waiting.pop(owner)
            job = jobs.popleft()
            if jobs:
                self._waiting[owner] = jobs
            self._count -= 1
            if job.is_wanted():
                return job
            job.done(Unavailable("Nobody waits for the result any more"))
        return None


class Worker:
    """Runs jobs in a process, which the first job starts."""

    def __init__(self) -> None:
        self._process: trio.Process | None = None

    async def run(self, job: Job) -> Any:
        """Run a job and return its result, or a HermesError."""
        try:
            with trio.fail_after(job.cpu_s + _ANSWER_TIMEOUT_S):
                return await self._exchange(pickle.dumps((job.work, job.args, job.cpu_s)))
        except trio.TooSlowError:
            await self.end()
            return Unavailable("A worker did not answer in time: the machine is overloaded")
        except (trio.BrokenResourceError, EOFError):
            return await self._why_ended(job.cpu_s)
        except OSError as error:
            await self.end()
            return Unavailable(f"No worker process can be started: {error}")
        except trio.Cancelled:
            await self.end()
            raise

    async def end(self) -> None:
        """End the process, if there is one, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        with trio.CancelScope(shield=True):
            process.kill()
            for stream in (process.stdin, process.stdout):
                assert stream is not None, "it is a pipe"
                await stream.aclose()
            await process.wait()

    async def _exchange(self, asked: bytes) -> Any:
        process = self._process
        if process is None:
            process = self._process = await trio.lowlevel.open_process(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert process.stdin is not None, "it is a pipe"
        await process.stdin.send_all(_prefixed(asked))
        length = int.from_bytes(await _read(process, _LENGTH_BYTES), "big")
        return pickle.loads(await _read(process, length))  # noqa: S301 -- our own process wrote it

    async def _why_ended(self, cpu_s: float) -> HermesError:
        process = self._process
        assert process is not None, "it has been asked"
        with trio.move_on_after(_ANSWER_TIMEOUT_S):
            await process.wait()
        await self.end()
        code = process.returncode
        if code == -signal.SIGPROF:
            return TooCostly(f"it takes more than {cpu_s * 1_000:g} ms of CPU")
        if code is not None and -code in _CRASHES:
            return TooCostly(f"it crashes its worker process ({signal.strsignal(-code)})")
        return Unavailable(
            f"The worker process ended with {code}; try again", ErrorCode.INTERNAL_ERROR
        )


class InlinePool(WorkerPool):
    """Runs jobs on the loop immediately and without limits, for a simulation, whose time is not the
    machine's.
    """

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)

    def submit(self, job: Job) -> None:
        """Run the job now."""
        job.done(_result(job.work, job.args))


def serve() -> None:
    """The main function of a worker process: run jobs from standard input until it ends."""
    # Both may reach the whole process group, but the node ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while length := source.read(_LENGTH_BYTES):
        asked = source.read(int.from_bytes(length, "big"))
        # Unpickling imports modules, which does not count against the job's limit.
        work, args, cpu_s = pickle.loads(asked)  # noqa: S301 -- the node wrote it
        # This timer's signal ends the process by default.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        result = pickle.dumps(_result(work, args))
        signal.setitimer(signal.ITIMER_PROF, 0)
        target.write(_prefixed(result))
        target.flush()


def _result(work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return work(*args)
    except HermesError as error:
        return error
    except MemoryError:
        return Refused("it takes more memory than it may use")


def _prefixed(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


async def _read(process: trio.Process, size: int) -> bytes:
    assert process.stdout is not None, "it is a pipe"
    read = bytearray()
    while len(read) < size:
        part = await process.stdout.receive_some(min(size - len(read), _CHUNK_BYTES))
        if not part:
            raise EOFError
        read += part
    return bytes(read)


def _full() -> Unavailable:
    return Unavailable("This node is busy with costly work; try again")


def _stopping() -> Unavailable:
    return Unavailable("The node is stopping; try again")
