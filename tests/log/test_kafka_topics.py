"""Topics of a real Kafka, as an operator would find them."""

import pytest
import trio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from hermes_actors.log.base import EARLIEST, LATEST, Commit, LogUnavailable, TopicSettings
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock

pytestmark = pytest.mark.kafka


async def configs_of(servers, topic):
    """What Kafka itself says of a topic's configuration."""

    async def ask():
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            (answer,) = await admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)]
            )
        finally:
            await admin.close()
        return {name: value for name, value, *_ in answer.resources[0][4]}

    return await guest.call(ask)


async def test_a_topic_has_the_safe_settings_and_keeps_what_an_operator_set(
    kafka_cluster, open_log, fresh
):
    topic, servers = fresh("t"), kafka_cluster.bootstrap_servers
    async with open_log(servers) as log:
        await log.topics.create(topic, TopicSettings(2, 60_000, 5_000, True))
        found = await configs_of(servers, topic)
        assert found["unclean.leader.election.enable"] == "false"
        assert found["min.insync.replicas"] == "1"
        assert found["cleanup.policy"] == "delete"
        assert found["retention.ms"] == "60000"
        assert found["segment.ms"] == "60000"
        assert found["message.timestamp.type"] == "LogAppendTime"
        assert 5_000 < int(found["max.message.bytes"]) < 10_000
        await log.topics.alter(topic, TopicSettings(2, None, 7_000))
        found = await configs_of(servers, topic)
        assert found["unclean.leader.election.enable"] == "false"
        assert found["retention.ms"] == found["retention.bytes"] == "-1"
        assert found["message.timestamp.type"] == "CreateTime"


async def test_more_replicas_than_brokers_are_refused_with_the_way_out(
    kafka_cluster, open_log, fresh
):
    async with open_log(kafka_cluster.bootstrap_servers, replication_factor=3) as log:
        with pytest.raises(LogUnavailable, match=r"kafka\.replication_factor is 3 .* at most"):
            await log.topics.create(fresh("t"), TopicSettings())


async def test_a_name_that_kafka_does_not_take_is_refused(kafka_cluster, open_log):
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        with pytest.raises(ValueError, match="Kafka does not accept it"):
            await log.topics.create("no spaces", TopicSettings())
        assert await log.topics.describe("no spaces") is None
        assert not await log.topics.delete("no spaces")


async def test_kafkas_own_topics_are_not_listed(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        await log.commit(fresh("g"), topic, {0: Commit(1)})
        names = await log.topics.names()
        assert topic in names
        assert "__consumer_offsets" not in names


async def test_many_topics_created_at_once_are_all_usable(kafka_cluster, open_log, fresh):
    names = [fresh(f"t{n}") for n in range(40)]
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(log.topics.create, name, TopicSettings())
        for name in names:
            assert await log.positions(name, LATEST) == {0: 0}
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(log.topics.delete, name)
        assert not set(names) & set(await log.topics.names())


async def test_changes_by_another_node_are_seen_within_a_second(kafka_cluster, open_log, fresh):
    topic, servers = fresh("t"), kafka_cluster.bootstrap_servers
    async with open_log(servers) as log, open_log(servers) as other:
        assert await log.topics.create(topic, TopicSettings())
        assert not await other.topics.create(topic, TopicSettings(partitions=5))
        assert await log.topics.describe(topic) == TopicSettings()
        await other.topics.alter(topic, TopicSettings(partitions=2))
        await until_described(log, topic, TopicSettings(partitions=2))
        await other.topics.delete(topic)
        await until_described(log, topic, None)


async def until_described(log, topic, settings):
    with trio.fail_after(10):
        while True:
            if await log.topics.describe(topic) == settings:
                return
            await trio.sleep(0.05)


async def test_of_two_names_that_kafka_takes_for_one_the_second_is_refused(
    kafka_cluster, open_log, fresh
):
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(fresh("a.b_c"), TopicSettings())
        with pytest.raises(ValueError, match="collides with existing topic"):
            await log.topics.create(fresh("a_b.c"), TopicSettings())


async def test_a_cluster_that_compacts_and_bounds_its_topics_does_neither_with_ours(
    make_kafka_cluster, open_log, caplog
):
    settings = {"log.cleanup.policy": "compact", "log.retention.bytes": "1048576"}
    cluster = await trio.to_thread.run_sync(lambda: make_kafka_cluster(settings=settings))
    servers = cluster.bootstrap_servers
    async with open_log(servers) as log:
        await log.topics.create("kept", TopicSettings(1, None))
        await log.topics.create("expiring", TopicSettings(1, 60_000))
        await log.topics.alter("expiring", TopicSettings(1, None))
        for topic in ("kept", "expiring"):
            found = await configs_of(servers, topic)
            assert found["cleanup.policy"] == "delete"
            assert found["retention.ms"] == found["retention.bytes"] == "-1"
        assert not caplog.records

        # What somebody else created is as the cluster's defaults are, and that is told, once.
        await create_as_the_cluster_does(servers, "made-by-hand")
        for _ in range(2):
            await log.topics.describe("made-by-hand")
            await trio.sleep(1.1)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "topic made-by-hand in Kafka of dc1 deletes messages too early" in told
    assert "--entity-name made-by-hand --add-config cleanup.policy=delete" in told


async def create_as_the_cluster_does(servers, topic):
    async def create():
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 1, 1)])
        finally:
            await admin.close()

    await guest.call(create)


@pytest.mark.slow
async def test_a_busy_topic_of_short_retention_loses_what_has_expired(make_kafka_cluster, open_log):
    settings = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100"}
    cluster = await trio.to_thread.run_sync(lambda: make_kafka_cluster(settings=settings))
    now_ms = SystemClock().now_ms()
    async with open_log(cluster.bootstrap_servers) as log:
        await log.topics.create("t", TopicSettings(1, 120_000))
        for age_ms in (400_000, 300_000, 0):
            await log.append("t", 0, [Record(None, b"v", (), now_ms - age_ms)], Ack.ALL)
        with trio.fail_after(60):
            while await log.positions("t", EARLIEST) != {0: 2}:  # noqa: ASYNC110
                await trio.sleep(0.2)


async def test_a_partition_that_another_client_added_is_known_within_seconds(
    kafka_cluster, open_log, fresh
):
    topic, servers = fresh("t"), kafka_cluster.bootstrap_servers
    async with open_log(servers) as log, open_log(servers) as other:
        await log.topics.create(topic, TopicSettings())
        assert await log.positions(topic, LATEST) == {0: 0}
        await other.topics.alter(topic, TopicSettings(partitions=2))
        with trio.fail_after(10):
            while await log.positions(topic, LATEST) != {0: 0, 1: 0}:  # noqa: ASYNC110
                await trio.sleep(0.5)


async def test_a_second_copy_is_refused_where_a_topic_has_one_replica(
    kafka_cluster, open_log, fresh
):
    topic, other = fresh("t"), fresh("other")
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings())
        with pytest.raises(ValueError, match=r"replication factor is 1.*kafka\.replication_factor"):
            await log.topics.create(other, TopicSettings(copies_min=2))
        with pytest.raises(ValueError, match="replication factor is 1"):
            await log.topics.alter(topic, TopicSettings(copies_min=2))
        assert await log.topics.describe(topic) == TopicSettings()
        assert await log.topics.describe(other) is None
