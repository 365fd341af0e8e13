"""How fast, how soon and how safely a node delivers, compared with the bare sender in the same run.

    python benchmarks/deliver.py [--parts path,sustained,latency,start,isolation,crash]
        [--logs embedded,kafka] [--messages 500000] [--bytes 1024] [--rates 50,200,1000]
        [--seconds 20] [--subscriptions 100] [--isolation-rate 1000] [--rounds 3]
        [--slow-ms 5000] [--crash-rate 1000] [--crash-seconds 120] [--json FILE]

Nodes (`hermes node` with all roles), the subscribers and Kafka are separate processes on loopback,
and end with the run. Only `path` delivers in this process: the bare sender as the floor, and the
consumer's path over a log in memory.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from asking import machine, names_of, options
from delivering import crash, isolation, latency, path, report, starts, sustained
from delivering.node import Place
from delivering.sink import Sink
from hermes_local.kafka import FULL_SPEED, Cluster
from publishing.messages import made_up

PARTS = ("path", "sustained", "latency", "start", "isolation", "crash")
LOGS = ("embedded", "kafka")
PATH_MESSAGES_MAX = 100_000


class Bench:
    """A run: its options, its subscribers, and the results so far."""

    def __init__(self, asked: argparse.Namespace, folder: Path, sink: Sink) -> None:
        self.asked = asked
        self.folder = folder
        self.sink = sink
        self.results: dict[str, Any] = {
            "options": options(asked),
            "machine": machine(),
        }
        self.results |= {part: [] for part in PARTS}

    def measure(self) -> None:
        """Measure all requested parts."""
        asked, body = self.asked, made_up(self.asked.bytes).bodies[0]
        if "path" in asked.parts:
            count = min(asked.messages, PATH_MESSAGES_MAX)
            self._add(
                "path",
                asked.path_log,
                path.measure(asked.path_log, self.sink.at("count"), body, count),
            )
        for part in asked.parts:
            for log in asked.logs if part != "path" else ():
                with self._place(part, log) as place:
                    self._add(part, log, self._rows(part, place))

    @contextmanager
    def _place(self, part: str, log: str) -> Iterator[Place]:
        """A fresh log."""
        folder = self.folder / f"{part}-{log}"
        with ExitStack() as stack:
            servers = ""
            if log == "kafka":
                cluster = stack.enter_context(Cluster(folder, jvm_options=FULL_SPEED))
                servers = ",".join(cluster.bootstrap_servers)
            yield Place(log, servers, folder)

    def _rows(self, part: str, place: Place) -> list[dict[str, Any]]:
        asked, sink = self.asked, self.sink
        if part == "sustained":
            return [sustained.measure(place, sink, made_up(asked.bytes), asked.messages)]
        if part == "latency":
            return latency.measure(place, sink, asked.rates, asked.seconds)
        if part == "start":
            return starts.measure(place, sink, asked.rounds)
        if part == "isolation":
            return [
                isolation.measure(
                    place,
                    sink,
                    subscriptions=asked.subscriptions,
                    rate_per_s=asked.isolation_rate,
                    rounds=asked.rounds,
                    seconds=asked.seconds,
                    slow_s=asked.slow_ms / 1_000,
                )
            ]
        return [crash.measure(place, sink, asked.crash_rate, asked.crash_seconds)]

    def _add(self, part: str, log: str, rows: list[dict[str, Any]]) -> None:
        self.results[part] += [{"log": log, **row} for row in rows]
        print(f"{part}, {log}: measured", file=sys.stderr, flush=True)


def main() -> None:
    """Run the requested measurements."""
    asked = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-bench-")))
        sink = stack.enter_context(Sink(asked.slow_ms / 1_000))
        bench = Bench(asked, folder, sink)
        bench.measure()
    print("\n".join(report.lines(bench.results)))
    if asked.json:
        asked.json.write_text(json.dumps(bench.results, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", type=names_of(PARTS), default=list(PARTS))
    add("--logs", type=names_of(LOGS), default=list(LOGS))
    add("--path-log", choices=["memory", "embedded"], default="memory")
    add("--messages", type=int, default=500_000, help="in the log; path: at most 100,000")
    add("--bytes", type=int, default=1_024, help="of such a message's body")
    add(
        "--rates",
        type=lambda text: [float(each) for each in text.split(",")],
        default=[50.0, 200.0, 1_000.0],
        help="messages/s whose latency is measured",
    )
    add("--seconds", type=float, default=20.0, help="of each rate, and of each round")
    add("--subscriptions", type=int, default=100, help="of the part isolation")
    add("--isolation-rate", type=float, default=1_000.0, help="deliveries/s of the healthy ones")
    add("--rounds", type=int, default=3, help="of isolation, with and without; of start")
    add("--slow-ms", type=int, default=5_000, help="after which the slow endpoint answers")
    add("--crash-rate", type=float, default=1_000.0, help="messages/s")
    add("--crash-seconds", type=float, default=120.0, help="until the node is killed")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
