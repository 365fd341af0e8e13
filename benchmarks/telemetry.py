"""The cost of telemetry: of a publish with telemetry off, with metrics pushed, with one message in
a hundred traced and with all; and of a scrape of many subscriptions' metrics. A second node with
telemetry off shows how far two equal nodes differ.

    python benchmarks/telemetry.py [--rounds 15] [--seconds 1] [--connections 32]
        [--subscriptions 10000]

Each mode has its own node on its own embedded log; a collector in a separate process answers at
once. In each round all nodes have a short run, each time in another order. The nodes' CPU per
message counts, compared with that of "off" in the same round: the median of the rounds, and the
quartiles. Then the metrics of that many subscriptions are rendered, and encoded for a collector.
"""

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio
import trio.lowlevel
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.resources import Resource

from hermes_actors.consumer.delivery.measures import DELIVERING, SubscriptionMeasures
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.threads import SystemThreads
from hermes_actors.telemetry.metric_push import MetricPush
from hermes_actors.telemetry.metrics import Metrics, render_in_turns
from hermes_local.ports import free_ports
from publishing.load import Load, Target, run
from publishing.messages import made_up
from publishing.node import Node

COLLECTOR = """
import http.server, sys
class Taking(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Taking).serve_forever()
"""


def modes(collector: str) -> dict[str, Mapping[str, str]]:
    """The environment variables of each mode."""
    pushed = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_METRIC_EXPORT_INTERVAL": "10000"}
    traced = {**pushed, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
    return {
        "off": {},
        "metrics": {**pushed, "OTEL_TRACES_EXPORTER": "none"},
        "1 % traced": {**traced, "OTEL_TRACES_SAMPLER_ARG": "0.01"},
        "all traced": {**traced, "OTEL_TRACES_SAMPLER_ARG": "1"},
        "off, again": {},
    }


def measure_publishing(asked: argparse.Namespace) -> None:
    """Print the cost of each mode for a publishing node."""
    ports = free_ports(1 + 2 * len(modes("")))
    rows: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-bench-")))
        collector = subprocess.Popen([sys.executable, "-c", COLLECTOR, str(ports[0])])
        stack.callback(collector.wait)
        stack.callback(collector.kill)
        nodes: dict[str, Node] = {}
        for at, (name, variables) in enumerate(modes(f"http://127.0.0.1:{ports[0]}").items()):
            node_ports = ports[1 + 2 * at : 3 + 2 * at]
            node = Node("", node_ports, folder / f"log-{at}", variables)
            nodes[name] = stack.enter_context(node)
            node.wait_ready()
            node.create_topic("LEADER")
            node.wait_publishable()
            rows[name] = []
        order = random.Random(1)
        for _ in range(asked.rounds):
            for name, node in order.sample(list(nodes.items()), len(nodes)):
                target = Target(node.publish_port, node.process.pid, "http1", made_up(1_024), 1)
                rows[name].append(run(Load(target, asked.connections, asked.seconds)))
        spans = {name: spans_of(node) for name, node in nodes.items()}
    print(f"{'telemetry':<12} {'msg/s':>8} {'µs CPU':>8} {'to off':>8}  quartiles")
    off = [row["cpu_ms_per_1000"] for row in rows["off"]]
    for name, each in rows.items():
        cpu = [row["cpu_ms_per_1000"] for row in each]
        more = [one / other - 1 for one, other in zip(cpu, off, strict=True)]
        low, middle, high = statistics.quantiles(more, n=4) if len(more) > 1 else more * 3
        rate = statistics.median(row["messages_per_s"] for row in each)
        figures = f"{rate:>8,.0f} {statistics.median(cpu):>8.1f} {middle:>+8.1%}"
        print(f"{name:<12} {figures}  {low:+.1%} to {high:+.1%}  {spans[name]}")


def spans_of(node: Node) -> str:
    """How many spans were exported, and how many were not."""
    url = f"http://127.0.0.1:{node.publish_port}/status/prometheus"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counts = {
        name: int(float(line.split()[-1]))
        for name in ("exported", "failed")
        for line in lines
        if line.startswith(f"hermes_telemetry_spans_{name}_total")
    }
    return ", ".join(f"{count:,} spans {name}" for name, count in counts.items())


class Taking(MetricExporter):
    """Counts export requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> MetricExportResult:
        """Count a request."""
        self.requests += 1
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Do nothing."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Do nothing."""


async def longest_turn_s(stop: trio.Event, turns: list[float]) -> None:
    """Record the length of each turn of the loop until `stop` is set."""
    while not stop.is_set():
        began_s = time.thread_time()
        await trio.lowlevel.checkpoint()
        turns.append(time.thread_time() - began_s)


async def measure_series(subscriptions: int) -> None:
    """Print the cost of that many subscriptions' metrics."""
    metrics = Metrics("hermes_consumers", meanings=DELIVERING)
    for number in range(subscriptions):
        name = SubscriptionName(TopicName("shop", f"orders{number // 10}"), f"s{number}")
        measures = SubscriptionMeasures(metrics, name)
        for status in (200, 500):
            measures.answered((), SendOutcome(status), 0.05)
    gc.collect()
    gc.freeze()
    exporter = Taking()
    push = MetricPush(
        lambda: [metrics],
        exporter,
        Resource({}),
        SystemClock(),
        SystemThreads(),
        interval_s=1.0,
    )
    for what in ("scrape", "push"):
        turns: list[float] = []
        stop, text = trio.Event(), b""
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(longest_turn_s, stop, turns)
            if what == "scrape":
                text = await render_in_turns([metrics])
            else:
                await push.push()
            stop.set()
        cpu_s, took_s = time.thread_time() - began_cpu_s, time.perf_counter() - began_s
        if text:
            size = sum(not line.startswith(b"#") for line in text.splitlines())
            told = f"{size:,} series ({size / subscriptions:.0f} each), {len(text):,} bytes"
        else:
            told = f"{push.exported:,} points in {exporter.requests:,} requests"
        print(
            f"{what} of {subscriptions:,} subscriptions: {told}; {cpu_s:.2f} s of the loop's CPU "
            f"in {took_s:.2f} s, the longest turn {max(turns) * 1_000:.1f} ms"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    asked = parser.parse_args(arguments)
    measure_publishing(asked)
    print()
    trio.run(measure_series, asked.subscriptions)


if __name__ == "__main__":
    # The client's own variables must not reach the nodes.
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    main()
