"""Measures how a message that costs its filters too much slows others, on three nodes.

    python benchmarks/costly_filters.py [--cases walk,match] [--seconds 20]

A Kafka and three nodes with all roles are processes of their own. Each node is published to, one
message after another, before and while one hostile message meets three subscriptions. Prints the
publishes' latencies, how often nodes gave the message up (once for each subscription, if none hands
it to the next), and for how long their loops stood still by their own doing.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asking import names_of
from delivering.sink import Sink
from failing_over.fleet import Fleet
from hermes_chaos.live.site import NodeProcess, ask
from hermes_chaos.wanted import subscription_body, topic_body

CASES: Mapping[str, tuple[list[dict[str, str]], bytes]] = {
    "walk": (
        [{"type": "jsonpath", "path": "$.a[*]", "matcher": "1"}] * 100,
        b'{"a":[' + b"1," * 199_999 + b"1]}",
    ),
    "match": (
        [{"type": "jsonpath", "path": "$.v", "matcher": "(a|aa)+b"}],
        b'{"v":"' + b"a" * 8_192 + b'"}',
    ),
}
SUBSCRIPTIONS = 3
_JSON = {"Content-Type": "application/json"}
_COUNTERS = ("filter_timeouts", 'loop_stalled_seconds_total{cause="b')


class Whole(Fleet):
    """A fleet whose nodes have all roles."""

    def _node(self, name: str, _roles: str, own: Mapping[str, str]) -> NodeProcess:
        return super()._node(name, "frontend,management,consumers", own)


def publishing(node: NodeProcess, stopped: threading.Event, found: list[float]) -> None:
    """Publish until it is stopped; how long each took, in ms."""
    connection = HTTPConnection(urlsplit(node.url).netloc, timeout=60)
    while not stopped.is_set():
        began_s = time.perf_counter()
        connection.request("POST", "/topics/shop.calm", b"{}", _JSON)
        connection.getresponse().read()
        found.append((time.perf_counter() - began_s) * 1_000)
        time.sleep(0.005)


def beside(nodes: list[NodeProcess], seconds: float, happening: Callable[[], None]) -> str:
    """The latencies of publishes to all nodes while something happens."""
    stopped, found = threading.Event(), [[0.0] for _ in nodes]
    threads = [
        threading.Thread(target=publishing, args=(node, stopped, each))
        for node, each in zip(nodes, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    happening()
    time.sleep(seconds)
    stopped.set()
    for thread in threads:
        thread.join()
    took_ms = sorted(each for of_node in found for each in of_node)
    middle, late = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
    return (
        f"{len(took_ms):6,} publishes, p50 {middle:.1f}, p99 {late:.1f}, max {took_ms[-1]:.1f} ms"
    )


def counted(node: NodeProcess) -> dict[str, float]:
    """The sums of what is counted of costly filters and of standstills."""
    connection = HTTPConnection(urlsplit(node.url).netloc, timeout=60)
    connection.request("GET", "/status/prometheus")
    sums = dict.fromkeys(_COUNTERS, 0.0)
    for line in connection.getresponse().read().decode().splitlines():
        for name in _COUNTERS:
            if name in line and not line.startswith("#"):
                sums[name] += float(line.rpartition(" ")[2])
    return sums


def created(url: str, body: Any) -> None:
    """Create it."""
    status, said = ask("POST", url, body)
    assert status == 201, said


def measure(fleet: Fleet, case: str, seconds: float) -> None:
    """One hostile message, and those beside it."""
    filters, body = CASES[case]
    base, nodes, topic = fleet.front.management, [fleet.front, *fleet.consumers], f"shop.{case}"
    created(f"{base}/topics", {**topic_body(topic), "maxMessageSize": 2_000_000})
    for number in range(SUBSCRIPTIONS):
        wanted = subscription_body(topic, f"s{number}", fleet.sink.at("note/s"), filters=filters)
        created(f"{base}/topics/{topic}/subscriptions", wanted)
    # Until all of them are given to nodes.
    time.sleep(10)
    before = [counted(node) for node in nodes]

    def publish() -> None:
        connection = HTTPConnection(urlsplit(fleet.front.url).netloc, timeout=60)
        connection.request("POST", f"/topics/{topic}", body, _JSON)
        answer = connection.getresponse()
        # On a busy machine the spool may be faster than Kafka.
        assert answer.status in (201, 202), answer.read()

    print(f"{case}: a message of {len(body):,} bytes, {len(filters)} filters", flush=True)
    print(f"  before  {beside(nodes, seconds / 4, lambda: None)}", flush=True)
    print(f"  beside  {beside(nodes, seconds, publish)}", flush=True)
    after = [counted(node) for node in nodes]
    given_up, stalled_s = (
        sum(now[name] - then[name] for now, then in zip(after, before, strict=True))
        for name in _COUNTERS
    )
    print(f"  given up {given_up:g} times by {SUBSCRIPTIONS} subscriptions")
    print(f"  loops stood still by their own doing for {stalled_s:.2f} s", flush=True)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=names_of(tuple(CASES)), default=list(CASES))
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder,
        Sink(0.0) as sink,
        Whole(Path(folder) / "fleet", sink, consumers=2) as fleet,
    ):
        fleet.create({"calm": "shop.calm"})
        for case in asked.cases:
            measure(fleet, case, asked.seconds)


if __name__ == "__main__":
    main()
