"""Looks at one Kafka cluster from outside: which brokers can be used, and whether all is in sync.

For the host loop. Nothing is created or changed.
"""

import asyncio
import random

from aiokafka.errors import KafkaError
from msgspec import Struct

from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.runtime.clock import system_rng

# aiokafka asserts what it does not expect of a broker's log-in.
_FAILURES = (KafkaError, OSError, AssertionError, ValueError)


class ClusterSeen(Struct, frozen=True):
    """The addresses that are configured and those that brokers advertise, each with the reason why
    it cannot be used ("" when it can); and how many of the partitions have too few replicas in sync
    for `kafka.min_insync_replicas`, or no leader.
    """

    servers: dict[str, str]
    brokers: dict[str, str] = {}
    partitions: int = 0
    short: int = 0


async def survey(connection: KafkaCluster) -> ClusterSeen:
    """Look at the cluster, and close the connection. Raises LogUnavailable."""
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
