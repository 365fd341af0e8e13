"""Checks one datacentre's Kafka: brokers, the topics of hermes, and the clocks of its nodes."""

from collections.abc import Iterator, Mapping

import msgspec
import trio

from hermes_actors.cli.doctor.findings import FAIL, OK, WARN, Finding, finding
from hermes_actors.config import Config
from hermes_actors.log.base import Log
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.log.kafka.survey import ClusterSeen, survey
from hermes_actors.model.moments import span
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import Clock
from hermes_actors.status import record

_OURS = "this machine"
_LISTEN_S = 1.5
"""A node reports its status once a second."""
_RECENT_RECORDS = 50


async def look_at_kafka(config: Config, dc: str, clock: Clock, timeout_s: float) -> list[Finding]:
    """Check one cluster. Raises HermesError."""
    cluster = config.kafka.clusters[dc]
    timeout_ms = min(config.kafka.request_timeout_ms, round(1_000 * timeout_s / 3))
    settings = msgspec.structs.replace(config.kafka, request_timeout_ms=timeout_ms)
    seen = await guest.call(survey, KafkaCluster(dc, cluster, settings))
    found = list(judge_cluster(f"Kafka of {dc}", seen, settings.replication_factor))
    if not seen.brokers:
        return found
    async with open_kafka_log(dc, cluster, settings, clock) as log:
        for topic in await log.topics.names():
            if topic.startswith("_hermes."):
                # Logs a warning for settings that lose records.
                await log.topics.describe(topic)
            if topic == record.STATUS_TOPIC:
                behind = await _compare_clocks(log, clock)
                found += judge_clocks(dc, behind, config.consumers.clock_skew_max_ms)
    return found


def judge_cluster(about: str, seen: ClusterSeen, wanted: int) -> Iterator[Finding]:
    """Judge whether a cluster can be used; `wanted` is kafka.replication_factor."""
    grade = FAIL if all(seen.servers.values()) else WARN
    for address, trouble in seen.servers.items():
        if trouble:
            text = trouble if ";" in trouble else f"{trouble}; start it, or fix kafka.clusters"
            yield finding(grade, "kafka", f"{about}, {address}", text)
    for address, trouble in seen.brokers.items():
        if trouble:
            yield finding(
                FAIL,
                "kafka",
                f"{about}, {address}",
                f"a broker advertises this address, which cannot be used: {trouble}; start the "
                "broker, or fix its advertised.listeners",
            )
    if seen.brokers:
        text = f"{len(seen.brokers)} brokers, kafka.replication_factor is {wanted}"
        if len(seen.brokers) >= wanted:
            yield finding(OK, "kafka", about, text)
        else:
            yield finding(FAIL, "kafka", about, f"{text}; start more brokers, or lower it")
    if seen.short:
        text = f"{seen.short} of {seen.partitions} partitions have too few replicas in sync"
        yield finding(WARN, "kafka", about, f"{text}; start the brokers that are down")


async def _compare_clocks(log: Log, clock: Clock) -> dict[str, int]:
    """Node → milliseconds by which its clock is behind the log's, from the status records."""
    behind: dict[str, int] = {}
    start, end = await log.bounds(record.STATUS_TOPIC, 0)
    begin = max(start, end - _RECENT_RECORDS)
    async with log.reader(record.STATUS_TOPIC, {0: begin}) as reader:
        with trio.move_on_after(_LISTEN_S):
            while True:
                for stored in await reader.next_batch(_RECENT_RECORDS, 4_194_304):
                    header = record.decode(stored.value).header
                    behind[f"node {header.node}"] = stored.timestamp_ms - header.written_at_ms
                    if stored.offset >= end:
                        behind[_OURS] = stored.timestamp_ms - clock.now_ms()
    return behind


def judge_clocks(dc: str, behind: Mapping[str, int], limit_ms: int) -> Iterator[Finding]:
    """Judge whether clocks agree with the log's; `behind` is in milliseconds."""
    about = f"log of {dc}"
    limit = f"{span(limit_ms / 1_000)} (consumers.clock_skew_max_ms)"
    wrong = {whose: ms for whose, ms in behind.items() if abs(ms) > limit_ms}
    for whose, ms in wrong.items():
        seen = f"is {span(abs(ms) / 1_000)} {'behind' if ms > 0 else 'ahead'}, more than {limit}"
        text = f"{seen}; use the same time servers on all machines"
        yield finding(FAIL, "clock", f"{about}, {whose}", text)
    if _OURS not in behind:
        yield finding(OK, "clock", about, f"not compared with {_OURS}: no node reports now")
    elif not wrong:
        yield finding(OK, "clock", about, f"{len(behind)} clocks agree within {limit}")
