"""How fast one node publishes to a real Kafka, beside what the clients alone do in the same run.

    python benchmarks/publish_kafka.py [--seconds 4] [--json] [--servers granian,hypercorn]
                                       [--connections 1,32,64] [--bytes 1024] [--ack LEADER]

Starts a Kafka and a `hermes node` as processes of their own, on loopback; both end with the run.
First the floors: aiokafka and librdkafka with one record in flight and with many, in this
process. Then the load of publish.py against the node. CPU and memory are the node's. At last the
time from the start of a node to its first answer to a publish.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import uvloop
from aiokafka import AIOKafkaProducer

from hermes_local.kafka import FULL_SPEED, Cluster
from hermes_local.ports import free_ports
from publish import TOPIC, run_load

PARTITIONS = 10
FLOOR_BATCH = 500
STARTS = 5


def percentiles(latencies_s: list[float]) -> dict[str, Any]:
    """Of what was measured one by one."""
    ordered = sorted(latencies_s)
    return {
        "messages_per_s": round(len(ordered) / sum(ordered)),
        "p50_ms": round(ordered[len(ordered) // 2] * 1_000, 3),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1_000, 3),
    }


# The floors.


async def aiokafka_floor(servers: str, topic: str, value: bytes, seconds: float) -> dict[str, Any]:
    """One record in flight, then batches to every partition, one in flight for each."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks=1, max_batch_size=1_000_000)
    await producer.start()
    try:
        latencies: list[float] = []
        end_s = time.perf_counter() + seconds
        while (start_s := time.perf_counter()) < end_s:
            await producer.send_and_wait(topic, value, partition=0)
            latencies.append(time.perf_counter() - start_s)
        sent = 0

        async def flood(partition: int) -> None:
            nonlocal sent
            while time.perf_counter() < end_s:
                batch = producer.create_batch()
                while (
                    batch.record_count() < FLOOR_BATCH
                    and batch.append(key=None, value=value, timestamp=None) is not None
                ):
                    pass
                count = batch.record_count()
                await (await producer.send_batch(batch, topic, partition=partition))
                sent += count

        start_s = time.perf_counter()
        end_s = start_s + seconds
        await asyncio.gather(*(flood(partition) for partition in range(PARTITIONS)))
        batched = round(sent / (time.perf_counter() - start_s))
        return {"one_in_flight": percentiles(latencies[20:]), "batched_per_s": batched}
    finally:
        await producer.stop()


def librdkafka_floor(servers: str, topic: str, value: bytes, seconds: float) -> dict[str, Any]:
    """The same with librdkafka."""
    settings = {"bootstrap.servers": servers, "acks": 1, "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    latencies: list[float] = []
    end_s = time.perf_counter() + seconds
    while (start_s := time.perf_counter()) < end_s:
        producer.produce(topic, value, partition=0)
        producer.flush()
        latencies.append(time.perf_counter() - start_s)
    sent = 0
    start_s = time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        try:
            producer.produce(topic, value, partition=sent % PARTITIONS)
            sent += 1
        except BufferError:
            producer.poll(0.01)
        if sent % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    batched = round(sent / (time.perf_counter() - start_s))
    return {"one_in_flight": percentiles(latencies[20:]), "batched_per_s": batched}


# The node.


class Node:
    """A `hermes node` with all roles, over the given Kafka."""

    def __init__(self, servers: str, server: str, ports: list[int]) -> None:
        self.publish_port, self.management_port = ports
        environment = {
            **os.environ,
            "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": servers,
            "HERMES_FRONTEND_SERVER": server,
            "HERMES_FRONTEND_PORT": str(self.publish_port),
            "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "5000",
            "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "5000",
            "HERMES_FRONTEND_MAX_PUBLISH_REQUEST_DURATION_MS": "5000",
            "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
            "HERMES_MANAGEMENT_PORT": str(self.management_port),
            "HERMES_MANAGEMENT_TOPIC_PARTITIONS": str(PARTITIONS),
        }
        self.started_s = time.perf_counter()
        command = [sys.executable, "-m", "hermes_actors.cli", "node", "--json"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_ready(self) -> None:
        """Wait for its line."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"{"), "the node did not start"

    def first_answer(self) -> tuple[int, float]:
        """Status and time since the start of the first publish that is answered at all."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.publish_port, timeout=5)
            try:
                connection.request("POST", f"/topics/{TOPIC}", b'{"first": true}')
                status = connection.getresponse().status
                return status, time.perf_counter() - self.started_s
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.005)
            finally:
                connection.close()

    def create_topic(self, ack: str) -> None:
        """bench.orders, on the first node of a run."""
        owner = {"source": "Plaintext", "id": "bench"}
        topic = {"name": TOPIC, "description": "", "owner": owner, "contentType": "JSON"}
        topic |= {"retentionTime": {"duration": 1}, "ack": ack}
        self.post("/groups", {"groupName": TOPIC.partition(".")[0]})
        self.post("/topics", topic)

    def memory_mib(self) -> float:
        """Resident memory, as the system counts it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return round(int(line.split()[1]) / 1_024, 1)

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Create something through the management API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.management_port, timeout=15)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        connection.close()


def measure(servers: str, asked: argparse.Namespace) -> dict[str, Any]:
    """All figures of one run."""
    sizes = list(map(int, asked.bytes.split(",")))
    seconds: float = asked.seconds
    floors, rows = [], []
    http_servers = asked.servers.split(",")
    with Node(servers, http_servers[0], free_ports(2)) as node:
        node.wait_ready()
        node.create_topic(asked.ack)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for size in sizes:
            value = random.Random(1).randbytes(size // 2).hex().encode()
            floors.append(
                {
                    "bytes": size,
                    "aiokafka": runner.run(aiokafka_floor(servers, TOPIC, value, seconds)),
                    "librdkafka": librdkafka_floor(servers, TOPIC, value, seconds),
                }
            )
        for http_server in http_servers:
            for size in sizes:
                for connections in map(int, asked.connections.split(",")):
                    with Node(servers, http_server, free_ports(2)) as node:
                        node.wait_ready()
                        port, pid = node.publish_port, node.process.pid
                        figures = runner.run(run_load(port, pid, connections, size, seconds))
                        memory = node.memory_mib()
                    row = {"server": http_server, "connections": connections, "bytes": size}
                    rows.append({**row, **figures, "memory_mib": memory})
    starts = []
    for http_server in http_servers:
        for _ in range(STARTS):
            with Node(servers, http_server, free_ports(2)) as node:
                status, took_s = node.first_answer()
            starts.append({"server": http_server, "status": status, "seconds": round(took_s, 2)})
    return {"floors": floors, "rows": rows, "starts": starts}


def show(results: dict[str, Any]) -> None:
    """As a table: ours beside the floors."""
    for floor in results["floors"]:
        for client in ("aiokafka", "librdkafka"):
            one = floor[client]["one_in_flight"]
            print(
                f"{client:10} {floor['bytes']} bytes: one in flight p50 {one['p50_ms']} ms, "
                f"p99 {one['p99_ms']} ms; batched {floor[client]['batched_per_s']}/s"
            )
    print(
        "server     conns bytes    msg/s  p50 ms  p99 ms  CPU µs    MiB   minus aiokafka p50 / p99"
    )
    by_size = {floor["bytes"]: floor["aiokafka"]["one_in_flight"] for floor in results["floors"]}
    for row in results["rows"]:
        floor = by_size[row["bytes"]]
        added = ""
        if row["connections"] == 1:
            p50, p99 = (round(row[key] - floor[key], 2) for key in ("p50_ms", "p99_ms"))
            added = f"{p50:+} / {p99:+} ms"
        print(
            f"{row['server']:10} {row['connections']:5} {row['bytes']:5} "
            f"{row['messages_per_s']:8} {row['p50_ms']:7} {row['p99_ms']:7} {row['cpu_us']:7} "
            f"{row['memory_mib']:6}   {added}"
            + (f"  ({row['errors']} not 201)" if row["errors"] else "")
        )
    for start in results["starts"]:
        print(
            f"{start['server']:10} start to the first answered publish: {start['seconds']} s, "
            f"status {start['status']}"
        )


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--servers", default="granian,hypercorn")
    parser.add_argument("--connections", default="1,32,64")
    parser.add_argument("--bytes", default="1024")
    parser.add_argument("--ack", default="LEADER", choices=["LEADER", "ALL"])
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hermes-bench-") as directory,
        Cluster(Path(directory), jvm_options=FULL_SPEED) as cluster,
    ):
        results = measure(",".join(cluster.bootstrap_servers), asked)
    if asked.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
