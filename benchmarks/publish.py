"""How fast nodes publish: closed and open loops, HTTP/1.1, HTTP/2 and batches, compared with
floors.

    python benchmarks/publish.py [--logs embedded,memory,kafka] [--protocols http1,http2,batch]
        [--loads closed,open] [--seconds 3] [--bytes 100,1024 | --messages FILE]
        [--connections 1,32,64] [--rates 10%,50%,2000] [--find-max P99_MS]
        [--delivered] [--json FILE] [--svg FILE]

This process is the client; each server and Kafka are separate processes; all are on loopback and
end with the run. First come the floors of the run: the disk or Kafka's clients alone, and the
frontend's listener with nothing behind it. The log `memory` is a PERFORMANCE topic.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asking import machine, names_of, numbers, options
from delivering.sink import Sink
from hermes_local.kafka import FULL_SPEED, Cluster
from hermes_local.ports import free_ports
from publishing import floors, plot, report
from publishing.load import PROTOCOLS, Load, OpenLoad, Target, run
from publishing.messages import Messages, from_file, made_up
from publishing.node import EmptyServer, Node, Server

LOGS, LOADS = ("embedded", "memory", "kafka"), ("closed", "open")
BATCH_CONNECTIONS = (1, 4)
POOL = {"http1": 64, "http2": 64, "batch": 4}
"""Maximum number of an open loop's messages under way, or of connections with a batch."""
SEARCH_STEPS = 8
PROBE_S = 0.3


class Configuration(NamedTuple):
    """One line of the plot."""

    log: str
    protocol: str
    messages: Messages

    def row(self) -> dict[str, Any]:
        """The columns that identify it."""
        names = {"log": self.log, "protocol": self.protocol}
        return {**names, "message": self.messages.name}


class Bench:
    """A run: its options, its Kafka, and the results so far."""

    def __init__(
        self, asked: argparse.Namespace, kafka_servers: str, folder: Path, sink: Sink | None
    ) -> None:
        """With a sink, each message is also delivered to it."""
        self.asked = asked
        self.sink = sink
        self.kafka_servers = kafka_servers
        self.folder = folder
        self._folders = 0
        self._has_topic = False
        self.results: dict[str, Any] = {
            "options": {key: each for key, each in options(asked).items() if key != "kinds"},
            "machine": machine(),
        }
        self.results["options"]["open_message"] = asked.kinds[-1].name
        self.results |= {key: [] for key in ("floors", "closed", "open", "max", "starts")}
        self.results["skipped"] = []

    def measure(self) -> None:
        """Measure all requested parts."""
        if "kafka" in self.asked.logs:
            with self._node("kafka"):
                pass
        for messages in self.asked.kinds if self.asked.has_floors else ():
            self._floors(messages)
        for log in self.asked.logs:
            for messages in self.asked.kinds:
                for protocol in self.asked.protocols:
                    self._configuration(Configuration(log, protocol, messages))
        if "kafka" in self.asked.logs:
            self._starts()

    def _configuration(self, of: Configuration) -> None:
        if answers := self._probe(of):
            self.results["skipped"].append({**of.row(), "answers": answers})
            return
        # Kept, because the floor also serves the rows of the other log.
        empty = of._replace(log="empty")
        is_new = of.protocol != "batch" and of.log == self.asked.logs[0]
        both = [empty, of] if is_new and self.asked.has_floors else [of]
        best = dict.fromkeys(both, 0)
        if "closed" in self.asked.loads:
            counts = self.asked.connections
            if of.protocol == "batch":
                counts = self.asked.batch_connections
            for connections in counts:
                for each in both:
                    rate = self._closed(each, connections)
                    best[each] = max(best[each], rate)
        if "open" in self.asked.loads and of.messages is self.asked.kinds[-1]:
            for each in both:
                self._open(each, best[each])

    def _closed(self, of: Configuration, connections: int) -> int:
        with self._serving(of) as (server, target):
            row = {**of.row(), "connections": connections}
            if self.sink is not None:
                self.sink.counted()
            began_s = time.perf_counter()
            row |= run(Load(target, connections, self.asked.seconds))
            if self.sink is not None:
                took_s = time.perf_counter() - began_s
                row["delivered_per_s"] = round(self.sink.counted().messages / took_s)
            row["memory_mib"] = server.memory_mib()
        self._add("closed", row)
        rate: int = row["messages_per_s"]
        return rate

    def _open(self, of: Configuration, best_per_s: int) -> None:
        pool = POOL[of.protocol]
        with self._serving(of) as (_, target):
            if not best_per_s and (self.asked.find_max or any("%" in r for r in self.asked.rates)):
                best_per_s = run(Load(target, pool, self.asked.seconds))["messages_per_s"]
            for rate in self.asked.rates:
                part = rate.endswith("%")
                per_s = best_per_s * float(rate[:-1]) / 100 if part else float(rate)
                load = OpenLoad(target, pool, self.asked.seconds, per_s, self.asked.spacing)
                self._add("open", {**of.row(), **run(load)})
            if self.asked.find_max and of.log != "empty":
                self._find_max(of, target, best_per_s)

    def _find_max(self, of: Configuration, target: Target, best_per_s: int) -> None:
        """The highest rate within the bound: raised by halves until it breaks, then bisected."""
        low, high, bound_ms = 0.0, 0.0, self.asked.find_max
        for _ in range(SEARCH_STEPS):
            per_s = (low + high) / 2 if high else max(low * 1.5, best_per_s * 0.75)
            pool = POOL[of.protocol]
            row = run(OpenLoad(target, pool, self.asked.seconds, per_s, self.asked.spacing))
            is_kept = row["p99_ms"] is not None and row["p99_ms"] <= bound_ms
            if is_kept and not row["errors"] and not row["unanswered"]:
                low = per_s
            else:
                high = per_s
        self.results["max"].append({**of.row(), "rate_per_s": round(low), "p99_ms": bound_ms})

    def _probe(self, of: Configuration) -> dict[str, int]:
        """The counts of answers that are no acknowledgements."""
        with self._serving(of) as (_, target):
            row = run(OpenLoad(target, 1, PROBE_S, target.chunk * 20.0, "constant"))
        if row["messages_per_s"]:
            return {}
        errors: dict[str, int] = row["errors"]
        return errors or {"nothing": row["unanswered"]}

    def _floors(self, messages: Messages) -> None:
        asked = self.asked
        if "embedded" in asked.logs:
            folder = self._folder()
            for row in floors.disk(folder, messages, asked.seconds):
                self.results["floors"].append({**row, "log": "embedded", "message": messages.name})
        if "kafka" in asked.logs:
            for row in floors.kafka(self.kafka_servers, messages, asked.seconds):
                self.results["floors"].append({**row, "log": "kafka", "message": messages.name})

    def _starts(self) -> None:
        for _ in range(self.asked.starts):
            with Node(self.kafka_servers, free_ports(2)) as node:
                status, took_s = node.first_answer()
            row = {"log": "kafka", "status": status}
            self.results["starts"].append({**row, "seconds": round(took_s, 2)})

    @contextmanager
    def _serving(self, of: Configuration) -> Iterator[tuple[Server, Target]]:
        """A fresh server, with a fresh log if embedded."""
        with ExitStack() as stack:
            server: EmptyServer | Node
            if of.log == "empty":
                server = stack.enter_context(EmptyServer(free_ports(1)[0]))
                server.wait_ready()
            else:
                server = stack.enter_context(self._node(of.log))
            pid = server.process.pid
            chunk = self.asked.chunk
            yield server, Target(server.publish_port, pid, of.protocol, of.messages, chunk)

    @contextmanager
    def _node(self, log: str) -> Iterator[Node]:
        folder = self._folder() if log != "kafka" else None
        with Node(self.kafka_servers, free_ports(2), folder) as node:
            node.wait_ready()
            if folder or not self._has_topic:
                fields = {"durability": "PERFORMANCE"} if log == "memory" else {}
                node.create_topic(self.asked.ack, **fields)
                if self.sink is not None:
                    node.deliver_to(self.sink.at("count"))
                self._has_topic = self._has_topic or not folder
            node.wait_publishable()
            if self.sink is not None:
                self._wait_delivering(node)
            yield node

    def _wait_delivering(self, node: Node) -> None:
        assert self.sink is not None, "it is delivered"
        while not self.sink.counted().messages:
            node.wait_publishable()

    def _folder(self) -> Path:
        self._folders += 1
        folder = self.folder / str(self._folders)
        folder.mkdir()
        return folder

    def _add(self, kind: str, row: dict[str, Any]) -> None:
        self.results[kind].append(row)
        print(report.progress(row), file=sys.stderr, flush=True)


def main() -> None:
    """Run the requested measurements."""
    asked = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-bench-")))
        servers = ""
        if "kafka" in asked.logs:
            cluster = stack.enter_context(Cluster(folder / "kafka", jvm_options=FULL_SPEED))
            servers = ",".join(cluster.bootstrap_servers)
        sink = stack.enter_context(Sink(slow_s=0.0)) if asked.delivered else None
        bench = Bench(asked, servers, folder, sink)
        bench.measure()
    print("\n".join(report.lines(bench.results)))
    if asked.json:
        asked.json.write_text(json.dumps(bench.results, indent=2) + "\n")
    if asked.svg and bench.results["open"]:
        asked.svg.write_text(plot.draw(bench.results))


def arguments() -> argparse.Namespace:
    """Parse the options, with `kinds` for the requested messages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--logs", type=names_of(LOGS), default=["embedded", "kafka"])
    add("--protocols", type=names_of(tuple(PROTOCOLS)), default=list(PROTOCOLS))
    add("--loads", type=names_of(LOADS), default=list(LOADS))
    add("--seconds", type=float, default=3.0, help="of each figure")
    add("--bytes", type=numbers, default=[100, 1_024], help="sizes of JSON bodies made up")
    add("--messages", type=Path, help="bodies from a file, one a line, instead")
    add("--connections", type=numbers, default=[1, 32, 64], help="closed loop; HTTP/2: streams")
    add("--batch-connections", type=numbers, default=list(BATCH_CONNECTIONS), help="the same")
    add("--chunk", type=int, default=500, help="messages of one chunk of a batch")
    add(
        "--rates",
        type=lambda text: text.split(","),
        default=["10%", "25%", "50%", "75%", "90%"],
        help="messages/s of the open loop, or parts of the closed loop's best; it sends the last "
        "of the sizes",
    )
    add("--spacing", choices=["poisson", "constant"], default="poisson", help="of the arrivals")
    add("--find-max", type=float, default=0.0, metavar="P99_MS", help="search the highest rate")
    add("--no-floors", dest="has_floors", action="store_false", help="to compare two revisions")
    add("--delivered", action="store_true", help="to a subscriber that answers at once, too")
    add("--ack", default="LEADER", choices=["LEADER", "ALL"])
    add("--starts", type=int, default=3, help="how often a node on Kafka is started and timed")
    add("--json", type=Path, metavar="FILE")
    add("--svg", type=Path, metavar="FILE")
    asked = parser.parse_args()
    try:
        asked.kinds = (
            [from_file(asked.messages)] if asked.messages else list(map(made_up, asked.bytes))
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return asked


if __name__ == "__main__":
    main()
