"""Filters that want more than a moment for a message: asked beside the loop, and not for ever."""

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from hermes_actors.config import FiltersConfig
from hermes_actors.consumer.delivery.bodies import Bodies
from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.reading.filters import Later, Screening
from hermes_actors.coordination.owned import Owned, Unfenced
from hermes_actors.filters.aside import Aside
from hermes_actors.filters.budget import BudgetSpent
from hermes_actors.model.dead_letter import read_entry
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import BatchPolicy, DeliveryType, Filter
from hermes_actors.model.topic import Ack, ContentType

ALL_ONES = Filter(type="jsonpath", path="$.a[*]", matcher="1")
SOON, LONGER, COSTLY, ENDLESS = (b'{"a":[%b1]}' % (b"1," * count) for count in (10, 60, 200, 5_000))
"""Decided on the loop, after a while there, in a thread, and by nobody: each 16 values are a
millisecond here.
"""


class HandThreads:
    """Runs work on the loop, when `goes` is set, by a CPU clock that each look sets forward."""

    def __init__(self):
        self.goes = trio.Event()
        self.goes.set()
        self.asked = 0
        self.rested_s = 0.0
        self.looks = 0

    def cpu_s(self):
        self.looks += 1
        return self.looks / 1_000

    def rest(self, seconds):
        self.rested_s += seconds

    async def run(self, work, limiter):
        async with limiter:
            self.asked += 1
            await self.goes.wait()
            return work()


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
def threads(world):
    threads = HandThreads()
    aside = Aside(FiltersConfig(), threads)
    world.parts = msgspec.structs.replace(world.parts, aside=aside)
    return threads


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
    if await world.log.describe_topic(topic) is None:
        return []
    ends = await world.log.end_positions(topic)
    found = []
    for partition, end in ends.items():
        if end:
            async with world.log.reader(topic, {partition: 0}) as reader:
                found += [read_entry(each) for each in await reader.next_batch(100, 10**6)]
    return found


async def test_what_takes_more_than_a_moment_is_asked_beside_the_loop_and_delivered(
    world, threads, autojump_clock
):
    await world.publish(SOON, COSTLY)
    async with consuming(world):
        assert world.sender.bodies == [SOON, COSTLY]
    assert threads.asked == 1
    # Nine times as long as it worked, what the loop had spent before included.
    assert threads.rested_s == pytest.approx(9 * 0.018, abs=9 * 0.005)
    assert (await world.committed()).position == 2


async def test_what_takes_longer_than_a_thread_may_is_a_dead_letter_and_settled(
    world, threads, autojump_clock
):
    await world.publish(ENDLESS, SOON)
    async with consuming(world) as consumer:
        assert world.sender.bodies == [SOON]
        status = consumer.status()
        assert status.held_back.startswith("given up because filters took too long: 1, the last at")
        assert status.last_undelivered.reason.startswith("filter-time: filters[0]: took more than")
        assert consumer.made[-1].figures().last_undelivered.offset == 0
    (letter,) = await letters_of(world)
    assert (letter.reason, letter.value, letter.attempts) == ("filter-time", ENDLESS, 0)
    assert letter.detail == "filters[0]: took more than 100 ms of CPU"
    assert letter.message_id == f"id-{ENDLESS.decode()}"
    assert (world.count("filter_timeouts"), world.count("discarded")) == (1, 1)
    assert world.count("dead_letters") == 1
    assert (world.count("filtered_out"), world.count("filter_errors")) == (0, 0)
    assert world.crashes == []


async def test_the_next_owner_does_not_look_at_it_again(world, threads, autojump_clock):
    await world.publish(ENDLESS)
    async with consuming(world):
        assert (await world.committed()).position == 1
    asked = threads.asked
    async with consuming(world):
        assert threads.asked == asked
    assert len(await letters_of(world)) == 1


async def test_where_no_dead_letters_are_kept_it_is_discarded_with_that_cause(
    world, threads, autojump_clock
):
    await world.publish(ENDLESS, SOON)
    async with consuming(world, subscription=live(world, dead_letters_enabled=False)) as consumer:
        assert world.sender.bodies == [SOON]
        assert "filter-time" in consumer.status().last_undelivered.reason
        assert (await world.committed()).position == 2
    assert (world.count("discarded"), world.count("dead_letters")) == (1, 0)
    assert await letters_of(world) == []


async def test_batches_leave_it_out_too(world, threads, autojump_clock):
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


async def test_nothing_overtakes_a_message_that_is_asked_beside_the_loop(
    world, threads, autojump_clock
):
    threads.goes = trio.Event()
    await world.publish(COSTLY, SOON, key=b"k")
    async with consuming(world, subscription=live(world, policy={"ordered": True})):
        assert world.sender.bodies == []
        threads.goes.set()
        await trio.sleep(5)
        assert world.sender.bodies == [COSTLY, SOON]


async def test_a_stop_meanwhile_loses_nothing_and_does_not_wait(world, threads, autojump_clock):
    threads.goes = trio.Event()
    await world.publish(SOON, COSTLY)
    async with consuming(world) as consumer:
        stopped_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - stopped_s < 1
        assert (await world.committed()).position == 1
    threads.goes.set()
    async with consuming(world):
        assert world.sender.bodies == [SOON, COSTLY]


async def test_a_closed_lease_keeps_the_dead_letter_back(world, threads, autojump_clock):
    gate = Gate()
    threads.goes = trio.Event()
    await world.publish(ENDLESS, SOON)
    async with consuming(world, owned=Owned(lease=gate)):
        gate.close()
        threads.goes.set()
        await trio.sleep(5)
        assert await letters_of(world) == []
        gate.open()
        await trio.sleep(5)
        assert [letter.reason for letter in await letters_of(world)] == ["filter-time"]
        assert world.sender.bodies == [SOON]


class Turns(trio.abc.Instrument):
    """How much CPU is used in a turn of the loop, at most, by a clock of the test's."""

    def __init__(self, threads):
        self.longest_s = 0.0
        self._threads = threads
        self._began = 0

    def after_io_wait(self, timeout):
        looks = self._threads.looks
        self.longest_s = max(self.longest_s, (looks - self._began) / 1_000)
        self._began = looks


def screening_of(world, measures):
    of = live(world)
    bodies = Bodies(of, ContentType.JSON, world.parts.avro, world.clock)
    return Screening(of, world.parts, measures, Unfenced(), bodies)


@pytest.mark.parametrize("body", [ENDLESS, LONGER])
async def test_costly_filters_of_many_subscriptions_share_the_time_of_a_turn(
    world, threads, autojump_clock, body
):
    # Whoever is asked beside the loop waits there, and takes none of its time.
    threads.goes = trio.Event()
    record, many, decided = StoredRecord(0, 0, 0, None, body, ()), 100, []
    measures = SubscriptionMeasures(world.parts.metrics, world.live().name)

    async def ask():
        screening = screening_of(world, measures)
        await screening.prepare()
        await trio.sleep(1)
        seen = screening.screen(record)
        decided.append(await seen.verdict() if isinstance(seen, Later) else seen)

    trio.lowlevel.add_instrument(turns := Turns(threads))
    async with trio.open_nursery() as nursery:
        for _ in range(many):
            nursery.start_soon(ask)
        await trio.sleep(10)
        assert turns.longest_s <= 0.012
        assert world.parts.aside.waiting + len(decided) == many
        nursery.cancel_scope.cancel()


async def test_whose_filters_are_soon_done_does_not_wait_behind_costly_ones(
    world, threads, autojump_clock
):
    measures = SubscriptionMeasures(world.parts.metrics, world.live().name)
    screens = []
    for _ in range(2):
        screening = screening_of(world, measures)
        await screening.prepare()
        screens.append(screening.screen)
    costly, cheap = screens

    def seen(screen, body):
        return screen(StoredRecord(0, 0, 0, None, body, ()))

    assert seen(cheap, SOON) is None
    assert isinstance(seen(costly, ENDLESS), Later)
    assert world.parts.aside.is_turn_spent
    assert seen(cheap, SOON) is None
    assert isinstance(seen(costly, SOON), Later)


async def test_one_subscription_is_asked_beside_the_loop_at_once(autojump_clock):
    threads = HandThreads()
    threads.goes = trio.Event()
    aside = Aside(FiltersConfig(), threads)
    spent = []

    async def ask(number):
        await aside.ask(lambda budget: spent.append((number, budget.look())), b"", BudgetSpent(""))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(ask, number)
        await trio.testing.wait_all_tasks_blocked()
        assert (threads.asked, aside.waiting) == (1, 5)
        threads.goes.set()
    assert [left_s for _, left_s in spent] == [pytest.approx(0.099)] * 5


async def test_a_record_in_an_envelope_is_given_up_with_its_message(world, threads, autojump_clock):
    message = Message("the-id", ENDLESS, world.clock.now_ms(), dc="dc1")
    record = to_record(message, Envelope.HERMES)
    await world.log.append(world.topic, 0, [record], Ack.LEADER)
    async with consuming(world):
        pass
    (letter,) = await letters_of(world)
    assert (letter.message_id, letter.value) == ("the-id", record.value)
