"""Filters that want more than a moment for a message: asked in a worker, and not for ever."""

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import LATEST
from hermes_actors.model.dead_letter import read_entry
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.subscription import BatchPolicy, DeliveryType, Filter
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.workers import InlinePool, TooCostly

ALL_ONES = Filter(type="jsonpath", path="$.a[*]", matcher="1")
SOON, COSTLY, ENDLESS = (b'{"a":[%b1]}' % (b"1," * count) for count in (10, 200, 5_000))
"""Decided on the loop, in a worker, and by nobody."""


class HandPool(InlinePool):
    """Runs jobs when `goes`; it says of ENDLESS that it takes too much."""

    def __init__(self):
        super().__init__()
        self.jobs = []
        self.asked = 0
        self.holds = False

    def submit(self, job):
        self.asked += 1
        self.jobs.append(job)
        if not self.holds:
            self.go()

    def go(self):
        self.holds = False
        while self.jobs:
            job = self.jobs.pop(0)
            if ENDLESS in job.args:
                job.done(TooCostly("it takes more than 250 ms of CPU"))
            else:
                super().submit(job)


class Gate:
    """A lease that is opened and closed by hand."""

    def __init__(self):
        self._opened = trio.Event()
        self._opened.set()

    def is_open(self):
        return self._opened.is_set()

    async def wait_opened(self):
        await self._opened.wait()

    def close(self):
        self._opened = trio.Event()

    def open(self):
        self._opened.set()


@pytest.fixture
def pool(world):
    pool = HandPool()
    world.parts = msgspec.structs.replace(world.parts, pool=pool)
    return pool


def live(world, **fields):
    return world.live(filters=[ALL_ONES], **fields)


@asynccontextmanager
async def consuming(world, *, lasts_s=5, subscription=None, **arguments):
    live_one = subscription or live(world)
    async with world.consuming(live_one, keeps_letters=True, **arguments) as consumer:
        await trio.sleep(lasts_s)
        yield consumer


async def letters_of(world):
    topic = "_hermes.dlq.shop"
    if await world.log.topics.describe(topic) is None:
        return []
    ends = await world.log.positions(topic, LATEST)
    found = []
    for partition, end in ends.items():
        if end:
            async with world.log.reader(topic, {partition: 0}) as reader:
                found += [read_entry(each) for each in await reader.next_batch(100, 10**6)]
    return found


async def test_what_takes_more_than_a_moment_is_asked_the_loop_and_delivered(
    world, pool, autojump_clock
):
    await world.publish(SOON, COSTLY)
    async with consuming(world):
        assert world.sender.bodies == [SOON, COSTLY]
    assert pool.asked == 1
    assert (await world.committed()).position == 2


async def test_what_takes_longer_than_a_worker_may_is_a_dead_letter_and_settled(
    world, pool, autojump_clock
):
    await world.publish(ENDLESS, SOON)
    async with consuming(world) as consumer:
        assert world.sender.bodies == [SOON]
        status = consumer.status()
        assert status.held_back.startswith("given up because filters took too long: 1, the last at")
        assert status.last_undelivered.reason.startswith(
            "filter-time: its filters: it takes more than"
        )
        assert consumer.made[-1].figures().last_undelivered.offset == 0
    (letter,) = await letters_of(world)
    assert (letter.reason, letter.value, letter.attempts) == ("filter-time", ENDLESS, 0)
    assert letter.detail == "its filters: it takes more than 250 ms of CPU"
    # The id of 10,000 characters that the record has is none of ours.
    assert letter.message_id == letter.original.place
    assert world.count("discarded") == 1
    assert world.count("dead_letters") == 1
    assert (world.count("filtered_out"), world.count("filter_errors")) == (0, 0)
    assert world.crashes == []


async def test_the_next_owner_does_not_look_at_it_again(world, pool, autojump_clock):
    await world.publish(ENDLESS)
    async with consuming(world):
        assert (await world.committed()).position == 1
    asked = pool.asked
    async with consuming(world):
        assert pool.asked == asked
    assert len(await letters_of(world)) == 1


async def test_where_no_dead_letters_are_kept_it_is_discarded_with_that_cause(
    world, pool, autojump_clock
):
    await world.publish(ENDLESS, SOON)
    async with consuming(world, subscription=live(world, dead_letters_enabled=False)) as consumer:
        assert world.sender.bodies == [SOON]
        assert "filter-time" in consumer.status().last_undelivered.reason
        assert (await world.committed()).position == 2
    assert (world.count("discarded"), world.count("dead_letters")) == (1, 0)
    assert await letters_of(world) == []


async def test_batches_leave_it_out_too(world, pool, autojump_clock):
    await world.publish(ENDLESS, SOON)
    wanted = live(world)
    body = msgspec.structs.replace(
        wanted.subscription,
        delivery_type=DeliveryType.BATCH,
        subscription_policy=BatchPolicy(batch_size=10, batch_time=1_000),
    )
    wanted = msgspec.structs.replace(wanted, subscription=body)
    async with consuming(world, subscription=wanted) as consumer:
        assert len(world.sender.bodies) == 1
        assert consumer.status().buffered_bytes == 0
        assert (await world.committed()).position == 2
    assert [letter.reason for letter in await letters_of(world)] == ["filter-time"]


async def test_nothing_overtakes_a_message_that_is_asked_the_loop(world, pool, autojump_clock):
    pool.holds = True
    await world.publish(COSTLY, SOON, key=b"k")
    async with consuming(world, subscription=live(world, policy={"ordered": True})):
        assert world.sender.bodies == []
        pool.go()
        await trio.sleep(5)
        assert world.sender.bodies == [COSTLY, SOON]


async def test_a_stop_meanwhile_loses_nothing_and_does_not_wait(world, pool, autojump_clock):
    pool.holds = True
    await world.publish(SOON, COSTLY)
    async with consuming(world) as consumer:
        stopped_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - stopped_s < 1
        assert (await world.committed()).position == 1
    pool.go()
    async with consuming(world):
        assert world.sender.bodies == [SOON, COSTLY]


async def test_a_closed_lease_keeps_the_dead_letter_back(world, pool, autojump_clock):
    gate = Gate()
    pool.holds = True
    await world.publish(ENDLESS, SOON)
    async with consuming(world, owned=Owned(lease=gate)):
        gate.close()
        pool.go()
        await trio.sleep(5)
        assert await letters_of(world) == []
        gate.open()
        await trio.sleep(5)
        assert [letter.reason for letter in await letters_of(world)] == ["filter-time"]
        assert world.sender.bodies == [SOON]


async def test_a_record_in_an_envelope_is_given_up_with_its_message(world, pool, autojump_clock):
    message = Message("the-id", ENDLESS, world.clock.now_ms(), dc="dc1")
    record = to_record(message, Envelope.HERMES)
    await world.log.append(world.topic, 0, [record], Ack.LEADER)
    async with consuming(world):
        pass
    (letter,) = await letters_of(world)
    assert (letter.message_id, letter.value) == ("the-id", record.value)
