"""How fast a node publishes and hands out messages over gRPC, beside HTTP and a bare gRPC server.

    python benchmarks/over_grpc.py [--log embedded|kafka] [--seconds 5] [--drained 20000]

The client is examples/grpc/go, so this needs Go. `main` is the CPU of the thread with the event
loops, in µs per message; `all` is that of the whole process, with gRPC's threads. `live` is the
scenario of the Go "Hermes Broker": one worker, one stream, messages of 7 bytes, one subscriber.
"""

import argparse
import json
import os
import runpy
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from hermes_chaos.wanted import subscription_body
from hermes_local.kafka import FULL_SPEED, Cluster
from hermes_local.ports import free_ports
from publishing.load import Load, Target, run
from publishing.messages import TOPIC, made_up
from publishing.node import Node, Server

ROOT = Path(__file__).resolve().parents[1]
BUILD: Callable[[str, Path], list[str]] = runpy.run_path(str(ROOT / "examples/grpc/build.py"))[
    "build"
]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(path: str) -> float:
    """User and system time of a process or thread."""
    fields = Path(path, "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class Bench:
    """One run: the server, and the table's rows so far."""

    def __init__(self, client: list[str], seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        print(f"{'':34}{'messages/s':>12}{'main µs':>10}{'all µs':>10}{'failed':>9}", flush=True)

    def go(
        self, name: str, server: Server, target: str, *, size: int, frame: int, under_way: int
    ) -> None:
        """Publish with the client in Go; `frame` 0 calls Publish."""
        numbers = map(str, (size, frame, under_way, round(self._seconds)))
        self._row(name, server, lambda: self._run("bench", target, TOPIC, *numbers))

    def drain(self, name: str, server: Server, target: str, subscription: str, count: int) -> None:
        """Receive and acknowledge so many messages with the client in Go."""
        self._row(name, server, lambda: self._run("drain", target, TOPIC, subscription, str(count)))

    def http(
        self, name: str, node: Node, protocol: str, connections: int, size: int, chunk: int
    ) -> None:
        """Publish over HTTP."""
        target = Target(node.publish_port, node.process.pid, protocol, made_up(size), chunk)

        def load() -> dict[str, Any]:
            found = run(Load(target, connections, self._seconds))
            count = found["messages_per_s"] * self._seconds
            return {
                "messages": count,
                "seconds": self._seconds,
                "failed": sum(found["errors"].values()),
            }

        self._row(name, node, load)

    def pull(self, name: str, node: Node, subscription: str, count: int) -> None:
        """Pull and acknowledge so many messages over HTTP."""
        path = (
            f"http://127.0.0.1:{node.management_port}/topics/{TOPIC}/subscriptions/{subscription}"
        )

        def pull() -> dict[str, Any]:
            began_s, found = time.perf_counter(), 0
            with httpx.Client(timeout=60) as client:
                while found < count:
                    answer = client.post(f"{path}/pull", json={"maxMessages": 1_000}).json()
                    ids = [each["ackId"] for each in answer["receivedMessages"]]
                    client.post(f"{path}/ack", json={"ackIds": ids})
                    found += len(ids)
            return {"messages": found, "seconds": time.perf_counter() - began_s, "failed": 0}

        self._row(name, node, pull)

    def live(self, node: Node, target: str) -> None:
        """The Go broker's scenario: a subscriber takes what one stream publishes."""
        subscribe(node, "live")
        for name, frame, under_way in (("1 a frame", 1, 1_000), ("100 a frame", 100, 100)):
            command = [*self._client, "drain", target, TOPIC, "live", str(10**9)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as subscriber:
                self.go(f"live, {name}", node, target, size=7, frame=frame, under_way=under_way)
                subscriber.kill()
            path = f"/topics/{TOPIC}/subscriptions/live/lag"
            lag = httpx.get(f"http://127.0.0.1:{node.management_port}{path}").json()["lag"]
            print(f"{'  of these not acknowledged yet':34}{lag:12,}")

    def _run(self, *arguments: str) -> dict[str, Any]:
        found = subprocess.run(
            [*self._client, *arguments], capture_output=True, text=True, check=False
        )
        if found.returncode:
            raise SystemExit(f"the client failed: {found.stderr}")
        measured: dict[str, Any] = json.loads(found.stdout)
        return measured

    def _row(self, name: str, server: Server, measure: Callable[[], dict[str, Any]]) -> None:
        pid = server.process.pid
        paths = f"/proc/{pid}/task/{pid}", f"/proc/{pid}"
        before = [cpu_s(each) for each in paths]
        found = measure()
        used = [cpu_s(each) - was_s for each, was_s in zip(paths, before, strict=True)]
        count = found["messages"] + found["failed"]
        main_us, all_us = (each / count * 1e6 for each in used)
        rate = found["messages"] / found["seconds"]
        print(f"{name:34}{rate:12,.0f}{main_us:10.1f}{all_us:10.1f}{found['failed']:9}", flush=True)


def main() -> None:
    """Run all rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row")
    parser.add_argument("--drained", type=int, default=20_000, help="messages of each subscriber")
    asked = parser.parse_args()
    if shutil.which("go") is None:
        raise SystemExit("there is no go on the PATH; install it, it builds the client")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-bench-")))
        bench = Bench(BUILD("go", folder), asked.seconds)
        floor(bench)
        servers, log = "", folder / "log"
        if asked.log == "kafka":
            cluster = stack.enter_context(Cluster(folder / "kafka", jvm_options=FULL_SPEED))
            servers = ",".join(cluster.bootstrap_servers)
        log.mkdir()
        port, *ports = free_ports(3)
        variables = {"HERMES_GRPC_ENABLED": "true", "HERMES_GRPC_PORT": str(port)}
        node = Node(servers, ports, None if servers else log, variables)
        with node:
            node.wait_ready()
            node.create_topic("LEADER")
            node.wait_publishable()
            rows(bench, node, f"127.0.0.1:{port}", asked.drained)


def floor(bench: Bench) -> None:
    """The rows of a server of grpcio that does nothing."""
    app = str(Path(__file__).resolve().parent / "publishing" / "empty_grpc.py")
    with Server([app], {}) as server:
        assert server.process.stdout is not None
        target = f"127.0.0.1:{int(server.process.stdout.readline())}"
        bench.go("empty, Publish, 1 caller", server, target, size=1_024, frame=0, under_way=1)
        bench.go("empty, Publish, 32 callers", server, target, size=1_024, frame=0, under_way=32)
        bench.go("empty, stream, 1 KiB a frame", server, target, size=1_024, frame=1, under_way=512)


def subscribe(node: Node, name: str) -> None:
    """Create a pull subscription, for messages from now on."""
    body = subscription_body(TOPIC, name, "") | {"endpoint": None, "deliveryType": "PULL"}
    node.post(f"/topics/{TOPIC}/subscriptions", body)


def rows(bench: Bench, node: Node, target: str, drained: int) -> None:
    """The rows of a node."""
    bench.http("HTTP, 1 connection", node, "http1", 1, 1_024, 1)
    bench.http("HTTP, 32 connections", node, "http1", 32, 1_024, 1)
    bench.http("HTTP batch, 100 B", node, "batch", 4, 100, 100)
    bench.go("gRPC, Publish, 1 caller", node, target, size=1_024, frame=0, under_way=1)
    bench.go("gRPC, Publish, 32 callers", node, target, size=1_024, frame=0, under_way=32)
    bench.go("gRPC, stream, 1 KiB a frame", node, target, size=1_024, frame=1, under_way=512)
    bench.go("gRPC, stream, 100 of 100 B a frame", node, target, size=100, frame=100, under_way=100)
    subscribe(node, "drained")
    subscribe(node, "pulled")
    # What is to be handed out.
    target_of_batches = Target(node.publish_port, node.process.pid, "batch", made_up(100), 100)
    published = 0
    while published < drained:
        published += run(Load(target_of_batches, 4, 1.0))["messages_per_s"]
    bench.drain("gRPC, Subscribe", node, target, "drained", drained)
    bench.pull("HTTP, pull", node, "pulled", drained)
    bench.live(node, target)


if __name__ == "__main__":
    main()
