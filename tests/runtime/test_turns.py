"""Long computations let others run at each step."""

from collections.abc import Generator

import trio

from hermes_actors.runtime.turns import in_turns


def counting(seen: list[object], steps: int) -> Generator[None, None, int]:
    for number in range(steps):
        seen.append(number)
        yield
    return steps


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
