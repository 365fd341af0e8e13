"""Long computations let others run at each step."""

import pytest
import trio

from hermes_actors.runtime.turns import at_once, in_turns


def counting(seen, steps):
    for number in range(steps):
        seen.append(number)
        yield
    return steps


async def test_others_run_between_the_steps():
    seen = []

    async def other():
        for _ in range(3):
            seen.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await in_turns(counting(seen, 3)) == 3
    assert seen.count("other") == 3
    assert seen != [0, 1, 2, "other", "other", "other"]


def test_at_once_gives_the_same():
    assert at_once(counting([], 4)) == 4


async def test_what_a_step_raises_comes_out():
    def failing():
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_turns(failing())
