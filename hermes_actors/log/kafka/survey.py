"""Checks one Kafka cluster: which brokers can be reached, and which partitions are out of sync.

For the host loop. Creates and changes nothing.
"""

import asyncio
import random

from aiokafka.errors import KafkaError
from msgspec import Struct

from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.runtime.clock import system_rng

# aiokafka's log-in raises AssertionError for unexpected answers.
_FAILURES = (KafkaError, OSError, AssertionError, ValueError)


class ClusterSeen(Struct, frozen=True):
    """The state of a cluster.

    `servers` are the configured addresses and `brokers` the advertised ones, each with the reason
    why it cannot be used (empty string if it can). `short` is how many of the `partitions` have no
    leader, or fewer replicas in sync than `kafka.min_insync_replicas`.
    """

    servers: dict[str, str]
    brokers: dict[str, str] = {}
    partitions: int = 0
    short: int = 0


async def survey(connection: KafkaCluster) -> ClusterSeen:
    """Check the cluster, and close `connection`. Raises LogUnavailable."""
    brokers = Brokers(connection, random.Random(system_rng().random()))  # noqa: S311 -- jitter
    try:
        servers = await _troubles(connection, connection.bootstrap_servers)
        if all(servers.values()):
            return ClusterSeen(servers)
        topics = await brokers.persist(
            "the cluster cannot be described", lambda: brokers.describe(None)
        )
        addresses = [f"{host}:{port}" for host, port in brokers.addresses.values()]
        partitions = [each for _, _, _, listed in topics for each in listed]
        least = connection.settings.min_insync_replicas
        short = sum(leader < 0 or len(ins) < least for _, _, leader, _, ins, *_ in partitions)
        advertised = await _troubles(connection, addresses)
        return ClusterSeen(servers, advertised, len(partitions), short)
    finally:
        await brokers.close()
        await connection.close()


async def _troubles(connection: KafkaCluster, addresses: list[str]) -> dict[str, str]:
    found = await asyncio.gather(*(_trouble(connection, each) for each in addresses))
    return dict(zip(addresses, found, strict=True))


async def _trouble(connection: KafkaCluster, address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        session = await connection.connect(host.strip("[]"), int(port), "doctor")
    except _FAILURES as error:
        return connection.explain(error, address).partition(f"{address}: ")[2]
    session.close()
    return ""
