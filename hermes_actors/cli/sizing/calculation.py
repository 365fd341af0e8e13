"""From a load to nodes, disks and Kafka of one datacentre: a pure function of measured figures.

Every role survives the loss of one node. What one node needs is after that loss, at peak.
"""

import re
from bisect import bisect_left
from contextlib import suppress
from math import ceil
from typing import Annotated, Any

from typer import BadParameter, Option

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.sizing import measured
from hermes_actors.cli.sizing.measured import FACTOR, GIB, KIB, MIB, PUBLISH, Publishing
from hermes_actors.config import ConsumersConfig, FrontendConfig, SpoolConfig

NODES_MIN, BROKERS_MIN, PARTITIONS_MIN = 2, 3, 4
REPLICAS_PER_BROKER, BROKER_BYTES_PER_S = 4000, 50 * MIB
"""Rules of thumb, not measured: with more of either a broker is slow to recover."""
FULL = 0.75
"""Disks are planned to be filled to this share."""
SICK = 0.02
"""Share of a node's subscriptions whose endpoints are down at once, with full buffers."""
CONNECTIONS = 1000
"""Open connections of publishers to one frontend."""

_CONSUMERS, _SPOOL, _MAX = ConsumersConfig(), SpoolConfig(), FrontendConfig().body_bytes_max
_OWNERS = _CONSUMERS.balancer.consumers_per_subscription
_BASE_CORES = FACTOR * measured.BASE_CORES
_UNITS = {"": 1, "b": 1, "kib": KIB, "kb": 1000, "mib": MIB, "mb": 1000**2}


def size_of(text: object) -> float:
    """Return the bytes of a size such as `1KiB`. Raises ValueError or LookupError."""
    number, unit = re.findall(r"^([0-9.]+) *([a-z]*)$", str(text).lower())[0]
    return float(number) * _UNITS[unit]


def _number(about: str, least: float = 0.001, most: float = 1e9, of: Any = float) -> Any:
    def parse(text: object) -> float:
        with suppress(ValueError, LookupError):
            number: float = of(text)
            if least <= number <= most:
                return number
        raise BadParameter(f"{text} is not a number from {least:,g} to {most:,.0f}; give {about}")

    return Option(help=f"{about[0].upper()}{about[1:]}.", parser=parse, metavar="N")


def _count(about: str, least: int = 1) -> Any:
    return _number(about, least, of=int)


def sizing(
    *,
    rate: Annotated[float, _number("messages/s at peak, all datacentres together")],
    size: Annotated[float, _number("a message's size, as 500B or 1KiB", 1, _MAX, size_of)] = KIB,
    topics: Annotated[int, _count("the number of topics")] = 1,
    subscriptions: Annotated[int, _count("the number of subscriptions", 0)] = 0,
    fanout: Annotated[float | None, _number("deliveries of a message, on average", 0)] = None,
    busiest: Annotated[float, _number("percent of all messages in the busiest topic", 0, 100)] = 20,
    datacentres: Annotated[int, _count("the number of datacentres")] = 1,
    one_carries_all: Annotated[
        bool, Option("--one-carries-all", help="Each datacentre can carry the load of all.")
    ] = False,
    publishing: Annotated[
        Publishing, Option(help="HTTP/1.1 requests, batches, or streams of gRPC.")
    ] = "single",
    endpoint_ms: Annotated[float, _number("how long an endpoint takes to answer", 0)] = 50,
    retention_days: Annotated[float, _number("days for which Kafka keeps messages")] = 1,
    replication: Annotated[int, _count("Kafka's replicas of each partition")] = 3,
    spool_hours: Annotated[float, _number("hours without Kafka that spools hold", 0)] = 1,
    headroom: Annotated[float, _number("percent of a core that stays free", 0, 90)] = 40,
) -> dict[str, Any]:
    """Say how many nodes, how much Kafka and which Helm values a load needs. Asks no server.

    Everything is for each datacentre. The figures behind it are measured (docs/sizing.md).
    Without --fanout each message is delivered to all subscriptions of its topic.
    """
    fanout = subscriptions / topics if fanout is None else fanout
    if fanout > subscriptions:
        raise UsageWrong(f"--fanout: {fanout:g} is more than --subscriptions; raise these")
    published = rate if one_carries_all else rate / datacentres
    delivered, usable = published * fanout, 1 - headroom / 100 - _BASE_CORES
    topics_bytes = topics * measured.TOPIC_BYTES

    def publish_cores(on: int) -> float:
        # On a busy node lone messages share requests to Kafka, too.
        lone = min(published, on * topics * measured.LONE_PER_S)
        cores = measured.FIRST_PUBLISH.cores(min(lone, on * measured.FIRST_PER_S), 0)
        cores += PUBLISH[publishing].cores(published, size)
        return cores + measured.LONE_PUBLISH.cores(lone, 0)

    more = bisect_left(range(1, 10**12), True, key=lambda on: publish_cores(on) <= on * usable)
    nodes, cores = NODES_MIN + more, publish_cores(1 + more)
    spooled = ceil(published * spool_hours * 3600 / (nodes - 1))
    spool_bytes = max(_SPOOL.disk_bytes_max, ceil(spooled * (size + measured.ENTRY_BYTES)))
    entries = max(_SPOOL.entries_max, spooled)
    held = CONNECTIONS * measured.CONNECTION_BYTES + entries * measured.SPOOLED_BYTES
    frontend = _row("frontend", nodes, cores, topics_bytes + held, spool_bytes)

    # A node delivers whole partitions, so a busy subscription needs several of them.
    hottest = published * busiest / 100 * min(1, fanout)
    owners = ceil(measured.DELIVER.cores(hottest, size) / usable)
    tasks = subscriptions * _OWNERS
    lone_per_s = min(delivered, tasks * measured.LONE_PER_S)
    cores = measured.DELIVER.cores(delivered, size) + measured.LONE_DELIVER.cores(lone_per_s, 0)
    cores += FACTOR * tasks * measured.TASK_CORES
    least = _nodes(tasks / _CONSUMERS.balancer.tasks_per_node_max, owners)
    nodes = max(least, _nodes(cores / usable))
    own, in_flight = tasks / (nodes - 1), delivered * endpoint_ms / 1000
    full = _CONSUMERS.waiting_retries_max * (size + measured.HELD_BYTES)
    waiting = max(1.0, own * SICK) * min(full, _CONSUMERS.buffered_bytes_max)
    waiting += in_flight / (nodes - 1) * (size + measured.CONNECTION_BYTES)
    waiting += own * measured.TASK_BYTES
    consumers = _row("consumers", nodes, cores, topics_bytes + waiting)
    # With half of the nodes each uses twice the memory, which is its limit.
    frontend["nodesMin"] = frontend["nodes"] // 2 + 1
    consumers["nodesMin"] = max(least, nodes // 2 + 1)
    management = _row("management", NODES_MIN, 0, (topics + subscriptions) * measured.TOPIC_BYTES)

    # A fifth more for dead letters, and the topics of Kafka and Hermes.
    partitions = max(PARTITIONS_MIN, 2 * owners)
    replicas = ceil(1.2 * ((topics - 1) * PARTITIONS_MIN + partitions)) * replication
    record = published * (size + measured.RECORD_BYTES)
    written, read = record * replication, record * (replication - 1 + fanout)
    loads = replicas / REPLICAS_PER_BROKER, max(written, read) / BROKER_BYTES_PER_S
    brokers = max(BROKERS_MIN, replication, _nodes(*loads))
    return {
        "pods": [frontend, consumers, management],
        "publishedPerS": published,
        "deliveredPerS": delivered,
        "inFlight": ceil(in_flight),
        "spoolEntries": entries,
        "spoolBytes": spool_bytes,
        "brokers": brokers,
        "brokerDisk": _gi(written * retention_days * 86_400 / brokers),
        "brokerInMBPerS": round(written / (brokers - 1) / 1e6, 1),
        "brokerOutMBPerS": round(read / (brokers - 1) / 1e6, 1),
        "replicas": replicas,
        "topicPartitions": PARTITIONS_MIN,
        "busiestPartitions": partitions,
        "busiestNodes": max(_OWNERS, owners),
        "busiestInFlight": ceil(hottest * endpoint_ms / 1000 / max(_OWNERS, owners)),
    }


def _nodes(*loads: float) -> int:
    """Return how many nodes each of the loads needs, and one more that may be lost."""
    return max(NODES_MIN, ceil(max(loads)) + 1)


def _gi(filled: float) -> str:
    return f"{ceil(filled / FULL / GIB)}Gi"


def _row(role: str, nodes: int, cores: float, memory: float, disk: float = 0) -> dict[str, Any]:
    """Return what the role uses at peak, and what each of its nodes requests."""
    millis = 1000 * (_BASE_CORES + cores / (nodes - 1))
    mib = (measured.BASE_BYTES + FACTOR * memory) / MIB
    requests = {"cpu": f"{50 * ceil(millis / 50)}m", "memory": f"{64 * ceil(mib / 64)}Mi"}
    disk_size = _gi(disk) if disk else None
    return {"role": role, "nodes": nodes, "cores": cores, **requests, "disk": disk_size}
