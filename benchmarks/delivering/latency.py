"""Latency from when a message was due at its publisher until its subscriber has it."""

import time
from typing import Any

from delivering.load import NumberedLoad
from delivering.node import TOPIC, DeliveringNode, Place
from delivering.sink import Arrivals, Sink
from publishing.latencies import Latencies
from publishing.load import run

_NAME = "latency"
_SETTLE_S = 1.0


def measure(
    place: Place, sink: Sink, rates_per_s: list[float], seconds: float
) -> list[dict[str, Any]]:
    """A row for each rate, one after another on one node."""
    rows = []
    with DeliveringNode(place) as node:
        node.wait_ready()
        node.create(TOPIC)
        node.subscribe(TOPIC, _NAME, sink.at(f"note/{_NAME}"))
        node.wait_active(TOPIC, _NAME)
        for rate in rates_per_s:
            time.sleep(_SETTLE_S)
            sink.take()
            load = NumberedLoad(node, (TOPIC,), rate, seconds)
            published = run(load)
            time.sleep(_SETTLE_S)
            came = sink.take().get(_NAME, Arrivals.none())
            rows.append(
                {
                    "rate_per_s": rate,
                    **of(came, load.start_s).summary(),
                    "missing": len(set(load.numbers) - set(came.numbers)),
                    "published": published,
                }
            )
    return rows


def of(came: Arrivals, start_s: float, into: Latencies | None = None) -> Latencies:
    """The latencies of messages due from then on, added to `into`."""
    latencies = into or Latencies()
    for due_s, came_s in zip(came.due_s, came.came_s, strict=True):
        if due_s >= start_s:
            latencies.record(came_s - due_s)
    return latencies
