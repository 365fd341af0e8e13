"""Commits of many groups to a real Kafka, and what its rarer answers become."""

import asyncio  # noqa: TID251 -- Groups live on the host loop
from types import SimpleNamespace

import aiokafka.errors as kafka_errors
import pytest
import trio
from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.coordination import FindCoordinatorRequest

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import Commit, LogUnavailable, TopicSettings, UnknownTopic
from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.groups import GroupOffsets
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import system_rng


@pytest.mark.kafka
async def test_hundreds_of_groups_commit_at_once(kafka_cluster, open_log, fresh):
    topic = fresh("t")
    groups = {fresh(f"g{n}"): {0: Commit(n), 2: Commit(n + 1, f"m{n}")} for n in range(300)}
    async with open_log(kafka_cluster.bootstrap_servers) as log:
        await log.topics.create(topic, TopicSettings(partitions=3))
        async with trio.open_nursery() as nursery:
            for group, commits in groups.items():
                nursery.start_soon(log.commit, group, topic, commits)
        for group, commits in groups.items():
            assert await log.committed(group, topic) == commits


@pytest.mark.kafka
async def test_a_group_with_a_member_of_its_own_is_named_as_the_trouble(
    kafka_cluster, open_log, fresh
):
    topic, group, servers = fresh("t"), fresh("g"), kafka_cluster.bootstrap_servers
    async with open_log(servers, request_timeout_ms=5_000) as log:
        await log.topics.create(topic, TopicSettings())

        async def join():
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=group)
            await consumer.start()
            return consumer

        consumer = await guest.call(join)
        try:
            with pytest.raises(LogUnavailable, match="another consumer is a member"):
                await log.commit(group, topic, {0: Commit(1)})
        finally:
            await guest.call(consumer.stop)
        await log.commit(group, topic, {0: Commit(2)})
        assert await log.committed(group, topic) == {0: Commit(2)}


@pytest.mark.kafka
async def test_commits_go_with_a_topic_that_another_node_deleted(kafka_cluster, open_log, fresh):
    topic, group, servers = fresh("t"), fresh("g"), kafka_cluster.bootstrap_servers
    async with open_log(servers) as log, open_log(servers) as other:
        await log.topics.create(topic, TopicSettings())
        await log.commit(group, topic, {0: Commit(1)})
        await other.topics.delete(topic)
        with pytest.raises(UnknownTopic):
            await log.commit(group, topic, {0: Commit(2)})
        assert await log.committed(group, topic) == {}
        await other.topics.create(topic, TopicSettings())
        assert await log.committed(group, topic) == {}


class ScriptedBrokers(Brokers):
    """Answers as told: for each request to a coordinator the next of `codes`, by partition."""

    def __init__(self, codes):
        cluster = KafkaClusterConfig(["127.0.0.1:1"])
        settings = KafkaConfig(request_timeout_ms=500, reconnect_backoff_ms=1)
        super().__init__(KafkaCluster("dc1", cluster, settings), system_rng())
        self.codes = list(codes)
        self.lookups = 0

    async def leaders(self, topic, *, age_max_s=0):
        return {0: 1, 1: 1}

    async def ask_any(self, request, *, purpose):
        assert isinstance(request, FindCoordinatorRequest)
        self.lookups += 1
        return SimpleNamespace(error_code=0, coordinator_id=1)

    async def ask(self, request, *, node, purpose):
        codes = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return SimpleNamespace(topics=[("t", list(codes.items()))])


def commit(brokers):
    asyncio.run(GroupOffsets(brokers).commit("g", "t", {0: Commit(5), 1: Commit(6)}))


def test_a_coordinator_that_moved_is_looked_up_again():
    moved = kafka_errors.NotCoordinatorForGroupError.errno
    brokers = ScriptedBrokers([{0: moved, 1: moved}, {0: 0, 1: 0}])
    commit(brokers)
    assert brokers.lookups == 2


def test_a_coordinator_that_still_loads_is_asked_again():
    loads = kafka_errors.GroupLoadInProgressError.errno
    brokers = ScriptedBrokers([{0: loads, 1: loads}, {0: 0, 1: 0}])
    commit(brokers)
    assert brokers.lookups == 1


def test_a_coordinator_that_never_comes_back_is_unavailable_within_the_time_out():
    moved = kafka_errors.NotCoordinatorForGroupError.errno
    with pytest.raises(LogUnavailable, match="commit of g in t was not stored: Kafka of dc1"):
        commit(ScriptedBrokers([{0: moved, 1: moved}]))


def test_a_commit_that_was_stored_in_part_says_so():
    too_large = kafka_errors.OffsetMetadataTooLargeError.errno
    with pytest.raises(LogUnavailable, match=r"stored in part: partitions \[0\] have it, \[1\]"):
        commit(ScriptedBrokers([{0: 0, 1: too_large}]))
