import random

import pytest
import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.log.base import LATEST, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.collector import Collector, Sources
from hermes_actors.status.dependencies import Dependency
from hermes_actors.status.lag import Reached
from hermes_actors.status.record import (
    SETTINGS,
    STATUS_TOPIC,
    SubscriptionFigures,
    decode,
)
from hermes_actors.status.reporter import StatusReporter


class World:
    def __init__(self, clock, identity, supervisor):
        self.log = MemoryLog("dc1", clock, append_timeout_s=60)
        self.topics = {}
        self.subscriptions = {}
        self.supervisor = supervisor
        self.reporters = []
        self.lag_ms, self.standstill = 0.0, ""
        self.collector = Collector(
            identity,
            Sources(
                dependencies=lambda: [Dependency("event loop", self.standstill)],
                topics=lambda: list(self.topics),
                published=self.topics.get,
                subscriptions=lambda: list(self.subscriptions),
                consumed=lambda _name: SubscriptionFigures(),
                reached=self.subscriptions.__getitem__,
            ),
        )
        self._clock = clock

    def start(self):
        def make():
            reporter = StatusReporter(
                self.log, self.collector, clock=self._clock, loop_lag_ms=lambda: self.lag_ms
            )
            self.reporters.append(reporter)
            return self.reporters[-1]

        self.supervisor.start_task("reporter", lambda stop: make().run(stop))

    async def records(self):
        end = (await self.log.positions(STATUS_TOPIC, LATEST))[0]
        read = []
        async with self.log.reader(STATUS_TOPIC, {0: 0}) as reader:
            while len(read) < end:
                read += await reader.next_batch(1_000, 10_000_000)
        return read

    async def statuses(self):
        return [decode(each.value) for each in await self.records()]


@pytest.fixture
async def world(clock, identity):
    async with open_supervisor(random.Random(1)) as supervisor:
        yield World(clock, identity(), supervisor)


async def test_a_record_a_second_goes_into_a_topic_that_it_makes(autojump_clock, world):
    world.start()
    await trio.sleep(9.5)
    assert await world.log.topics.describe(STATUS_TOPIC) == SETTINGS
    records = await world.records()
    assert {each.key for each in records} == {b"n1"}
    assert [decode(each.value).header.sequence for each in records] == list(range(1, 11))


async def test_the_lag_is_asked_of_the_log(autojump_clock, world):
    await world.log.topics.create("a.b", TopicSettings())
    batch = [Record(None, b"x", (), 1)] * 5
    await world.log.append("a.b", 0, batch, Ack.LEADER)
    world.subscriptions["a.b$c"] = Reached("a.b", {0: 3})
    world.subscriptions["a.gone$c"] = Reached("no", {0: 3})
    world.start()
    await trio.sleep(5)
    statuses = await world.statuses()
    assert [each.lag for each in statuses[0].subscriptions] == [-1, -1]
    assert [each.lag for each in statuses[-1].subscriptions] == [2, -1]


async def test_asked_to_stop_it_says_so_in_a_last_record(autojump_clock, world):
    world.start()
    await trio.sleep(2.5)
    await world.supervisor.stop("reporter")
    assert [each.header.is_leaving for each in await world.statuses()] == [False] * 3 + [True]


async def test_a_log_that_is_away_is_skipped_and_nothing_is_queued(autojump_clock, world):
    world.start()
    await trio.sleep(2.5)
    world.log.faults.cut()
    await trio.sleep(100)
    assert world.reporters[0].trouble == "the log of dc1 has no leader"
    world.log.faults.heal()
    await trio.sleep(2.5)
    statuses = await world.statuses()
    assert world.reporters[0].trouble == ""
    assert len(statuses) in (5, 6)
    assert statuses[-1].header.missed == pytest.approx(100, abs=2)
    assert len(world.reporters) == 1


async def test_a_log_that_does_not_answer_holds_one_record_for_a_bounded_time(
    autojump_clock, world
):
    world.start()
    await trio.sleep(1.5)
    world.log.faults.late_store = False
    world.log.faults.silent = True
    await trio.sleep(20)
    assert world.reporters[0].trouble == "the log does not answer"
    world.log.faults.heal()
    await trio.sleep(4)
    statuses = await world.statuses()
    sequences = [each.header.sequence for each in statuses]
    assert sequences == sorted(set(sequences))
    assert 5 <= statuses[-1].header.missed <= 8
    assert world.reporters[0].trouble == ""


async def test_a_reporter_that_is_restarted_goes_on_with_the_sequence(autojump_clock, world):
    world.start()
    await trio.sleep(2.5)
    world.supervisor.crash("reporter")
    await trio.sleep(5)
    sequences = [each.header.sequence for each in await world.statuses()]
    assert len(world.reporters) == 2
    assert sequences == list(range(1, len(sequences) + 1))


async def test_the_loops_lag_and_what_an_operator_should_know_are_told(autojump_clock, world):
    world.start()
    await trio.sleep(0.5)
    world.lag_ms, world.standstill = 312.5, "it stalled once"
    await trio.sleep(1)
    headers = [each.header for each in await world.statuses()]
    assert [each.loop_lag_ms for each in headers] == [0.0, 312.5]
    assert [each.notices for each in headers] == [(), ("event loop: it stalled once",)]


async def test_no_turn_of_the_thread_makes_more_than_a_few_entries(autojump_clock, world):
    made = 0
    figures = SubscriptionFigures()

    def consumed(_name):
        nonlocal made
        made += 1
        return figures

    world.collector = Collector(
        world.collector.identity,
        Sources(
            topics=list,
            published=lambda _name: None,
            subscriptions=lambda: [f"g.t$s{number}" for number in range(200)],
            consumed=consumed,
        ),
    )
    world.start()
    longest = before = 0
    while made < 200:
        await trio.lowlevel.checkpoint()
        longest, before = max(longest, made - before), made
    # Two turns may lie between two of this task's.
    assert longest <= 2 * 10
