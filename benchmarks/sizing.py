"""The figures behind `hermes sizing`: what a node of each role uses, and Kafka beside them.

    python benchmarks/sizing.py [--rate 150] [--bytes 1024] [--topics 40] [--subscriptions 40]
        [--partitions 4] [--seconds 20] [--connections 64] [--idle-connections 0]
        [--compression producer] [--batch]

One broker, one node for each role; messages go to the topics by turns. CPU is user and system time,
in µs of a message, without what the idle node uses. `planned_cores` is what `hermes sizing` plans
for this load with its factor, `used_cores` what it really took, both with the idle node's part.
"""

import argparse
import http.client
import json
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

from asking import machine
from delivering.sink import Sink
from hermes_actors.cli.sizing.calculation import sizing
from hermes_actors.cli.sizing.measured import BASE_CORES, FACTOR
from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.kafka import FULL_SPEED, Cluster
from hermes_local.ports import free_ports
from publishing.batch import BatchConnection
from publishing.http1 import Http1Connection
from publishing.load import OpenLoad, Target, cpu_s, run
from publishing.messages import TOPIC, made_up
from publishing.node import Node

ROLES = ("management", "frontend", "consumers")
GROUP = TOPIC.partition(".")[0]
_SETTLE_S = 8.0
_WITHIN_S = 600.0


class _SpreadLoad(OpenLoad):
    """An open loop over several topics."""

    def __init__(self, target: Target, asked: argparse.Namespace, topics: Sequence[str]) -> None:
        super().__init__(target, asked.connections, asked.seconds, asked.rate, "poisson")
        kind = BatchConnection if asked.batch else Http1Connection
        if not asked.batch:
            requests = kind.requests(target.messages.bodies, target.chunk)
            lines = [b"/topics/%b " % topic.encode() for topic in topics]
            first = b"/topics/%b " % TOPIC.encode()
            self._requests: Iterator[bytes] = cycle(
                requests[number % len(requests)].replace(first, line, 1)
                for number, line in enumerate(lines * (-(-len(requests) // len(lines))))
            )


class Bench:
    """A run: Kafka, the three nodes, and what they used."""

    def __init__(self, asked: argparse.Namespace, folder: Path, sink: Sink) -> None:
        self.asked = asked
        self.sink = sink
        self.topics = [TOPIC, *(f"{GROUP}.t{number}" for number in range(1, asked.topics))]
        settings = {"compression.type": asked.compression}
        self.kafka = Cluster(folder, jvm_options=FULL_SPEED, settings=settings)
        self.folder = folder
        self.nodes: dict[str, Node] = {}
        self.ports = dict(zip(ROLES, [free_ports(2) for _ in ROLES], strict=True))

    def measure(self, stack: ExitStack) -> dict[str, Any]:
        """Start, create, settle, publish."""
        asked = self.asked
        stack.enter_context(self.kafka)
        servers = ",".join(self.kafka.bootstrap_servers)
        for role in ROLES:
            variables = {
                "HERMES_ROLES": role,
                "HERMES_NODE": role,
                "HERMES_STATUS_PORT": str(free_ports(1)[0]),
                "HERMES_MANAGEMENT_TOPIC_PARTITIONS": str(asked.partitions),
            }
            node = Node(servers, self.ports[role], None, variables)
            self.nodes[role] = stack.enter_context(node)
            node.wait_ready()
        time.sleep(_SETTLE_S)
        found: dict[str, Any] = {"machine": machine(), "options": vars(asked)}
        found["empty"] = self._memory()
        self._create()
        found["idle"] = self._idle()
        if asked.idle_connections:
            sockets = [
                socket.create_connection(("127.0.0.1", self.ports["frontend"][0]))
                for _ in range(asked.idle_connections)
            ]
            for each in sockets:
                each.sendall(b"GET /status/ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
                stack.enter_context(each)
            time.sleep(_SETTLE_S)
            found["connected"] = self._memory()
        if asked.rate:
            found["load"] = self._load(found["idle"])
        return found

    def _create(self) -> None:
        management, asked = self.nodes["management"], self.asked
        management.post("/groups", {"groupName": GROUP})
        for topic in self.topics:
            management.post("/topics", topic_body(topic, ack="LEADER"))
        for topic in self.topics:
            self._wait_taking(topic)
        policy = {"rate": 1_000_000}
        for number in range(asked.subscriptions):
            topic = self.topics[number % len(self.topics)]
            body = subscription_body(
                topic, f"s{number}", self.sink.at("count"), subscriptionPolicy=policy
            )
            management.post(f"/topics/{topic}/subscriptions", body)
        for number in range(asked.subscriptions):
            self._wait_active(self.topics[number % len(self.topics)], f"s{number}")
        time.sleep(_SETTLE_S)

    def _idle(self) -> dict[str, Any]:
        before, begun_s = self._cpu(), time.perf_counter()
        time.sleep(self.asked.seconds)
        took_s = time.perf_counter() - begun_s
        after = self._cpu()
        percent = {who: round((after[who] - before[who]) / took_s * 100, 2) for who in after}
        return {"cpu_percent": percent, **self._memory()}

    def _load(self, idle: dict[str, Any]) -> dict[str, Any]:
        """CPU per message is what the load adds to the idle nodes."""
        asked = self.asked
        frontend = self.nodes["frontend"]
        bodies = made_up(asked.bytes)
        protocol = "batch" if asked.batch else "http1"
        target = Target(self.ports["frontend"][0], frontend.process.pid, protocol, bodies, 100)
        fan_out = asked.subscriptions / len(self.topics)
        # Kafka's first messages cost many times as much.
        run(_SpreadLoad(target, asked, self.topics))
        self._counted_all()
        bytes_before, before = self._disk(), self._cpu()
        begun_s = time.perf_counter()
        figures = run(_SpreadLoad(target, asked, self.topics))
        delivered = self._counted_all()
        took_s = time.perf_counter() - begun_s
        after = self._cpu()
        # All deliveries, because those of messages of the warm-up count too.
        published = delivered / fan_out
        used = {
            who: after[who] - before[who] - idle["cpu_percent"][who] / 100 * took_s for who in after
        }
        time.sleep(2.0)
        return {
            "published": round(published),
            "delivered": delivered,
            "seconds": round(took_s, 1),
            "used_cores": {who: round((after[who] - before[who]) / took_s, 3) for who in after},
            "planned_cores": self._planned(published / took_s),
            "errors": figures["errors"],
            "unanswered": figures["unanswered"],
            "client_cpu_percent": figures["client_cpu_percent"],
            "latency_p50_ms": figures["p50_ms"],
            "frontend_us": round(used["frontend"] / published * 1e6, 1),
            "consumers_us": round(used["consumers"] / max(1, delivered) * 1e6, 1),
            "kafka_us": round(used["kafka"] / published * 1e6, 1),
            "management_percent": round(used["management"] / took_s * 100, 2),
            "kafka_bytes_each": round((self._disk() - bytes_before) / published, 1),
            **self._memory(),
        }

    def _planned(self, rate: float) -> dict[str, float]:
        asked = self.asked
        found = sizing(
            rate=rate,
            size=asked.bytes,
            topics=asked.topics,
            subscriptions=asked.subscriptions,
            publishing="batch" if asked.batch else "single",
        )
        return {pod["role"]: round(pod["cores"] + FACTOR * BASE_CORES, 3) for pod in found["pods"]}

    def _counted_all(self) -> int:
        """Deliveries since the last call, once there are no more."""
        delivered = more = self.sink.counted().messages
        while more:
            time.sleep(1.0)
            more = self.sink.counted().messages
            delivered += more
        return delivered

    def _cpu(self) -> dict[str, float]:
        found = {role: cpu_s(node.process.pid) for role, node in self.nodes.items()}
        return found | {"kafka": sum(cpu_s(pid) for pid in self._broker_pids())}

    def _broker_pids(self) -> list[int]:
        return [broker.pid for broker in self.kafka.brokers if broker.pid is not None]

    def _memory(self) -> dict[str, float]:
        return {f"{role}_mib": node.memory_mib() for role, node in self.nodes.items()}

    def _disk(self) -> int:
        return sum(
            file.stat().st_size
            for file in self.folder.rglob("*.log")
            if file.parent.name.startswith(f"{GROUP}")
        )

    def _wait_taking(self, topic: str) -> None:
        end_s, status = time.perf_counter() + _WITHIN_S, 0
        while status != 201:
            assert time.perf_counter() < end_s, f"{topic}: a publish is still answered {status}"
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["frontend"][0])
            connection.request("POST", f"/topics/{topic}", b'{"first": true}')
            status = connection.getresponse().status
            connection.close()
            if status != 201:
                time.sleep(0.2)

    def _wait_active(self, topic: str, name: str) -> None:
        end_s, state = time.perf_counter() + _WITHIN_S, ""
        while state != "ACTIVE":
            assert time.perf_counter() < end_s, f"{topic}, {name}: still {state}"
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["management"][1])
            connection.request("GET", f"/topics/{topic}/subscriptions/{name}")
            state = json.loads(connection.getresponse().read()).get("state", "")
            connection.close()
            if state != "ACTIVE":
                time.sleep(0.2)


def main() -> None:
    """Run one measurement and print it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rate", type=float, default=150.0, help="messages/s; 0: only what is idle")
    add("--bytes", type=int, default=1_024)
    add("--topics", type=int, default=40)
    add("--subscriptions", type=int, default=40)
    add("--partitions", type=int, default=4, help="of each topic")
    add("--seconds", type=float, default=20.0, help="idle, and under load")
    add("--connections", type=int, default=64)
    add("--idle-connections", type=int, default=0, help="further ones, to the frontend")
    add("--compression", default="producer", help="the broker's compression.type")
    add("--batch", action="store_true", help="publish batches, to the first topic only")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-bench-")))
        sink = stack.enter_context(Sink(1.0))
        print(json.dumps(Bench(asked, folder, sink).measure(stack), indent=1))


if __name__ == "__main__":
    main()
