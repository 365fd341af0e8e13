"""Measures how a message that costs its filters too much slows others, on three nodes.

    python benchmarks/costly_filters.py [--cases walk,match] [--seconds 20] [--turns]

A Kafka and three nodes with all roles are processes of their own. Each node is published to, one
message after another, for some seconds, and again for as long while hostile messages (--messages,
1) meet subscriptions (--subscriptions, 3). Prints the publishes' latencies, by how much the longest
is longer than without the hostile messages, how often nodes gave them up (once for each
subscription, if none hands it to the next), how many leases ran out, as the nodes' coordination has
counted them, and how often and how long their loops stood still by their own doing. With --turns
the nodes run on asyncio's own loop, and also told is how much CPU the longest turn of a loop took,
which no other process can make longer, and how long at most one callback waited for its own
process, for the interpreter say.
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
        b'{"a":[' + b"1, " * 199_999 + b"1]}",
    ),
    "match": (
        [{"type": "jsonpath", "path": "$.v", "matcher": "(a|aa)+b"}],
        b'{"v":"' + b"a" * 8_192 + b'"}',
    ),
}
TURNING = Path(__file__).parent / "turning"
_JSON = {"Content-Type": "application/json"}
_GIVEN_UP = "filter_timeouts"
_LEASES = "expired_leases_total"
_STALLS = "hermes_loop_stalls_total"
_STALLED_S = "hermes_loop_stalled_seconds_total"
_COUNTERS = (_GIVEN_UP, _LEASES, _STALLS, _STALLED_S)


class Whole(Fleet):
    """A fleet whose nodes have all roles; with `turns` they write down their longest ones."""

    def __init__(self, folder: Path, sink: Sink, *, turns: bool) -> None:
        self._turns = turns
        super().__init__(folder, sink, consumers=2)

    def _node(self, name: str, _roles: str, own: Mapping[str, str]) -> NodeProcess:
        turning = {}
        if self._turns:
            turning = {"PYTHONPATH": str(TURNING), "BENCHMARK_TURNS": str(self._found(name))}
        return super()._node(name, "frontend,management,consumers", {**own, **turning})

    def _found(self, name: str) -> Path:
        return self.folder / f"{name}.turns"

    def longest_ms(self) -> dict[str, float]:
        """By kind, of all nodes, since this was asked last."""
        found: dict[str, float] = {}
        for node in (self.front, *self.consumers):
            path = self._found(node.name)
            for line in path.read_text().splitlines() if path.exists() else ():
                _, kind, took_ms = line.split(" ")
                found[kind] = max(found.get(kind, 0.0), float(took_ms))
            path.unlink(missing_ok=True)
        return found


def publishing(node: NodeProcess, stopped: threading.Event, found: list[float]) -> None:
    """Publish until it is stopped; how long each took, in ms."""
    connection = HTTPConnection(urlsplit(node.url).netloc, timeout=60)
    while not stopped.is_set():
        began_s = time.perf_counter()
        connection.request("POST", "/topics/shop.calm", b"{}", _JSON)
        connection.getresponse().read()
        found.append((time.perf_counter() - began_s) * 1_000)
        time.sleep(0.005)


def beside(
    nodes: list[NodeProcess], seconds: float, happening: Callable[[], None], times: int = 1
) -> tuple[str, float]:
    """The latencies of publishes to all nodes while something happens so often, and the longest."""
    stopped, found = threading.Event(), [[0.0] for _ in nodes]
    threads = [
        threading.Thread(target=publishing, args=(node, stopped, each))
        for node, each in zip(nodes, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for _ in range(times):
        happening()
        time.sleep(seconds / times)
    stopped.set()
    for thread in threads:
        thread.join()
    took_ms = sorted(each for of_node in found for each in of_node)
    middle, late = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
    return (
        f"{len(took_ms):6,} publishes, p50 {middle:.1f}, p99 {late:.1f}, max {took_ms[-1]:.1f} ms",
        took_ms[-1],
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


def measure(fleet: Whole, case: str, asked: argparse.Namespace) -> None:
    """Some hostile messages, and those beside them."""
    seconds, turns = asked.seconds, asked.turns
    filters, body = CASES[case]
    base, nodes, topic = fleet.front.management, [fleet.front, *fleet.consumers], f"shop.{case}"
    created(f"{base}/topics", {**topic_body(topic), "maxMessageSize": 2_000_000})
    for number in range(asked.subscriptions):
        wanted = subscription_body(topic, f"s{number}", fleet.sink.at("note/s"), filters=filters)
        created(f"{base}/topics/{topic}/subscriptions", wanted)
    # Until all of them are given to nodes.
    time.sleep(10)

    def publish() -> None:
        connection = HTTPConnection(urlsplit(fleet.front.url).netloc, timeout=60)
        connection.request("POST", f"/topics/{topic}", body, _JSON)
        answer = connection.getresponse()
        # On a busy machine the spool may be faster than Kafka.
        assert answer.status in (201, 202), answer.read()

    def counts() -> list[dict[str, float]]:
        return [counted(node) for node in nodes]

    print(f"{case}: a message of {len(body):,} bytes, {len(filters)} filters", flush=True)
    longest: list[dict[str, float]] = [fleet.longest_ms()] if turns else []
    at_first = counts()
    said, calm_ms = beside(nodes, seconds, lambda: None)
    print(f"  before  {said}", flush=True)
    before = counts()
    longest += [fleet.longest_ms()] if turns else []
    said, longest_ms = beside(nodes, seconds, publish, asked.messages)
    print(f"  beside  {said}", flush=True)
    after = counts()
    longest += [fleet.longest_ms()] if turns else []
    calm, beside_it = _between(at_first, before), _between(before, after)
    print(f"  the longest publish took {longest_ms - calm_ms:.1f} ms more than the longest before")
    print(f"  given up {beside_it[_GIVEN_UP]:g} times by {asked.subscriptions} subscriptions")
    print(f"  leases that ran out: {beside_it[_LEASES]:g} (before: {calm[_LEASES]:g})")
    print(
        f"  loops stood still by their own doing {beside_it[_STALLS]:g} times for "
        f"{beside_it[_STALLED_S]:.2f} s (before: {calm[_STALLS]:g} times for "
        f"{calm[_STALLED_S]:.2f} s)",
        flush=True,
    )
    for kind, words in (("turn", "longest turn, of CPU"), ("held", "a callback held up")):
        if turns:
            then, now = (each.get(kind, 0.0) for each in longest[1:])
            print(f"  {words}: {now:.1f} ms (before: {then:.1f} ms)", flush=True)


def _between(then: list[dict[str, float]], now: list[dict[str, float]]) -> dict[str, float]:
    """Return all nodes' counts of the time between; each counts all leases of the datacentre."""
    grown = {
        name: [late[name] - early[name] for early, late in zip(then, now, strict=True)]
        for name in _COUNTERS
    }
    return {name: max(each) if name == _LEASES else sum(each) for name, each in grown.items()}


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=names_of(tuple(CASES)), default=list(CASES))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--subscriptions", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1)
    parser.add_argument("--turns", action="store_true")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder,
        Sink(0.0) as sink,
        Whole(Path(folder) / "fleet", sink, turns=asked.turns) as fleet,
    ):
        fleet.create({"calm": "shop.calm"})
        for case in asked.cases:
            measure(fleet, case, asked)


if __name__ == "__main__":
    main()
