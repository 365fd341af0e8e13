"""One seed is one exact history: trio's scheduler, its clock and every role's randomness follow it.

This is the one file that touches trio's private names; tests/simulation/test_determinism.py fails
when trio changes what they mean. Order in this project never comes from `id()` or from hashes, so
a history is the same in every process and under every PYTHONHASHSEED.
"""

import gc
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple, Unpack

import trio
import trio._core._run as _trio_run
from trio.testing import MockClock

T = TypeVar("T")
A = TypeVarTuple("A")


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
