"""What real Kafka does when it fails, seen through the product's log.

`hermes_actors/log/faults.py` names, beside each fault of the memory log, the test here that saw it.
The broker lies behind a proxy, which it advertises as its address.
"""

import contextlib
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OutOfOrderSequenceNumber

from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Commit,
    LogUnavailable,
    OffsetOutOfRange,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnavailableRecord,
)
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_chaos.live.frames import Api
from hermes_chaos.live.logs import RETENTION_RESTS, on_kafka, read_all, until
from hermes_chaos.live.proxy import Harm, Link, Proxy, proxy_in_thread
from hermes_local.kafka import Cluster
from hermes_local.ports import free_ports

pytestmark = [pytest.mark.kafka, pytest.mark.live]

QUICK = {"append_timeout_ms": 1_500, "request_timeout_ms": 1_500}
SLOW_S = 0.3


class Proxied:
    """A broker and the proxy before it."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.link: Link = proxy.links[0]
        self._topics = 0

    @property
    def servers(self) -> list[str]:
        return [self.link.address]

    def harm(self, api: Api, harm: Harm, **which):
        return self.proxy.do(lambda: self.link.harm(api, harm, **which))

    def new_topic(self) -> str:
        self._topics += 1
        return f"faults.t{self._topics}"

    def run(self, main, **settings):
        """`main(log, topic)` over a topic of its own."""
        topic = self.new_topic()

        async def with_topic(log):
            await log.topics.create(topic, TopicSettings())
            return await main(log, topic)

        return on_kafka(with_topic, self.servers, **{**QUICK, **settings})


@pytest.fixture(scope="module")
def proxied_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder: Path = tmp_path_factory.mktemp("proxied")
    with proxy_in_thread(lambda: [Link(("127.0.0.1", 1), port=free_ports(1)[0])]) as proxy:
        link = proxy.links[0]
        with Cluster(folder, advertised=[link.address], settings=RETENTION_RESTS) as cluster:
            broker = cluster.brokers[0]
            link.upstream = (broker.host, broker.port)
            yield Proxied(cluster, proxy)


@pytest.fixture
def kafka(proxied_broker: Proxied) -> Iterator[Proxied]:
    try:
        yield proxied_broker
    finally:
        proxied_broker.proxy.heal()
        proxied_broker.cluster.brokers[0].resume()


def batch(*values: bytes, timestamp_ms: int = 1_000) -> list[Record]:
    return [Record(None, value, (), timestamp_ms) for value in values]


async def values_in(log, topic: str) -> list[bytes]:
    return [record.value for record in await read_all(log, topic)]


def kinds(outcomes) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


# Appending.


@pytest.mark.parametrize("ack", [Ack.ALL, Ack.LEADER])
def test_a_slow_broker_makes_appends_slow_and_beyond_the_time_out_unknown(kafka, ack):
    async def main(log, topic):
        assert kinds(await log.append(topic, 0, batch(b"warm"), ack)) == ["Stored"]
        kafka.link.answers.delay_s = SLOW_S
        started_s = trio.current_time()
        assert kinds(await log.append(topic, 0, batch(b"slow"), ack)) == ["Stored"]
        assert trio.current_time() - started_s >= SLOW_S
        kafka.link.answers.delay_s = 4.0
        assert kinds(await log.append(topic, 0, batch(b"too slow"), ack)) == ["UnknownRecord"]
        kafka.proxy.heal()
        assert await values_in(log, topic) == [b"warm", b"slow", b"too slow"]

    kafka.run(main)


def test_a_slow_broker_makes_reads_and_commits_slow(kafka):
    async def main(log, topic):
        await log.append(topic, 0, batch(b"a"), Ack.ALL)
        await log.commit("slow", topic, {0: Commit(1)})
        kafka.link.answers.delay_s = SLOW_S
        for ask in (
            lambda: log.positions(topic, LATEST),
            lambda: log.committed("slow", topic),
            lambda: log.commit("slow", topic, {0: Commit(1)}),
            lambda: read_all(log, topic),
        ):
            started_s = trio.current_time()
            await ask()
            assert trio.current_time() - started_s >= SLOW_S

    kafka.run(main)


def test_a_cluster_that_is_cut_off_refuses_appends_reads_and_commits_and_stores_nothing(kafka):
    async def main(log, topic):
        await log.append(topic, 0, batch(b"before"), Ack.ALL)
        await log.commit("cut", topic, {0: Commit(1)})
        kafka.proxy.do(kafka.link.cut)
        # What is written into a connection before its end is noticed is unknown.
        await until(lambda: not log.statistics().is_connected)
        for ack in (Ack.ALL, Ack.LEADER):
            outcomes = await log.append(topic, 0, batch(b"x", b"y"), ack)
            assert kinds(outcomes) == ["UnavailableRecord"] * 2
        with pytest.raises(LogUnavailable):
            await log.positions(topic, LATEST)
        with pytest.raises(LogUnavailable):
            await log.commit("cut", topic, {0: Commit(0)})
        with pytest.raises(LogUnavailable):
            async with log.reader(topic, {0: 0}) as reader:
                await reader.next_batch(1, 1)
        kafka.proxy.heal()
        await until_stored(log, topic, b"after")
        await until(lambda: answers(log, topic))
        assert await values_in(log, topic) == [b"before", b"after"]
        assert (await log.committed("cut", topic))[0].position == 1

    kafka.run(main)


def test_an_acknowledgement_lost_after_storing_is_unknown_at_ack_leader(kafka):
    async def main(log, topic):
        rule = kafka.harm(Api.PRODUCE, Harm.LOSE_ANSWER, holding=topic.encode())
        outcomes = await log.append(topic, 0, batch(b"a", b"b"), Ack.LEADER)
        assert kinds(outcomes) == ["UnknownRecord"] * 2
        assert rule.struck == 1
        assert await values_in(log, topic) == [b"a", b"b"]

    kafka.run(main)


def test_an_acknowledgement_lost_after_storing_is_found_again_at_ack_all(kafka):
    async def main(log, topic):
        rule = kafka.harm(Api.PRODUCE, Harm.LOSE_ANSWER, holding=topic.encode())
        outcomes = await log.append(topic, 0, batch(b"a", b"b"), Ack.ALL)
        assert outcomes == [Stored(0), Stored(1)]
        assert rule.struck == 1
        assert await values_in(log, topic) == [b"a", b"b"]

    kafka.run(main)


def test_acknowledgements_lost_for_good_are_unknown_at_ack_all_and_stored_once(kafka):
    async def main(log, topic):
        kafka.harm(Api.PRODUCE, Harm.LOSE_ANSWER, times=1_000, holding=topic.encode())
        assert kinds(await log.append(topic, 0, batch(b"a"), Ack.ALL)) == ["UnknownRecord"]
        kafka.proxy.heal()
        assert await values_in(log, topic) == [b"a"]

    kafka.run(main)


def test_of_a_batch_of_several_requests_only_a_prefix_is_stored(kafka):
    large = bytes(400_000)

    async def main(log, topic):
        # Two records fit into a request; the broker never gets the second one.
        kafka.harm(Api.PRODUCE, Harm.CLOSE_BEFORE, skip=1, times=1_000, holding=topic.encode())
        outcomes = await log.append(topic, 0, batch(*[large] * 6), Ack.ALL)
        # It was sent, so nobody knows; the third is not sent after it.
        assert kinds(outcomes) == [
            *["Stored"] * 2,
            *["UnknownRecord"] * 2,
            *["UnavailableRecord"] * 2,
        ]
        kafka.proxy.heal()
        assert len(await read_all(log, topic)) == 2

    kafka.run(main)


@pytest.mark.parametrize("ack", [Ack.ALL, Ack.LEADER])
def test_a_request_whose_caller_has_given_up_is_stored_late(kafka, ack):
    async def main(log, topic):
        rule = kafka.harm(Api.PRODUCE, Harm.HOLD, holding=topic.encode())
        assert kinds(await log.append(topic, 0, batch(b"late"), ack)) == ["UnknownRecord"]
        assert rule.struck == 1
        assert kinds(await log.append(topic, 0, batch(b"later"), ack)) == ["Stored"]
        assert await values_in(log, topic) == [b"later"]
        kafka.proxy.do(kafka.link.release)

        async def has_both():
            return len(await read_all(log, topic)) == 2

        # The late one comes behind what was appended after it: order is lost, nothing else.
        await until(has_both)
        assert await values_in(log, topic) == [b"later", b"late"]
        assert kinds(await log.append(topic, 0, batch(b"last"), ack)) == ["Stored"]

    kafka.run(main)


def test_a_request_that_a_cancelled_caller_has_sent_is_stored_late(kafka):
    async def main(log, topic):
        rule = kafka.harm(Api.PRODUCE, Harm.HOLD, holding=topic.encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.append, topic, 0, batch(b"late"), Ack.ALL)
            await until(lambda: rule.struck == 1)
            nursery.cancel_scope.cancel()
        assert kinds(await log.append(topic, 0, batch(b"next"), Ack.ALL)) == ["Stored"]
        kafka.proxy.do(kafka.link.release)

        async def has_both():
            return sorted(await values_in(log, topic)) == [b"late", b"next"]

        await until(has_both)

    kafka.run(main)


@pytest.mark.parametrize("ack", [Ack.ALL, Ack.LEADER])
def test_a_request_that_a_dead_connection_swallowed_is_unknown_and_never_stored(kafka, ack):
    async def main(log, topic):
        await log.append(topic, 0, batch(b"before"), ack)
        kafka.link.requests.is_held = True
        assert kinds(await log.append(topic, 0, batch(b"swallowed"), ack)) == ["UnknownRecord"]
        kafka.proxy.do(kafka.link.cut)
        kafka.proxy.heal()
        await until_stored(log, topic, b"after", ack)
        await until(lambda: answers(log, topic))
        assert await values_in(log, topic) == [b"before", b"after"]

    kafka.run(main)


@pytest.mark.parametrize("ack", [Ack.ALL, Ack.LEADER])
def test_a_stopped_broker_makes_appends_unknown_and_stores_them_when_it_goes_on(kafka, ack):
    async def main(log, topic):
        broker = kafka.cluster.brokers[0]
        await log.append(topic, 0, batch(b"before"), ack)
        broker.pause()
        started_s = trio.current_time()
        assert kinds(await log.append(topic, 0, batch(b"late"), ack)) == ["UnknownRecord"]
        assert trio.current_time() - started_s < 3
        broker.resume()

        await until(lambda: answers(log, topic))

        async def has_both():
            return await values_in(log, topic) == [b"before", b"late"]

        await until(has_both)

    kafka.run(main, request_timeout_ms=10_000)


# Reading and committing.


def test_a_stopped_broker_makes_reads_and_commits_wait_for_the_time_out(kafka):
    async def main(log, topic):
        broker = kafka.cluster.brokers[0]
        await log.append(topic, 0, batch(b"a"), Ack.ALL)
        await log.commit("stopped", topic, {0: Commit(1)})
        broker.pause()
        for ask in (
            lambda: log.positions(topic, LATEST),
            lambda: log.committed("stopped", topic),
            lambda: log.commit("stopped", topic, {0: Commit(0)}),
        ):
            with trio.fail_after(5), pytest.raises(LogUnavailable):
                await ask()
        broker.resume()

        await until(lambda: answers(log, topic))
        assert await values_in(log, topic) == [b"a"]

    kafka.run(main)


def test_a_former_owners_lower_commit_overwrites_the_owners(kafka):
    topic = kafka.new_topic()

    async def main(former, owner):
        await former.topics.create(topic, TopicSettings())
        await owner.commit("stale", topic, {0: Commit(10, "owner")})
        await former.commit("stale", topic, {0: Commit(7, "former")})
        assert await owner.committed("stale", topic) == {0: Commit(7, "former")}

    on_kafka(main, kafka.servers, kafka.servers)


def test_create_times_may_go_back_and_a_time_leads_to_the_first_record_at_or_above_it(kafka):
    """A broker's own clock cannot be stepped here, so backward LogAppendTime is not shown."""

    async def main(log, topic):
        for timestamp_ms in (5_000, 9_000, 2_000, 7_000):
            outcomes = await log.append(topic, 0, batch(b"x", timestamp_ms=timestamp_ms), Ack.ALL)
            assert kinds(outcomes) == ["Stored"]
        assert [r.timestamp_ms for r in await read_all(log, topic)] == [5_000, 9_000, 2_000, 7_000]
        expected = {1_000: 0, 5_000: 0, 6_000: 1, 9_000: 1, 9_001: 4}
        found = {at: (await log.positions(topic, at))[0] for at in expected}
        assert found == expected

    kafka.run(main)


def test_retention_that_passes_a_position_is_out_of_range_until_the_reader_seeks(kafka):
    async def main(log, topic):
        await log.append(topic, 0, batch(b"a", b"b", b"c"), Ack.ALL)
        async with log.reader(topic, {0: 0}) as reader:
            assert [r.value for r in await reader.next_batch(1, 1)] == [b"a"]
            await delete_below(kafka, topic, 2)
            async with log.reader(topic, {0: 1}) as late:
                with pytest.raises(OffsetOutOfRange) as failure:
                    await late.next_batch(1, 1)
                assert (failure.value.position, failure.value.start) == (1, 2)
                late.seek(0, failure.value.start)
                assert [r.value for r in await late.next_batch(1, 1)] == [b"c"]
        assert await log.positions(topic, EARLIEST) == {0: 2}
        # Offsets are never given again.
        assert await log.append(topic, 0, batch(b"d"), Ack.ALL) == [Stored(3)]

    kafka.run(main)


# Producers.


def test_a_refusal_poisons_an_idempotent_producer_of_a_client_library_and_not_ours(kafka):
    theirs, ours = kafka.new_topic(), kafka.new_topic()

    async def main(log):
        for topic in (theirs, ours):
            await log.topics.create(topic, TopicSettings())
        assert kinds(await log.append(ours, 0, batch(b"small"), Ack.ALL)) == ["Stored"]
        # Ours refuses by itself what is above the limit that it knows, so the limit is lowered.
        for topic in (theirs, ours):
            await administer(kafka, topic, {"max.message.bytes": "1000"})

        async with idempotent_producer(kafka) as send:
            await send(theirs, b"small")
            with pytest.raises(MessageSizeTooLargeError):
                await send(theirs, bytes(5_000))
            stored = False
            with trio.move_on_after(3), contextlib.suppress(OutOfOrderSequenceNumber):
                await send(theirs, b"small again")
                stored = True
            assert not stored
        assert await values_in(log, theirs) == [b"small"]

        (refused,) = await log.append(ours, 0, batch(bytes(5_000)), Ack.ALL)
        assert isinstance(refused, RefusedRecord)
        assert "MESSAGE_TOO_LARGE" in refused.reason
        for value in (b"small again", b"and again"):
            assert kinds(await log.append(ours, 0, batch(value), Ack.ALL)) == ["Stored"]
        assert await values_in(log, ours) == [b"small", b"small again", b"and again"]

    on_kafka(main, kafka.servers)


@asynccontextmanager
async def idempotent_producer(kafka: Proxied):
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.servers, enable_idempotence=True, request_timeout_ms=5_000
    )
    await guest.call(producer.start)
    try:
        yield lambda topic, value: guest.call(producer.send_and_wait, topic, value, None, 0)
    finally:
        # A poisoned producer tries to flush for as long as it is let.
        with trio.move_on_after(2):
            await guest.call(producer.stop)
        await guest.call(producer.client.close)


# What tests do to the cluster, or wait for.


async def until_stored(log, topic: str, value: bytes, ack: Ack = Ack.ALL) -> None:
    """The record is stored once; certainly not stored is tried again."""
    while True:
        (outcome,) = await log.append(topic, 0, batch(value), ack)
        if isinstance(outcome, Stored):
            return
        assert isinstance(outcome, UnavailableRecord), outcome
        await trio.sleep(0.05)


async def answers(log, topic: str) -> bool:
    try:
        await log.positions(topic, LATEST)
    except LogUnavailable:
        return False
    return True


async def administer(kafka: Proxied, topic: str, configs: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.servers)
    await guest.call(admin.start)
    try:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)
        await guest.call(admin.alter_configs, [resource])
    finally:
        await guest.call(admin.close)


async def delete_below(kafka: Proxied, topic: str, offset: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.servers)
    await guest.call(admin.start)
    try:
        which = {TopicPartition(topic, 0): RecordsToDelete(before_offset=offset)}
        await guest.call(admin.delete_records, which)
    finally:
        await guest.call(admin.close)
