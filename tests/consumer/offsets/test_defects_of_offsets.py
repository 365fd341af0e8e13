"""What Hermes gets wrong with offsets, and a consumer of ours does not."""

import trio

from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.log.base import LATEST
from hermes_actors.status.lag import Ends

OK = SendOutcome(200)
BUSY = SendOutcome(503)


def numbers(first, end):
    return [b"%d" % n for n in range(first, end)]


async def test_the_commit_after_the_last_message_is_the_next_offset(world, autojump_clock):
    """A commit of the last offset would show a lag of one and deliver it after each restart."""
    await world.publish(*numbers(0, 3))
    for _ in range(3):
        async with world.consuming():
            await trio.sleep(2)
        assert (await world.committed()).position == 3
        assert (await world.log.positions(world.topic, LATEST))[0] == 3
    assert world.sender.bodies == numbers(0, 3)


async def test_a_stop_commits_so_that_a_move_repeats_nothing(world, autojump_clock):
    """Neither the interval nor a message that waits keeps a stop from committing."""
    await world.publish(*numbers(0, 200))
    world.sender.script = lambda push: BUSY if push.body == b"7" else (0.1, OK)
    for _ in range(3):
        async with world.consuming(world.live(policy={"message_backoff": 60_000})):
            await trio.sleep(0.35)
    world.sender.script = lambda _push: OK
    async with world.consuming():
        await trio.sleep(5)
    sent = world.sender.bodies
    assert {body for body in sent if sent.count(body) > 1} <= {b"7"}
    assert set(sent) == set(numbers(0, 200))


async def test_delivery_does_not_wait_for_commits(make_world, autojump_clock):
    """In Hermes 200,000 messages may be delivered and not committed, then it stands still."""
    world = make_world(
        commit_interval_ms=60_000, waiting_retries_max=100, buffered_bytes_max=50_000
    )
    await world.create()
    await world.publish(*numbers(0, 5_000))
    async with world.consuming():
        await trio.sleep(30)
        assert len(world.sender.pushes) == 5_000
        assert await world.committed() is None


async def test_a_message_that_waits_for_its_retry_is_a_lag_of_one(world, autojump_clock):
    """In Hermes all that was delivered after it is lag too, for as long as it is tried."""
    world.sender.script = lambda push: BUSY if push.body == b"0" else OK
    await world.publish(*numbers(0, 1_000))
    async with world.consuming() as consumer:
        await trio.sleep(30)
        assert consumer.status().positions == {0: 0}
        reached = consumer.made[-1].reached()
    ends = Ends()
    ends.follow([world.topic])
    ends.due(0.0)
    ends.note(world.topic, await world.log.positions(world.topic, LATEST), 0.0)
    assert ends.lag(reached, 1.0) == 1
    # A restart knows it from the commit.
    async with world.consuming() as consumer:
        await trio.sleep(1)
        assert ends.lag(consumer.made[-1].reached(), 1.0) == 1


async def test_messages_that_wait_while_retention_takes_them_are_delivered_all_the_same(
    make_world, autojump_clock
):
    world = make_world(retention_ms=10_000)
    await world.create()
    world.sender.script = lambda _push: BUSY
    await world.publish(*numbers(0, 5))
    async with world.consuming(world.live(policy={"message_backoff": 20_000})):
        await trio.sleep(15)
        world.log.expire(world.clock.now_ms())
        world.sender.script = lambda _push: OK
        await trio.sleep(60)
        assert world.count("delivered") == 5
        assert world.count("expired_by_retention") == 0
    assert (await world.committed()).position == 5


async def test_messages_that_retention_takes_before_a_restart_are_counted(
    make_world, autojump_clock
):
    world = make_world(retention_ms=10_000)
    await world.create()
    world.sender.script = lambda push: OK if push.body == b"2" else BUSY
    await world.publish(*numbers(0, 5))
    live = world.live(policy={"message_backoff": 60_000})
    async with world.consuming(live):
        await trio.sleep(2)
    await trio.sleep(15)
    world.log.expire(world.clock.now_ms())
    async with world.consuming(live):
        await world.publish(b"new")
        await trio.sleep(2)
    # One of the five had been delivered, and its commit says so.
    assert world.count("expired_by_retention") == 4
