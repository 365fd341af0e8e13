"""Ordered delivery: one message of each partition key at a time, also over retries and crashes."""

import trio

from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.coordination.owned import Owned

OK = SendOutcome(200)
BUSY = SendOutcome(503, "0")


def bodies_of(world, key):
    return [body for body in world.sender.bodies if body.startswith(key)]


def header(push, name):
    for line in push.lines.split(b"\r\n"):
        if line.startswith(name + b": "):
            return line[len(name) + 2 :]
    return None


async def publish(world, *bodies, partition=0):
    """The key is what stands before the colon."""
    for body in bodies:
        await world.publish(body, partition=partition, key=body.split(b":")[0])


async def test_a_failed_message_holds_up_its_key_and_no_other(world, autojump_clock):
    answers = {b"a:1": [BUSY, BUSY, BUSY]}
    world.sender.script = lambda push: (
        0.01,
        answers[push.body].pop() if answers.get(push.body) else OK,
    )
    await publish(world, b"a:0", b"a:1", b"a:2", b"b:0", b"b:1", b"a:3")
    live = world.live(policy={"ordered": True, "message_backoff": 1_000})
    async with world.consuming(live):
        await trio.sleep(0.05)
        assert bodies_of(world, b"b") == [b"b:0", b"b:1"]
        await trio.sleep(10)
    assert bodies_of(world, b"a") == [b"a:0", b"a:1", b"a:1", b"a:1", b"a:1", b"a:2", b"a:3"]
    assert (await world.committed()).position == 6


async def test_each_push_says_its_place_in_the_log(world, autojump_clock):
    await publish(world, b"a:0", b"a:1")
    async with world.consuming(world.live(policy={"ordered": True}), owned=Owned(epoch=3)):
        await trio.sleep(1)
    found = [header(push, b"Hermes-Sequence") for push in world.sender.pushes]
    assert found == [b"0 3 0", b"0 3 1"]
    await world.publish(b"plain")
    async with world.consuming():
        await trio.sleep(1)
    assert header(world.sender.pushes[-1], b"Hermes-Sequence") is None


async def test_a_message_that_is_given_up_leaves_a_gap_and_its_key_goes_on(world, autojump_clock):
    world.sender.script = lambda push: (0.01, SendOutcome(500) if push.body == b"a:1" else OK)
    await publish(world, b"a:0", b"a:1", b"a:2")
    live = world.live(policy={"ordered": True, "message_ttl": 2, "message_backoff": 500})
    async with world.consuming(live):
        await trio.sleep(1.5)
        assert b"a:2" not in world.sender.bodies
        await trio.sleep(5)
    assert bodies_of(world, b"a")[-1] == b"a:2"
    assert world.count("discarded") == 1
    assert (await world.committed()).position == 3


async def test_a_record_that_cannot_be_pushed_at_all_frees_its_key(world, autojump_clock):
    await publish(world, b"a:0", b"a:1", b"a:2")
    # Without an address there is no attempt; the outcome is there before `send` would return.
    live = world.live(endpoint="http://sink/{id}", policy={"ordered": True, "message_ttl": 0})
    async with world.consuming(live):
        await trio.sleep(1)
    assert world.count("discarded") == 3
