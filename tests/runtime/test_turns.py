"""Long computations let others run at each step."""

from collections.abc import Generator

import pytest
import trio

from hermes_actors.runtime.turns import at_once, in_turns


def counting(seen: list[object], steps: int) -> Generator[None, None, int]:
    for number in range(steps):
        seen.append(number)
        yield
    return steps


def failing() -> Generator[None, None, None]:
    yield
    raise ValueError("no")


async def test_others_run_between_the_steps() -> None:
    seen: list[object] = []

    async def other() -> None:
        for _ in range(3):
            seen.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await in_turns(counting(seen, 3)) == 3
    assert seen.count("other") == 3
    assert seen != [0, 1, 2, "other", "other", "other"]


def test_at_once_gives_the_same() -> None:
    assert at_once(counting([], 4)) == 4


async def test_what_a_step_raises_comes_out() -> None:
    with pytest.raises(ValueError, match="no"):
        await in_turns(failing())
