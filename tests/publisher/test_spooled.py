"""A frontend with the real spool: 202 is on the disk, and reaches the log in order for its key."""

import random
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from hermes_actors.config import Config
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.opening import open_spool
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.message import from_record
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Topic
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk, open_store_on
from tests.values import a_topic

ORDERS = "shop.orders"


def topic(*, fallback: bool = False) -> Topic:
    return a_topic(ORDERS, fallback_to_remote_datacenter_enabled=fallback)


@pytest.fixture
def open_buffered(open_world):
    @asynccontextmanager
    async def opened(disk: SimulatedDisk, *, partitions: int = 2, **settings: int | bool):
        config = Config(spool=SpoolConfig(**settings))
        async with open_world() as world:
            log: MemoryLog = world.log
            clock = world.frontend.clock
            live = LiveTopic(TopicName.parse(ORDERS), topic(), 0, 0, ORDERS)
            await log.topics.create(ORDERS, TopicSettings(partitions=partitions))
            metadata = SimpleNamespace(
                catalog=SimpleNamespace(topics={ORDERS: live}), has_ended=lambda *_: False
            )
            mounted = Mount(disk)
            async with open_spool(
                lambda: open_store_on(mounted, config.spool.disk_bytes_max),
                config,
                metadata,
                log,
                list,
                control=world.supervisor,
                metrics=Metrics("hermes_frontend"),
                clock=clock,
                rng=random.Random(5),
            ) as spool:
                world.spool = spool
                world.frontend.routes.spool = spool
                world.frontend.routes.set(live, world.nursery)
                yield world

    return opened


def status(publication) -> int:
    return publication.answer.status if publication.is_answered else 0


async def wait_empty(world) -> None:
    while world.spool.index.queues:  # noqa: ASYNC110
        await trio.sleep(0.05)


async def test_silence_is_202_within_the_limit_and_the_message_is_stored_once(
    open_buffered, autojump_clock
):
    async with open_buffered(SimulatedDisk(write_s=(0.005, 0.005))) as world:
        world.log.faults.silent = True
        publication = world.admit(body=b'{"a":1}', key=b"k")
        await trio.sleep(0.065)
        assert status(publication) == 202
        world.log.faults.silent = False
        await wait_empty(world)
        assert [record.value for record in world.stored] == [b'{"a":1}']
        assert world.spool.measures.late_acknowledgements.value == 1
        assert world.spool.measures.replayed.value == 0


async def test_what_the_log_refuses_to_take_now_is_202_at_once_and_stored_by_the_replay(
    open_buffered, autojump_clock
):
    async with open_buffered(SimulatedDisk()) as world:
        world.log.faults.unavailable_rate = 1.0
        publication = world.admit(body=b"{}", key=b"k")
        await trio.sleep(0.01)
        assert status(publication) == 202
        world.log.faults.unavailable_rate = 0.0
        await wait_empty(world)
        (record,) = world.stored
        message = from_record(record)
        assert (message.id, message.via, message.key) == (publication.id, "spool", b"k")
        assert message.dc == "dc1"
        assert message.published_at_ms == pytest.approx(world.frontend.clock.now_ms(), abs=5_000)


class LateDisk(SimulatedDisk):
    """Makes a change whole after its process has given it up."""

    def tear(self, change) -> None:
        change()


class UncutDisk(SimulatedDisk):
    """Fails after it has taken all of a write, of which nothing can be taken back then."""

    def write(self, name, at, content, *, syncs=True):
        fails, self.is_failing = self.is_failing, False
        super().write(name, at, content, syncs=syncs)
        self.is_failing = fails
        self._check()


@pytest.mark.parametrize("kind", [LateDisk, UncutDisk])
async def test_what_a_disk_may_have_taken_is_not_said_to_be_lost(
    open_buffered, autojump_clock, kind
):
    disk = kind()
    async with open_buffered(disk) as world:
        world.log.faults.unavailable_rate = 1.0
        first = world.admit(key=b"k")
        await trio.sleep(0.01)
        assert status(first) == 202
        disk.slow_s, disk.is_failing = (60.0, False) if kind is LateDisk else (0.0, True)
        second = world.admit(body=b"second", key=b"k")
        await trio.sleep(1.1)
        assert status(second) == 503
        # As if the process had been killed now.
        files = {name: bytes(file) for name, file in disk.files.items()}
        disk.heal()
    left = SimulatedDisk()
    left.files = {name: bytearray(file) for name, file in files.items()}
    left._synced = {name: len(file) for name, file in files.items()}
    async with open_buffered(left) as world:
        await wait_empty(world)
        assert b"second" in [record.value for record in world.stored]
    assert b"may have been stored" in second.answer.body
    assert b"SENDING_TO_KAFKA_TIMEOUT" in second.answer.body


@pytest.mark.slow
async def test_an_outage_costs_no_answer_but_201_and_202_and_no_message_and_no_order(
    open_buffered, autojump_clock
):
    async with open_buffered(SimulatedDisk(write_s=(0.002, 0.002)), partitions=3) as world:
        publications = []
        for number in range(2_000):
            if number == 300:
                world.log.faults.silent = True
            if number == 900:
                world.log.faults.silent = False
                world.log.faults.unavailable_rate = 0.5
            if number == 1_300:
                world.log.faults.heal()
            publications.append(world.admit(body=b"%d" % number, key=b"%d" % (number % 5)))
            await trio.sleep(0.001)
        await wait_empty(world)
        await trio.sleep(1)
        assert {status(each) for each in publications} == {201, 202}
        bodies = [int(record.value) for record in world.stored]
        assert set(bodies) == set(range(2_000))
        for key in range(5):
            firsts = list(dict.fromkeys(each for each in bodies if each % 5 == key))
            assert firsts == list(range(key, 2_000, 5))


async def test_a_topic_with_fallback_has_a_spool_only_if_the_operator_wants_both(
    open_buffered, autojump_clock
):
    for wants_both in (False, True):
        async with open_buffered(SimulatedDisk(), for_fallback_topics=wants_both) as world:
            routes = world.frontend.routes
            assert routes.spool_of(topic(fallback=False)) is world.spool
            assert routes.spool_of(topic(fallback=True)) is (world.spool if wants_both else None)


async def test_messages_that_wait_are_not_overtaken_when_their_topic_gets_the_fallback_flag(
    open_buffered, autojump_clock
):
    async with open_buffered(SimulatedDisk()) as world:
        world.log.faults.unavailable_rate = 1.0
        older = world.admit(body=b"1", key=b"k")
        await trio.sleep(1.0)
        live = LiveTopic(TopicName.parse(ORDERS), topic(fallback=True), 0, 0, ORDERS)
        world.frontend.routes.set(live, world.nursery)
        world.log.faults.heal()
        newer = world.admit(body=b"2", key=b"k")
        await wait_empty(world)
        assert [status(older), status(newer)] == [202, 202]
        assert [record.value for record in world.stored] == [b"1", b"2"]


@pytest.mark.slow
async def test_a_busy_key_gets_out_of_the_spool_again(open_buffered, autojump_clock):
    async with open_buffered(SimulatedDisk(write_s=(0.002, 0.002))) as world:
        world.log.faults.delay_s = (0.002, 0.002)
        world.log.faults.unavailable_rate = 1.0
        last = []
        for number in range(3_000):
            if number == 200:
                world.log.faults.unavailable_rate = 0.0
            publication = world.admit(body=b"%d" % number, key=b"k")
            last = [*last[-20:], publication]
            await trio.sleep(0.001)
        await trio.sleep(0.1)
        assert {status(each) for each in last} == {201}
