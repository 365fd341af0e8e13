"""A datacentre of three brokers: what each ack level survives, and what a broker takes with it."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import trio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from hermes_actors.log.base import LATEST, LogUnavailable, Stored, TopicSettings, UnknownRecord
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_chaos.live.logs import RETENTION_RESTS, on_kafka, read_all, until
from hermes_local.kafka import Broker, Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(240)]

_logger = logging.getLogger(__name__)

REPLICATED = {"replication_factor": 3, "min_insync_replicas": 2}
WRITERS = 4
BATCH = 10


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("three")
    cluster = Cluster(folder, brokers=3, heap_mb=256, settings=RETENTION_RESTS)
    yield cluster
    cluster.kill()


@pytest.fixture
def cluster(three_brokers: Cluster) -> Iterator[Cluster]:
    three_brokers.start()
    try:
        yield three_brokers
    finally:
        for broker in three_brokers.brokers:
            if broker.is_running:
                broker.resume()


@dataclass
class Writer:
    """Appends numbered records to a partition, one batch after the other, and keeps the truth."""

    partition: int
    stored: dict[int, bytes] = field(default_factory=dict)
    unknown: int = 0
    unavailable: int = 0
    number: int = 0

    async def run(self, log, topic: str, ack: Ack, is_over) -> None:
        while not is_over():
            values = [b"%d-%d" % (self.partition, self.number + n) for n in range(BATCH)]
            self.number += BATCH
            outcomes = await log.append(topic, self.partition, batch(*values), ack)
            for value, outcome in zip(values, outcomes, strict=True):
                if isinstance(outcome, Stored):
                    assert outcome.offset not in self.stored
                    self.stored[outcome.offset] = value
                elif isinstance(outcome, UnknownRecord):
                    self.unknown += 1
                else:
                    self.unavailable += 1
            if not isinstance(outcomes[-1], Stored):
                await trio.sleep(0.05)


def test_ack_all_survives_the_kill_of_a_leader_under_load(cluster):
    topic = "three.all"

    async def main(log):
        await log.topics.create(topic, TopicSettings(partitions=WRITERS))
        writers = [Writer(partition) for partition in range(WRITERS)]
        wanted = 1_500

        def have_all(count: int) -> bool:
            return all(len(writer.stored) >= count for writer in writers)

        async with trio.open_nursery() as nursery:
            for writer in writers:
                is_over = lambda writer=writer: len(writer.stored) >= 2 * wanted  # noqa: E731
                nursery.start_soon(writer.run, log, topic, Ack.ALL, is_over)
            await until(lambda: have_all(wanted // 2))
            leader, _ = await leader_and_followers(cluster, topic)
            await trio.to_thread.run_sync(leader.kill)

        lost = 0
        for writer in writers:
            held = {r.offset: r.value for r in await read_all(log, topic, writer.partition)}
            lost += sum(held.get(at) != value for at, value in writer.stored.items())
            values = sorted(held.values())
            _logger.info(
                f"partition {writer.partition}: {len(writer.stored)} stored, "
                f"{writer.unknown} unknown, {writer.unavailable} unavailable, "
                f"{len(values) - len(set(values))} twice"
            )
            # A broker knows the copies of one append, so none of them lies there twice.
            assert len(values) == len(set(values))
        assert lost == 0
        assert not leader.is_running

    on_kafka(main, cluster.bootstrap_servers, within_s=200, **REPLICATED)


@pytest.mark.soak
def test_ack_leader_loses_what_the_followers_had_not_copied_when_the_leader_is_killed(cluster):
    topic = "three.leader"

    async def main(log):
        await log.topics.create(topic, TopicSettings())
        assert stored(await log.append(topic, 0, batch(b"replicated"), Ack.ALL)) == [0]
        leader, followers = await leader_and_followers(cluster, topic)
        for follower in followers:
            follower.pause()
        # The answer to a fetch that was under way lies in the followers' sockets already: the
        # first records may go with it, what comes after them cannot.
        for _ in range(3):
            assert stored(await log.append(topic, 0, batch(b"perhaps"), Ack.LEADER))
        (lost_offset,) = stored(await log.append(topic, 0, batch(b"lost"), Ack.LEADER))
        # It is above the high watermark: acknowledged, and no reader has seen it.
        assert (await log.positions(topic, LATEST))[0] <= lost_offset
        assert b"lost" not in [record.value for record in await read_all(log, topic)]
        (waits,) = await log.append(topic, 0, batch(b"all"), Ack.ALL)
        assert isinstance(waits, UnknownRecord)

        await trio.to_thread.run_sync(leader.kill)
        for follower in followers:
            follower.resume()

        async def goes_on():
            return bool(stored(await log.append(topic, 0, batch(b"after"), Ack.ALL)))

        await until(goes_on)
        while (await log.positions(topic, LATEST))[0] <= lost_offset:
            assert stored(await log.append(topic, 0, batch(b"after"), Ack.ALL))
        held = {record.offset: record.value for record in await read_all(log, topic)}
        assert held[0] == b"replicated"
        assert b"lost" not in held.values()
        # Its offset was given again.
        assert held[lost_offset] == b"after"
        await trio.to_thread.run_sync(cluster.start)

        async def is_whole():
            return await in_sync(cluster, topic) == 3

        await until(is_whole)
        # The former leader, back, drops it too.
        assert b"lost" not in [record.value for record in await read_all(log, topic)]

    timing = {"append_timeout_ms": 1_500, "request_timeout_ms": 5_000}
    on_kafka(main, cluster.bootstrap_servers, within_s=200, **REPLICATED, **timing)


def test_too_few_replicas_in_sync_are_unavailable_and_nothing_is_stored(cluster):
    topic = "three.few"

    async def main(log):
        await log.topics.create(topic, TopicSettings())
        leader, followers = await leader_and_followers(cluster, topic)
        await administer(
            cluster,
            "alter_configs",
            [ConfigResource(ConfigResourceType.TOPIC, topic, configs={"min.insync.replicas": "3"})],
        )
        assert stored(await log.append(topic, 0, batch(b"before"), Ack.ALL)) == [0]
        await trio.to_thread.run_sync(followers[0].kill)

        async def is_found_out():
            try:
                return await in_sync(cluster, topic) == 2
            except KafkaError:
                return False

        await until(is_found_out)
        # A leader that has not heard of it writes first, and what it answers then is unknown.
        await has_heard(cluster, log, leader)
        outcomes = await log.append(topic, 0, batch(b"x", b"y"), Ack.ALL)
        assert [type(outcome).__name__ for outcome in outcomes] == ["UnavailableRecord"] * 2
        assert "NOT_ENOUGH_REPLICAS" in outcomes[0].reason
        # Ack LEADER asks for no replica, but since Kafka 4.0 the high watermark does: what is
        # acknowledged now is read by nobody until enough replicas are in sync again.
        assert stored(await log.append(topic, 0, batch(b"leader"), Ack.LEADER)) == [1]
        assert await log.positions(topic, LATEST) == {0: 1}
        await trio.to_thread.run_sync(cluster.start)

        async def is_readable():
            return await log.positions(topic, LATEST) == {0: 2}

        await until(is_readable)
        values = [record.value for record in await read_all(log, topic)]
        assert values == [b"before", b"leader"]

    on_kafka(main, cluster.bootstrap_servers, within_s=200, **REPLICATED)


@pytest.mark.soak
@pytest.mark.parametrize("ack", [Ack.ALL, Ack.LEADER])
def test_a_stopped_broker_stalls_its_partitions_and_no_others(cluster, ack):
    stalled, *others = cluster.brokers
    mine, theirs = f"three.stalled.{ack.value}", f"three.others.{ack.value}"

    async def main(log):
        await create_on(cluster, mine, [stalled])
        await create_on(cluster, theirs, others)
        for topic in (mine, theirs):
            assert stored(await log.append(topic, 0, batch(b"warm"), ack))
        stalled.pause()
        outcomes = []

        async def append_to_stalled():
            outcomes.extend(await log.append(mine, 0, batch(b"late"), ack))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append_to_stalled)
            slowest_s = 0.0
            count = 0
            while not outcomes:
                started_s = trio.current_time()
                assert stored(await log.append(theirs, 0, batch(b"goes on"), ack))
                slowest_s = max(slowest_s, trio.current_time() - started_s)
                count += 1
        _logger.info(f"{count} appends to the others, the slowest {slowest_s * 1_000:.1f} ms")
        assert isinstance(outcomes[0], UnknownRecord)
        # Far below the stalled partition's time-out, on a slow machine too.
        assert slowest_s < 2.5
        assert count > 20
        stalled.resume()

        async def goes_on():
            try:
                return len(await read_all(log, mine)) == 2
            except LogUnavailable:
                return False

        await until(goes_on)

    on_kafka(main, cluster.bootstrap_servers, within_s=200)


def batch(*values: bytes) -> list[Record]:
    return [Record(None, value, (), 1_000) for value in values]


def stored(outcomes) -> list[int]:
    return [outcome.offset for outcome in outcomes if isinstance(outcome, Stored)]


# What the cluster says of itself, and is told.


async def administer(cluster: Cluster, method: str, *arguments):
    running = [broker.address for broker in cluster.brokers if broker.is_running]
    admin = AIOKafkaAdminClient(bootstrap_servers=running)
    await guest.call(admin.start)
    try:
        return await guest.call(getattr(admin, method), *arguments)
    finally:
        await guest.call(admin.close)


async def create_on(cluster: Cluster, topic: str, brokers: list[Broker]) -> None:
    where = {0: [broker.node_id for broker in brokers]}
    new = NewTopic(topic, -1, -1, replica_assignments=where)
    await administer(cluster, "create_topics", [new])


async def has_heard(cluster: Cluster, log, broker: Broker) -> None:
    """Wait until the broker has acted on all that the cluster has decided so far.

    It takes decisions in their order, several in one step, and a topic that it serves is one. What
    was decided before the first topic is in that one's step or before it; the second topic is
    decided when the first is served, so when that is served too, the step is over.
    """
    for topic in ("three.heard.first", "three.heard.second"):

        async def is_served(topic=topic):
            try:
                await create_on(cluster, topic, [broker])
            except KafkaError:
                return False
            return bool(stored(await log.append(topic, 0, batch(b"heard"), Ack.LEADER)))

        await until(is_served)


async def described(cluster: Cluster, topic: str):
    ((found,),) = [await administer(cluster, "describe_topics", [topic])]
    return found["partitions"][0]


async def leader_and_followers(cluster: Cluster, topic: str) -> tuple[Broker, list[Broker]]:
    leader = (await described(cluster, topic))["leader"]
    by_id = {broker.node_id: broker for broker in cluster.brokers}
    return by_id.pop(leader), list(by_id.values())


async def in_sync(cluster: Cluster, topic: str) -> int:
    return len((await described(cluster, topic))["isr"])
