"""A message that no log takes in time is kept by the spool, and is answered exactly once."""

from collections.abc import Callable, Iterable

import pytest
import trio

from hermes_actors.publisher.pending import Pending
from tests.publisher.keeper import Keeper


@pytest.fixture
async def world(open_world, autojump_clock):
    """A frontend whose topics have a spool that begins 15 ms before the limit."""
    keeper = Keeper()
    parts = {"spool": keeper}
    async with open_world(parts=parts) as world:
        world.keeper = keeper
        await world.add_topic("shop.orders", partitions=2)
        yield world


def statuses(publications: Iterable[Pending]) -> list[int]:
    return [each.answer.status for each in publications if each.is_answered]


async def test_silence_is_kept_before_the_limit_and_answered_202(world, autojump_clock) -> None:
    world.log.faults.silent = True
    started_s = trio.current_time()
    publication = world.admit(body=b"precious")
    await trio.sleep(0.053)
    assert world.keeper.ids == [publication.id]
    assert world.keeper.bodies == [b"precious"]
    assert not publication.is_answered
    world.keeper.written()
    assert statuses([publication]) == [202]
    assert trio.current_time() - started_s < 0.065


async def test_what_the_disk_does_not_take_in_time_either_is_503_and_may_be_stored(
    world, autojump_clock
) -> None:
    world.log.faults.silent = True
    publication = world.admit()
    await trio.sleep(0.5)
    assert not publication.is_answered, "a slow disk has longer than a slow log"
    await trio.sleep(0.7)
    assert statuses([publication]) == [503]
    assert b"may have been stored" in publication.answer.body


async def test_an_acknowledgement_that_comes_while_the_disk_writes_is_201(
    world, autojump_clock
) -> None:
    world.log.faults.delay_s = (0.058, 0.058)
    publication = world.admit()
    await trio.sleep(0.06)
    assert world.keeper.ids == [publication.id]
    assert statuses([publication]) == [201]
    assert world.keeper.concluded_as == [[True]]
    world.keeper.written()
    assert statuses([publication]) == [201]


async def test_what_is_being_kept_when_the_producer_fails_is_answered_by_the_disk(
    world, autojump_clock
) -> None:
    world.log.faults.silent = True
    kept = [world.admit(body=b"%d" % number) for number in range(3)]
    await trio.sleep(0.053)
    assert world.keeper.ids == [each.id for each in kept]
    world.supervisor.crash("producer shop.orders_1")
    await trio.sleep(0.001)
    assert statuses(kept) == []
    world.keeper.written()
    assert statuses(kept) == [202] * 3


async def test_an_error_is_kept_at_once(world, autojump_clock) -> None:
    world.log.faults.unavailable_rate = 1.0
    publication = world.admit()
    await trio.sleep(0.002)
    assert world.keeper.ids == [publication.id]
    world.keeper.written()
    assert statuses([publication]) == [202]


async def test_newer_messages_of_a_kept_key_wait_behind_it(world, autojump_clock) -> None:
    first = world.admit(body=b"1", key=b"k")
    await trio.sleep(0.001)
    assert statuses([first]) == [201]
    world.log.faults.cut()
    second = world.admit(body=b"2", key=b"k")
    await trio.sleep(0.002)
    world.log.faults.heal()
    third = world.admit(body=b"3", key=b"k")
    other = world.admit(body=b"4", key=b"another")
    await trio.sleep(0.002)
    assert world.keeper.ids == [second.id, third.id]
    assert statuses([other]) == [201]
    world.keeper.room = 0
    fourth = world.admit(body=b"5", key=b"k")
    await trio.sleep(0.002)
    assert statuses([fourth]) == [503]
    assert b"older messages of its key" in fourth.answer.body
    assert [record.value for record in world.stored] == [b"1", b"4"]


async def test_what_is_kept_before_it_was_sent_is_never_sent(world, autojump_clock) -> None:
    world.log.faults.silent = True
    blockers = [world.admit(body=b"%d" % number, key=b"k") for number in range(3)]
    await trio.sleep(0.2)
    assert world.keeper.ids == [each.id for each in blockers]
    world.log.faults.heal()
    await trio.sleep(0.2)
    sent = [each for each in blockers if each.is_sent]
    assert len(world.stored) == len(sent) == len(world.keeper.concluded_as)


async def test_a_key_whose_older_message_is_kept_while_another_key_catches_up_waits_behind_it(
    open_world, autojump_clock
) -> None:
    class Slow(Keeper):
        async def catch_up(self, log_topic: str, is_behind: Callable[[], bool]) -> None:
            await trio.sleep(0.025)

    keeper = Slow()
    parts = {"spool": keeper}
    async with open_world(parts=parts) as world:
        await world.add_topic("shop.orders", partitions=1)
        world.log.faults.delay_s = (0.040, 0.040)
        first = world.admit(body=b"0", key=b"x")
        await trio.sleep(0.002)
        older = world.admit(body=b"1", key=b"k")
        behind = world.admit(body=b"2", key=b"a")
        keeper.keys.add(b"a")
        await trio.sleep(0.030)
        newer = world.admit(body=b"3", key=b"k")
        await trio.sleep(0.2)
        assert keeper.ids == [older.id, behind.id, newer.id]
        assert statuses([first]) == [201]
        assert [record.value for record in world.stored] == [b"0"]
