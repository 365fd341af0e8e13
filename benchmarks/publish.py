"""How fast one node publishes: embedded log, both HTTP servers, beside an empty app on the same.

    python benchmarks/publish.py [--seconds 3] [--json] [--servers granian,hypercorn]
                                 [--connections 1,32,64] [--bytes 100,1024]

Each figure is one run: a server process, and this process as its client, with N keep-alive
connections that each send the next message when the last one is answered. CPU is that of the
server process. `python benchmarks/publish.py server …` is that process.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httptools
import trio
import uvloop

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import FrontendConfig
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.embedded import open_embedded_log
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import ContentType, Owner, RetentionTime, Topic
from hermes_actors.publisher.edges.granian import GranianServer
from hermes_actors.publisher.edges.hypercorn import HypercornServer
from hermes_actors.publisher.edges.server import Server, make_server
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import IdSource, SystemClock, system_rng
from hermes_actors.telemetry.metrics import Metrics

TOPIC = "bench.orders"
PARTITIONS = 10
WARM_UP_S = 0.7
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


# The server process.


class EmptyApp:
    """Reads the body and answers 201: what the HTTP server alone costs."""

    async def __rsgi__(self, scope: Any, exchange: Any) -> None:
        await exchange()
        exchange.response_empty(201, [("content-length", "0")])

    async def serve(self, scope: Any, receive: Any, send: Any, close: Any) -> None:
        """One request over hypercorn."""
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def serve(http: str, app: str, directory: str) -> None:
    """Serve until killed; the port is the first line of the output."""
    clock = SystemClock()
    # The time limits of a real node would turn a busy machine's hiccups into 503s.
    config = FrontendConfig(
        port=0,
        server="granian" if http == "granian" else "hypercorn",
        idle_timeout_ms=5_000,
        long_idle_timeout_ms=5_000,
    )
    async with (
        open_embedded_log(directory, "dc1", clock) as log,
        open_supervisor(system_rng(), lambda c: print(repr(c), file=sys.stderr)) as supervisor,
        trio.open_nursery() as nursery,
    ):
        frontend = Frontend(config, log, supervisor, Metrics("hermes_frontend"), clock, IdSource())
        server: Server
        if app == "hermes":
            await log.create_topic(TOPIC, TopicSettings(partitions=PARTITIONS))
            frontend.routes.set(_live_topic(), nursery)
            nursery.start_soon(frontend.deadlines.run)
            server = make_server(frontend, config)
        elif http == "granian":
            server = GranianServer(EmptyApp(), config)
        else:
            server = HypercornServer(EmptyApp(), config, clock)
        await guest.call(server.start)
        frontend.drain.open()
        # As a node does once it is up.
        gc.collect()
        gc.freeze()
        print(server.port, flush=True)
        await trio.sleep_forever()


def _live_topic() -> LiveTopic:
    topic = Topic(
        name=TOPIC,
        description="",
        owner=Owner("Plaintext", "bench"),
        content_type=ContentType.JSON,
        retention_time=RetentionTime(1),
    )
    return LiveTopic(TopicName.parse(TOPIC), topic, 1, 1, TOPIC)


# The client process.


class Connection(asyncio.Protocol):
    """One connection of the closed loop."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._sent_s = 0.0

    def connection_made(self, transport: Any) -> None:
        """Send the first message."""
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Note the answer and send the next message."""
        self._load.answered(self._parser.get_status_code(), time.perf_counter() - self._sent_s)
        # The parser goes on with the next response on a keep-alive connection.
        self._send()

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._load.request)


class Load:
    """What all connections of a run share."""

    def __init__(self, size: int) -> None:
        body = b'{"message":"' + b"x" * (size - 14) + b'"}'
        self.request = (
            f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.latencies_s: list[float] = []
        self.errors = 0

    def answered(self, status: int, latency_s: float) -> None:
        """One more answer."""
        if status == 201:
            self.latencies_s.append(latency_s)
        else:
            self.errors += 1


async def run_load(
    port: int, pid: int, connections: int, size: int, seconds: float
) -> dict[str, Any]:
    """The figures of one closed loop against a server."""
    load = Load(size)
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.sleep(WARM_UP_S)
    load.latencies_s, load.errors = [], 0
    cpu_s, start_s = _cpu_s(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    took_s, cpu_s = time.perf_counter() - start_s, _cpu_s(pid) - cpu_s
    latencies = sorted(load.latencies_s)
    for transport, _ in opened:
        transport.abort()
    count = len(latencies)
    return {
        "messages_per_s": round(count / took_s),
        "p50_ms": round(latencies[count // 2] * 1_000, 2) if count else None,
        "p99_ms": round(latencies[int(count * 0.99)] * 1_000, 2) if count else None,
        "cpu_us": round(cpu_s / count * 1e6) if count else None,
        "errors": load.errors,
    }


def _cpu_s(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure(http: str, app: str, connections: int, size: int, seconds: float) -> dict[str, Any]:
    """One figure: a fresh server, a fresh log."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as directory:
        server = subprocess.Popen(
            [sys.executable, __file__, "server", http, app, directory], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(run_load(port, server.pid, connections, size, seconds))
        finally:
            server.kill()
            server.wait()


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--servers", default="granian,hypercorn")
    parser.add_argument("--connections", default="1,32,64")
    parser.add_argument("--bytes", default="100,1024")
    asked = parser.parse_args()
    results = []
    if not asked.json:
        print("server     conns bytes    msg/s  p50 ms  p99 ms  CPU µs   empty app  ratio")
    for http in asked.servers.split(","):
        for size in map(int, asked.bytes.split(",")):
            for connections in map(int, asked.connections.split(",")):
                empty, ours = (
                    measure(http, app, connections, size, asked.seconds)
                    for app in ("empty", "hermes")
                )
                ratio = ours["messages_per_s"] / max(empty["messages_per_s"], 1)
                results.append(
                    {
                        "server": http,
                        "connections": connections,
                        "bytes": size,
                        **ours,
                        "empty": empty,
                        "ratio": round(ratio, 2),
                    }
                )
                if not asked.json:
                    print(
                        f"{http:10} {connections:5} {size:5} {ours['messages_per_s']:8} "
                        f"{ours['p50_ms']:7} {ours['p99_ms']:7} {ours['cpu_us']:7} "
                        f"{empty['messages_per_s']:8}/s  {ratio:5.2f}"
                        + (f"  ({ours['errors']} not 201)" if ours["errors"] else ""),
                        flush=True,
                    )
    if asked.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    if sys.argv[1:2] == ["server"]:
        http, app, directory = sys.argv[2:5]
        guest.run(serve, http, app, directory)
    else:
        main()
