"""Measures a node's other subscriptions while one endpoint is dead and one is slow."""

import statistics
import time
from typing import Any

from delivering.latency import of
from delivering.load import NumberedLoad
from delivering.node import DeliveringNode, Place
from delivering.sink import Sink
from publishing.latencies import Latencies
from publishing.load import run

_TOPICS = tuple(f"bench.topic{number}" for number in range(10))
_DEAD = "http://127.0.0.3:9/dead"
"""Nothing listens there, so connections are refused."""
_SICK = (("dead", _TOPICS[0]), ("slow", _TOPICS[1]))
_SETTLE_S = 1.0


def measure(
    place: Place,
    sink: Sink,
    *,
    subscriptions: int,
    rate_per_s: float,
    rounds: int,
    seconds: float,
    slow_s: float,
) -> dict[str, Any]:
    """Rounds without and with the two alternate, to show the machine's own noise.

    `rate_per_s` is that of deliveries to all other subscriptions together.
    """
    healthy = subscriptions - len(_SICK)
    with DeliveringNode(place) as node:
        node.wait_ready()
        node.create(*_TOPICS)
        for number in range(healthy):
            topic = _TOPICS[number % len(_TOPICS)]
            node.subscribe(topic, f"s{number}", sink.at(f"note/s{number}"))
        for (name, topic), endpoint in zip(_SICK, (_DEAD, sink.slow), strict=True):
            node.subscribe(topic, name, endpoint, requestTimeout=round(slow_s * 2_000) + 1_000)
        for number in range(healthy):
            node.wait_active(_TOPICS[number % len(_TOPICS)], f"s{number}")
        made = []
        for number in range(2 * rounds):
            is_calm = number % 2 == 0
            for name, topic in _SICK:
                node.set_state(topic, name, "SUSPENDED" if is_calm else "ACTIVE")
            # Pushes under way to the slow endpoint must end before a calm round begins.
            time.sleep(_SETTLE_S + slow_s * is_calm)
            sink.take()
            rate = rate_per_s / (healthy / len(_TOPICS))
            load = NumberedLoad(node, _TOPICS, rate, seconds)
            cpu_percent = run(load)["server_cpu_percent"]
            time.sleep(_SETTLE_S)
            latencies = Latencies()
            for key, came in sink.take().items():
                if key.startswith("s"):
                    of(came, load.start_s, latencies)
            made.append(
                {
                    "is_calm": is_calm,
                    "cpu_percent": cpu_percent,
                    "deliveries": latencies.count,
                    **latencies.summary(),
                }
            )
    calm = [each["p99_ms"] for each in made if each["is_calm"]]
    sick = [each["p99_ms"] for each in made if not each["is_calm"]]
    middle = statistics.median(calm)
    return {
        "healthy": healthy,
        "rounds": made,
        "calm_p99_ms": round(middle, 3),
        "sick_p99_ms": round(statistics.median(sick), 3),
        "moves_percent": round((statistics.median(sick) / middle - 1) * 100, 1),
        "calm_spread_percent": round((max(calm) - min(calm)) / middle * 100, 1),
    }
