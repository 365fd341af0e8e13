"""Suspended subscriptions: somebody commits for them, at once after a seek and each hour."""

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from hermes_actors.consumer.offsets.resting import Resting
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import decode
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_actors.model.names import SubscriptionName
from hermes_actors.status.lag import Reached
from hermes_chaos.sim.environment.clock import EPOCH_MS

LATER_MS = EPOCH_MS + 86_400_000
PUSH = "shop.orders$push"
GROUP = "shop_orders_push"
HOUR_S = 3_600


def here(world):
    """The subscription, consumed in this datacentre before."""
    return msgspec.structs.replace(world.live(), active_in=("dc1",))


def sought(live, number, positions=None, time_ms=None):
    at = {} if positions is None else {"dc1": positions}
    return msgspec.structs.replace(live, seek=Seek(LATER_MS + number, SeekBody(7, 0, at, time_ms)))


@asynccontextmanager
async def resting_in(world):
    resting = Resting(world.log, world.clock, skew_ms=0)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resting.run, stop)
        yield resting
        stop.set()


class Counted:
    """Counts the commits that reach a log."""

    def __init__(self, log):
        self.count = 0
        self._commit = log.commit
        log.commit = self.commit

    async def commit(self, *arguments):
        self.count += 1
        await self._commit(*arguments)


async def test_the_place_of_a_suspended_subscription_is_committed_each_hour(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    async with world.consuming():
        await trio.sleep(2)
    before = await world.committed()
    commits = Counted(world.log)
    async with resting_in(world) as resting:
        resting.keep(here(world), world.topic, Owned())
        await trio.sleep(60)
        at_once = commits.count
        assert at_once in (1, 2)
        await trio.sleep(HOUR_S)
        assert commits.count == at_once + 1
    assert await world.committed() == before
    assert before.position == 3


async def test_the_group_of_a_subscription_that_was_never_consumed_here_is_left_alone(
    world, autojump_clock
):
    """While one moves from Hermes, Hermes commits there."""
    await world.publish(b"0", b"1", b"2")
    await world.log.commit(GROUP, world.topic, {0: Commit(2)})
    live = world.live()
    async with resting_in(world) as resting:
        resting.keep(live, world.topic, Owned())
        await trio.sleep(2 * HOUR_S)
        assert await world.committed() == Commit(2)
        resting.keep(sought(live, 100, {0: 1}), world.topic, Owned())
        await trio.sleep(1)
        commit = await world.committed()
        assert (commit.position, decode(commit).ownership.seek) == (1, LATER_MS + 100)


async def test_one_whose_log_does_not_answer_holds_up_no_other(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    positions = world.log.positions

    async def silent(topic, at):
        if topic == "shop.silent":
            await trio.sleep_forever()
        return await positions(topic, at)

    world.log.positions = silent
    async with resting_in(world) as resting:
        for number in range(3):
            name = SubscriptionName.parse(f"shop.silent$push{number}")
            live = msgspec.structs.replace(here(world), name=name)
            resting.keep(live, "shop.silent", Owned())
        resting.keep(sought(here(world), 100, {0: 1}), world.topic, Owned())
        await trio.sleep(1)
        assert (await world.committed()).position == 1


async def test_a_seek_of_a_suspended_subscription_is_committed_at_once(world, autojump_clock):
    """Hermes answers before the offsets of a suspended subscription have moved."""
    await world.publish(b"0", b"1", b"2")
    async with world.consuming():
        await trio.sleep(2)
    async with resting_in(world) as resting:
        resting.keep(here(world), world.topic, Owned())
        await trio.sleep(60)
        live = sought(here(world), 100, {0: 1})
        resting.keep(live, world.topic, Owned())
        await trio.testing.wait_all_tasks_blocked()
        commit = await world.committed()
        assert (commit.position, decode(commit).ownership.seek) == (1, LATER_MS + 100)
        # A commit of who consumed it until now that lands late does not stand.
        await world.log.commit(GROUP, world.topic, {0: Commit(3, "h1:0:7:0:0:")})
        await trio.sleep(20)
        assert (await world.committed()) == commit
    async with world.consuming(live):
        await trio.sleep(2)
    assert world.sender.bodies[3:] == [b"1", b"2"]


async def test_offsets_set_with_the_logs_own_tools_count_until_the_next_seek(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    async with resting_in(world) as resting:
        resting.keep(here(world), world.topic, Owned())
        await trio.sleep(60)
        await world.log.commit(GROUP, world.topic, {0: Commit(2)})
        await trio.sleep(HOUR_S)
        commit = await world.committed()
        assert (commit.position, decode(commit).ownership.incarnation) == (2, 7)
        await world.log.commit(GROUP, world.topic, {0: Commit(3)})
        resting.keep(sought(here(world), 100, {0: 0}), world.topic, Owned())
        await trio.sleep(1)
        assert (await world.committed()).position == 0


async def test_what_is_released_is_not_committed_for(world, autojump_clock):
    async with resting_in(world) as resting:
        resting.keep(here(world), world.topic, Owned())
        await trio.sleep(60)
        commits = Counted(world.log)
        resting.release(str(here(world).name))
        await trio.sleep(2 * HOUR_S)
        assert commits.count == 0


async def test_a_log_that_is_away_is_asked_again_until_it_takes_the_seek(world, autojump_clock):
    await world.publish(b"0", b"1")
    async with resting_in(world) as resting:
        world.log.faults.cut()
        resting.keep(sought(here(world), 100, {0: 1}), world.topic, Owned())
        await trio.sleep(60)
        world.log.faults.heal()
        assert await world.committed() is None
        await trio.sleep(10)
        assert (await world.committed()).position == 1


async def test_a_consumer_that_has_nothing_to_do_commits_after_a_start_and_each_hour(
    world, autojump_clock
):
    await world.publish(b"0")
    async with world.consuming():
        await trio.sleep(2)
    commits = Counted(world.log)
    async with world.consuming():
        await trio.sleep(60)
        assert commits.count == 1
        await trio.sleep(HOUR_S + 10)
        assert commits.count == 2


@pytest.mark.parametrize("steps", range(4))
async def test_those_that_are_released_as_their_turn_comes_end_nobody_elses(
    world, autojump_clock, steps
):
    live = here(world)
    async with resting_in(world) as resting:
        await trio.testing.wait_all_tasks_blocked()
        names = [SubscriptionName.parse(f"shop.orders$push{number}") for number in range(20)]
        for name in names:
            resting.keep(msgspec.structs.replace(live, name=name), world.topic, Owned())
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        for name in names:
            resting.release(str(name))
        resting.keep(live, world.topic, Owned())
        await trio.sleep(1)
        assert set(await world.log.committed(GROUP, world.topic)) == {0}


async def test_what_waits_for_it_and_since_when_is_known(make_world, autojump_clock):
    world = make_world(retention_ms=600_000)
    await world.create()
    await world.publish(b"0", b"1")
    async with world.consuming():
        await trio.sleep(2)
    async with resting_in(world) as resting:
        resting.keep(here(world), world.topic, Owned())
        await trio.sleep(1)
        assert resting.reached(PUSH) == Reached(world.topic, {0: 2}, None)
        first_ms = world.clock.now_ms()
        await world.publish(b"2")
        await trio.sleep(300)
        second_ms = world.clock.now_ms()
        await world.publish(b"3")
        await trio.sleep(60)
        assert resting.reached(PUSH) == Reached(world.topic, {0: 2}, first_ms)
        # What retention takes waits no longer.
        await trio.sleep(300)
        world.log.expire(world.clock.now_ms())
        await trio.sleep(60)
        assert resting.reached(PUSH) == Reached(world.topic, {0: 3}, second_ms)
        resting.keep(sought(here(world), 100, {0: 4}), world.topic, Owned())
        await trio.sleep(1)
        assert resting.reached(PUSH) == Reached(world.topic, {0: 4}, None)


async def test_what_waits_for_one_that_was_created_suspended_is_known_unless_others_commit(
    world, autojump_clock
):
    live = world.live()
    since_ms = world.clock.now_ms()
    await world.publish(b"0", b"1")
    async with resting_in(world) as resting:
        resting.keep(live, world.topic, Owned())
        await trio.sleep(1)
        assert resting.reached(PUSH) == Reached(world.topic, {0: 0}, since_ms)
        assert await world.committed() is None
        await world.log.commit(GROUP, world.topic, {0: Commit(2)})
        await trio.sleep(2 * HOUR_S)
        assert resting.reached(PUSH) == Reached(world.topic)
        assert await world.committed() == Commit(2)
