"""Long computations in steps, so that other tasks can run between them."""

from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")

_IN_A_TURN = 50


async def each_in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; other tasks run after every few of them. For trio."""
    for at, each in enumerate(items):
        if at % _IN_A_TURN == _IN_A_TURN - 1:
            await trio.lowlevel.checkpoint()
        yield each


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Return the generator's result; other tasks run at each of its yields. A trio coroutine."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found
        await trio.lowlevel.checkpoint()


def at_once(steps: Generator[None, None, T]) -> T:
    """Return the generator's result without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found
