"""Who waits for something to be known goes on when it is: soon, a few at a time."""

from collections import Counter

import trio

from hermes_actors.fallback.spool.known import Known


async def test_who_waits_goes_on_a_few_at_a_time_when_it_is_known(autojump_clock):
    known = Known()
    there: set[int] = set()
    woken: Counter[float] = Counter()

    async def wait(number: int) -> None:
        await known.wait(lambda: number in there)
        assert number in there
        woken[trio.current_time()] += 1

    async with trio.open_nursery() as nursery:
        for number in range(5_000):
            nursery.start_soon(wait, number)
        nursery.start_soon(known.watch)
        await trio.sleep(600)
        assert not woken
        there.update(range(4_990))
        await trio.sleep(2)
        assert woken.total() == 4_990
        # Each does something then, and the node has other things to do.
        assert max(woken.values()) <= 64
        nursery.cancel_scope.cancel()


async def test_nobody_waits_for_what_is_known_and_who_was_cancelled_is_forgotten(autojump_clock):
    known, looks = Known(), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.watch)
        await known.wait(lambda: True)
        assert trio.current_time() == 0
        with trio.move_on_after(10):
            await known.wait(lambda: bool(looks.append(trio.current_time())))
        assert 10 <= len(looks) <= 21
        looks.clear()
        await trio.sleep(10)
        assert looks == []
        nursery.cancel_scope.cancel()
