"""The private names of aiokafka that the log uses mean what it takes them for.

An upgrade of aiokafka that fails here needs `Session` or `KafkaCluster._follow` to follow it
(docs/adr/0005).
"""

import asyncio  # noqa: TID251 -- connections live on the host loop

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.kafka import produce
from hermes_actors.log.kafka.connection import KafkaCluster, client_id
from hermes_actors.runtime import guest


@pytest.mark.kafka
async def test_a_connection_has_the_names_that_are_used_and_answers_what_is_written(
    kafka_cluster,
):
    cluster = KafkaClusterConfig(list(kafka_cluster.bootstrap_servers))
    host, _, port = cluster.bootstrap_servers[0].rpartition(":")

    async def main():
        reached = KafkaCluster("dc1", cluster, KafkaConfig())
        connection = await reached.connect(host, int(port), "test")
        try:
            transport = connection._protocol._transport
            assert not transport.is_closing()
            assert connection._loop is asyncio.get_running_loop()
            assert connection._writer.transport is transport
            assert connection._client_id == client_id("test")
            assert not connection._requests

            # A gap in the ids would be an answer to nobody; our requests and aiokafka's take turns.
            first_id = connection._next_correlation_id()
            assert connection._next_correlation_id() == first_id + 1
            told = []
            nothing = produce.encode(1, 1_000, [])
            connection.ask(
                produce.API_KEY, connection.version(produce.API_KEY, 3, 7), nothing, told.append
            )
            theirs = connection.send(MetadataRequest([], allow_auto_topic_creation=False))
            assert len(connection._requests) == 2
            async with asyncio.timeout(30):
                assert (await theirs).brokers
            assert [produce.decode(each, 7) for each in told] == [{}]
            assert not connection._requests
        finally:
            ended = connection._closed_fut
            connection.close()
        async with asyncio.timeout(30):
            await ended
        with pytest.raises(KafkaConnectionError, match="ended"):
            connection.ask(produce.API_KEY, 7, nothing, told.append)
        await reached.close()

    await guest.call(main)
