"""Long computations in steps, so that everybody else has turns between them."""

from collections.abc import Generator
from typing import TypeVar

import trio

T = TypeVar("T")


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Return the generator's result; others run at each of its yields. A trio coroutine."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found
        await trio.lowlevel.checkpoint()


def at_once(steps: Generator[None, None, T]) -> T:
    """Return the generator's result without turns for others."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found
