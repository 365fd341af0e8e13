"""Measures a node with idle subscriptions on Kafka, compared with as many idle aiokafka consumers.

    python benchmarks/idle_subscriptions.py [--subscriptions 200] [--topics 20] [--seconds 20]

One node with all roles on one broker, first without and then with subscriptions; then as many
aiokafka consumers, each with its own group and 5 s fetch waits, in a separate process. CPU is in
percent of one core over the whole time; memory is resident.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition

from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.kafka import FULL_SPEED, Cluster
from hermes_local.ports import free_ports
from publishing.node import PARTITIONS, Node

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTLE_S = 8.0


def usage(pid: int, seconds: float) -> tuple[float, float]:
    """CPU in percent of a core over the next `seconds`, and resident MiB at their end."""
    before, start_s = _ticks(pid), time.perf_counter()
    time.sleep(seconds)
    percent = (_ticks(pid) - before) / TICKS_PER_S / (time.perf_counter() - start_s) * 100
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return round(percent, 2), round(int(line.split()[1]) / 1_024, 1)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def create(node: Node, topics: int, subscriptions: int) -> None:
    """Create subscriptions spread over topics without publishers."""
    node.post("/groups", {"groupName": "idle"})
    for number in range(topics):
        node.post("/topics", topic_body(f"idle.t{number}"))
    for number in range(subscriptions):
        name = f"idle.t{number % topics}"
        body = subscription_body(name, f"s{number}", "http://127.0.0.1:9/nobody")
        node.post(f"/topics/{name}/subscriptions", body)


async def consume(servers: str, topics: int, consumers: int) -> None:
    """The baseline's process: idle consumers until killed."""
    for number in range(consumers):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=f"baseline-{number}",
            enable_auto_commit=False,
            fetch_max_wait_ms=5_000,
        )
        await consumer.start()
        topic = f"idle.t{number % topics}"
        consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
        asyncio.create_task(consumer.getone()).add_done_callback(print)
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subscriptions", type=int, default=200)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    count = asked.subscriptions
    with (
        tempfile.TemporaryDirectory(prefix="hermes-bench-") as directory,
        Cluster(Path(directory), jvm_options=FULL_SPEED) as cluster,
    ):
        servers = ",".join(cluster.bootstrap_servers)
        with Node(servers, free_ports(2)) as node:
            node.wait_ready()
            time.sleep(SETTLE_S)
            alone = usage(node.process.pid, asked.seconds)
            create(node, asked.topics, count)
            time.sleep(SETTLE_S)
            full = usage(node.process.pid, asked.seconds)
        print(f"{'':40} CPU %  MiB")
        for name, (percent, mib) in (("node alone", alone), (f"with {count}", full)):
            print(f"{name:40} {percent:5}  {mib}")
        command = [sys.executable, __file__, "consume", servers, str(asked.topics), str(count)]
        baseline = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert baseline.stdout is not None
            assert baseline.stdout.readline() == b"ready\n"
            time.sleep(SETTLE_S)
            percent, mib = usage(baseline.pid, asked.seconds)
        finally:
            baseline.kill()
            baseline.wait()
        print(f"{f'{count} aiokafka consumers alone':40} {percent:5}  {mib}")
        added = round(full[0] - alone[0], 2)
        print(f"subscriptions add {added} % of a core, {percent} % for as many aiokafka consumers")


if __name__ == "__main__":
    if sys.argv[1:2] == ["consume"]:
        servers, topics, consumers = sys.argv[2:5]
        uvloop.run(consume(servers, int(topics), int(consumers)))
    else:
        main()
