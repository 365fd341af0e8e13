"""Makes one seed one exact history: trio's scheduler, its clock and all randomness follow the seed.

This is the one file that uses trio's private names; tests/simulation/test_determinism.py fails if
trio changes their meaning. Nothing in this project is ordered by `id()` or hashes, so a history is
the same in every process and under every PYTHONHASHSEED.
"""

import gc
import hashlib
import math
import random
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, Unpack

import trio
import trio._core._run as _trio_run
from trio.testing import MockClock

T = TypeVar("T")
A = TypeVarTuple("A")

_PROCESS: ContextVar[str] = ContextVar("process", default="")
_WAITING_MAX = 20


class StandsStill(Exception):
    """Nothing more can happen in a run, or only after its time limit, so it was given up.

    The text says which tasks wait, and where.
    """


def rng_of(seed: int, role: str) -> random.Random:
    """The random generator of one role, derived from the seed by a stable hash.

    Roles share no generator: if one draws more numbers or fewer, the others are not affected.
    """
    digest = hashlib.sha256(f"{seed}/{role}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 -- a simulation's dice


def run(
    main: Callable[[Unpack[A]], Awaitable[T]],
    *args: *A,
    seed: int,
    lasts_max_s: float = math.inf,
) -> T:
    """Run a trio main in virtual time under the seeded scheduler; return its result.

    Time begins at 0 and jumps to the next deadline whenever all tasks wait. Raises StandsStill if
    all wait and there is no deadline, or none before `lasts_max_s`.
    """
    bound = _Bound(lasts_max_s)

    async def bounded() -> T:
        with bound.run:
            result = await main(*args)
        if bound.met:
            raise StandsStill(bound.met)
        return result

    with _seeded_scheduler(rng_of(seed, "scheduler")), _without_gc():
        ended: T = trio.run(bounded, clock=bound.clock)
        return ended


def inside(process: str) -> Context:
    """A context whose tasks, and the tasks that they start, belong to this process."""
    context = copy_context()
    context.run(_PROCESS.set, process)
    return context


def stop(process: str) -> None:
    """Pause the process as SIGSTOP does: none of its tasks takes a step, while time goes on,
    deadlines pass and awaited events happen.

    A task pauses only at an `await`.
    """
    runner = _runner()
    if not isinstance(runner.runq, _Queue):
        runner.runq = _Queue(runner.runq)
    runner.runq.stop(process)


def go_on(process: str) -> None:
    """Resume the process as SIGCONT does: everything its tasks waited for is there at once."""
    runner = _runner()
    if isinstance(runner.runq, _Queue):
        runner.runq.go_on(process)
        if not runner.runq.is_used:
            runner.runq = deque(runner.runq)


class _Bound:
    """A run's clock, which ends the run if there is no next deadline, or it is too late."""

    def __init__(self, lasts_max_s: float) -> None:
        self.run = trio.CancelScope()
        self.met = ""
        self.clock = MockClock(autojump_threshold=0)
        self._lasts_max_s = lasts_max_s
        clock: Any = self.clock
        clock._autojump = self._jump_or_end

    def _jump_or_end(self) -> None:
        now_s, runner = self.clock.current_time(), _runner()
        # The value in trio's public statistics, which would be the costliest part of a run.
        left_s = runner.deadlines.next_deadline() - now_s
        if now_s + left_s <= min(self._lasts_max_s, sys.float_info.max):
            self.clock.jump(max(0.0, left_s))
            return
        self.met = self.met or f"nothing happens after {now_s:g} s; there wait {_waiting()}"
        # Neither a paused process nor a shield may keep the run from ending.
        if isinstance(runner.runq, _Queue):
            runner.runq.go_on_all()
        for task in runner.tasks:
            status = task._cancel_status
            while status is not None:
                status._scope.shield = False
                status = status.parent
        self.run.cancel()


def _waiting() -> str:
    """The waiting tasks, each with the line of its code where it waits."""
    runner = _runner()
    held = runner.runq.held if isinstance(runner.runq, _Queue) else ()
    found = sorted(
        f"{task.name} ({'stopped' if task in held else _place_of(task)})"
        for task in runner.tasks
        if task is not runner.init_task and not task.child_nurseries
    )
    more = len(found) - _WAITING_MAX
    return "; ".join([*found[:_WAITING_MAX], *([f"and {more} more"] if more > 0 else [])])


def _place_of(task: trio.lowlevel.Task) -> str:
    place = ""
    for frame, line in task.iter_await_frames():
        path = Path(frame.f_code.co_filename)
        if "trio" not in path.parts:
            place = f"{path.name}:{line}"
    return place


def _runner() -> Any:
    private: Any = _trio_run
    return private.GLOBAL_RUN_CONTEXT.runner


class _Queue(deque[Any]):
    """The runnable tasks, except those of paused processes."""

    def __init__(self, tasks: Iterable[Any]) -> None:
        super().__init__(tasks)
        self._held: dict[str, list[Any]] = {}

    @property
    def is_used(self) -> bool:
        """True if some process is paused."""
        return bool(self._held)

    @property
    def held(self) -> set[Any]:
        """The tasks that could run if their processes were not paused."""
        return {task for tasks in self._held.values() for task in tasks}

    def append(self, task: Any) -> None:
        """Add a task that can run, as soon as its process can."""
        held = self._held.get(task.context.get(_PROCESS, ""))
        if held is None:
            super().append(task)
        else:
            held.append(task)

    def stop(self, process: str) -> None:
        """Hold the process's tasks back from now on."""
        self._held.setdefault(process, [])
        tasks = list(self)
        self.clear()
        for task in tasks:
            self.append(task)

    def go_on(self, process: str) -> None:
        """Release the process's tasks."""
        self.extend(self._held.pop(process, ()))

    def go_on_all(self) -> None:
        """Release the tasks of all processes."""
        for process in list(self._held):
            self.go_on(process)


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
    # When a cycle is collected depends on everything the process has allocated before, and a
    # collected async generator is finalised by its own task.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
