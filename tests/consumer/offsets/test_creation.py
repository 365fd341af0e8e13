"""A new subscription starts behind what its topic held when it was created."""

import msgspec
import pytest
import trio

from hermes_actors.consumer.offsets.resting import Resting
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import Commit, TopicSettings
from hermes_actors.log.commits import CommitOwner, encode
from hermes_actors.metadata.creation import read_creation
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_chaos.sim.environment.clock import EPOCH_MS


def partition_of(world):
    return world.log.topics.known(world.topic).partitions[0]


async def created(world, **changes):
    """The subscription, created in this datacentre now."""
    live = world.live(created_at=world.clock.now_ms() / 1_000)
    creation = await read_creation(world.log, world.topic)
    return msgspec.structs.replace(live, **{"creation": creation, **changes})


async def test_it_is_handed_nothing_of_before_and_all_of_after(world, autojump_clock):
    await world.publish(b"before", b"just before")
    live = await created(world)
    await world.publish(b"just after")
    async with world.consuming(live):
        await trio.sleep(1)
        await world.publish(b"after")
        await trio.sleep(1)
    assert world.sender.bodies == [b"just after", b"after"]
    assert (await world.committed()).position == 4


async def test_elsewhere_it_is_handed_what_is_older_by_the_skew_of_clocks_at_most(
    make_world, autojump_clock
):
    world = make_world(clock_skew_max_ms=2_000)
    await world.create()
    for body in (b"3 s", b"2 s", b"1 s"):
        await world.publish(body)
        await trio.sleep(1)
    live = await created(world)
    elsewhere = msgspec.structs.replace(live.creation, dc="dc2")
    async with world.consuming(msgspec.structs.replace(live, creation=elsewhere)):
        await trio.sleep(1)
    assert world.sender.bodies == [b"2 s", b"1 s"]


async def test_one_of_an_older_node_starts_by_its_time(world, autojump_clock):
    await world.publish(b"long before")
    await trio.sleep(6)
    await world.publish(b"just before")
    live = await created(world, creation=None)
    async with world.consuming(live):
        await trio.sleep(1)
    assert world.sender.bodies == [b"just before"]


async def test_a_partition_that_is_added_later_is_read_from_its_start(world, autojump_clock):
    await world.publish(b"before")
    live = await created(world)
    await world.log.topics.alter(world.topic, TopicSettings(partitions=2))
    await world.publish(b"new", partition=1)
    async with world.consuming(live):
        await trio.sleep(1)
    assert world.sender.bodies == [b"new"]


async def test_a_commit_and_a_retransmission_are_above_it(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    live = await created(world)
    ours = encode(1, (), CommitOwner(0, 7))
    await world.log.commit("shop_orders_push", world.topic, {0: Commit(1, ours)})
    async with world.consuming(live):
        await trio.sleep(1)
    assert world.sender.bodies == [b"1", b"2"]
    seek = Seek(5, SeekBody(7, 0, {"dc1": {0: 0}}))
    async with world.consuming(msgspec.structs.replace(live, seek=seek)):
        await trio.sleep(1)
    assert world.sender.bodies == [b"1", b"2", b"0", b"1", b"2"]


async def test_a_commit_of_an_earlier_life_is_not(world, autojump_clock):
    await world.publish(b"0", b"1")
    live = await created(world)
    theirs = encode(1, (), CommitOwner(0, 6))
    await world.log.commit("shop_orders_push", world.topic, {0: Commit(1, theirs)})
    async with world.consuming(live):
        await trio.sleep(1)
    assert world.sender.bodies == []
    assert (await world.committed()).position == 2


async def test_one_that_rests_until_retention_has_passed_counts_what_it_has_missed(
    make_world, autojump_clock
):
    world = make_world(retention_ms=60_000)
    await world.create()
    await world.publish(b"before")
    live = await created(world)
    await world.publish(b"gone 1", b"gone 2")
    await trio.sleep(120)
    await world.publish(b"kept")
    world.log.expire(world.clock.now_ms())
    async with world.consuming(live):
        await trio.sleep(1)
    assert world.sender.bodies == [b"kept"]
    assert world.count("expired_by_retention") == 2


async def test_at_rest_it_commits_where_it_was_created(world, autojump_clock):
    await world.publish(b"0", b"1")
    live = await created(world, active_in=("dc1",))
    await world.publish(b"2")
    resting, stop = Resting(world.log, world.clock, skew_ms=5_000), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resting.run, stop)
        resting.keep(live, world.topic, Owned())
        await trio.sleep(1)
        stop.set()
    assert (await world.committed()).position == 2


@pytest.mark.parametrize("new", [1, 2, 3, 9])
async def test_a_log_that_has_lost_its_end_since_still_gives_all_that_came_after(
    world, autojump_clock, new
):
    """However much it has stored again there, and before anybody has read any of it."""
    for number in range(4):
        await world.publish(b"%d" % number)
        await trio.sleep(10)
    live = await created(world)
    partition_of(world).cut(2)
    await world.publish(*(b"new %d" % number for number in range(new)))
    async with world.consuming(live):
        await trio.sleep(60)
    wanted = [b"new %d" % number for number in range(new)]
    assert [body for body in world.sender.bodies if body in wanted] == wanted
    assert (await world.committed()).position == 2 + new


async def test_one_that_has_lost_its_end_gives_nothing_much_older_than_the_creation(
    world, autojump_clock
):
    await world.publish(b"0", b"1", b"2")
    await trio.sleep(60)
    live = await created(world)
    partition_of(world).cut(2)
    async with world.consuming(live):
        await trio.sleep(1)
        await world.publish(b"new")
        await trio.sleep(1)
    assert world.sender.bodies == [b"new"]


async def test_it_does_not_depend_on_the_clock_of_the_log(world, autojump_clock):
    await world.publish(b"before")
    live = await created(world)
    # A clock that was an hour ahead at the creation.
    ahead = msgspec.structs.replace(live.subscription, created_at=EPOCH_MS / 1_000 + 3_600)
    await world.publish(b"after")
    async with world.consuming(msgspec.structs.replace(live, subscription=ahead)):
        await trio.sleep(1)
    assert world.sender.bodies == [b"after"]
