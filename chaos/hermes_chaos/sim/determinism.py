"""One seed is one exact history: trio's scheduler, its clock and every role's randomness follow it.

This is the one file that touches trio's private names; tests/simulation/test_determinism.py fails
when trio changes what they mean. Order in this project never comes from `id()` or from hashes, so
a history is the same in every process and under every PYTHONHASHSEED.
"""

import gc
import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple, Unpack

import trio
import trio._core._run as _trio_run
from trio.testing import MockClock

T = TypeVar("T")
A = TypeVarTuple("A")

_PROCESS: ContextVar[str] = ContextVar("process", default="")


def rng_of(seed: int, role: str) -> random.Random:
    """The generator of one role, split from the seed by a stable hash.

    Roles do not share draws: one that draws more or less shifts no other's.
    """
    digest = hashlib.sha256(f"{seed}/{role}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 -- a simulation's dice


def run(main: Callable[[Unpack[A]], Awaitable[T]], *args: *A, seed: int) -> T:
    """Run a trio main in virtual time under the seeded scheduler; return what it returns.

    Time begins at 0 and jumps to the next deadline whenever every task waits.
    """
    with _seeded_scheduler(rng_of(seed, "scheduler")), _without_gc():
        result: T = trio.run(main, *args, clock=MockClock(autojump_threshold=0))
        return result


def inside(process: str) -> Context:
    """A context: tasks that begin in it, and the tasks that those begin, are of that process."""
    context = copy_context()
    context.run(_PROCESS.set, process)
    return context


def stop(process: str) -> None:
    """Stop the process as SIGSTOP does: none of its tasks takes a step any more, while time goes
    on, deadlines pass and what it waits for comes.

    It stops where its tasks give way only, never between two lines without an `await`.
    """
    runner = _runner()
    if not isinstance(runner.runq, _Queue):
        runner.runq = _Queue(runner.runq)
    runner.runq.stop(process)


def go_on(process: str) -> None:
    """As SIGCONT: all that its tasks have waited for is there at once."""
    runner = _runner()
    if isinstance(runner.runq, _Queue):
        runner.runq.go_on(process)
        if not runner.runq.is_used:
            runner.runq = deque(runner.runq)


def _runner() -> Any:
    private: Any = _trio_run
    return private.GLOBAL_RUN_CONTEXT.runner


class _Queue(deque[Any]):
    """The tasks that can run; those of stopped processes are held back."""

    def __init__(self, tasks: Iterable[Any]) -> None:
        super().__init__(tasks)
        self._held: dict[str, list[Any]] = {}

    @property
    def is_used(self) -> bool:
        """Some process is stopped."""
        return bool(self._held)

    def append(self, task: Any) -> None:
        """The task can run, as soon as its process can."""
        held = self._held.get(task.context.get(_PROCESS, ""))
        if held is None:
            super().append(task)
        else:
            held.append(task)

    def stop(self, process: str) -> None:
        """Hold its tasks back from now on."""
        self._held.setdefault(process, [])
        tasks = list(self)
        self.clear()
        for task in tasks:
            self.append(task)

    def go_on(self, process: str) -> None:
        """All that was held back can run."""
        self.extend(self._held.pop(process, ()))


@contextmanager
def _seeded_scheduler(rng: random.Random) -> Iterator[None]:
    private: Any = _trio_run
    was_allowed, state = private._ALLOW_DETERMINISTIC_SCHEDULING, private._r.getstate()
    private._ALLOW_DETERMINISTIC_SCHEDULING = True
    private._r.seed(rng.getrandbits(128))
    try:
        yield
    finally:
        private._ALLOW_DETERMINISTIC_SCHEDULING = was_allowed
        private._r.setstate(state)


@contextmanager
def _without_gc() -> Iterator[None]:
    # When a cycle is collected depends on all that the process has allocated before, and a
    # collected async generator is finalised by a task of its own.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
