"""How soon a new or resumed subscription delivers."""

import time
from typing import Any

from delivering.node import TOPIC, DeliveringNode, Place
from delivering.sink import Arrivals, Sink
from publishing.latencies import Latencies

_EACH_S = 0.01
_WITHIN_S = 30.0
_REST_S = 0.5
_ROUND = 1_000_000
"""Distance between the rounds' numbers, because a new subscription gets recently published
messages.
"""


def measure(place: Place, sink: Sink, rounds: int) -> list[dict[str, Any]]:
    """Two rows: a new subscription's first message, and a resumed one's."""
    new, resumed, missed = Latencies(), Latencies(), 0
    with DeliveringNode(place) as node:
        node.wait_ready()
        node.create(TOPIC)
        for number in range(rounds):
            name = f"new{number}"
            asked_s = time.perf_counter()
            node.subscribe(TOPIC, name, sink.at(f"note/{name}"))
            first, late_by = _first(node, sink, name, asked_s, number * _ROUND)
            new.record(first)
            missed += late_by
            node.set_state(TOPIC, name, "SUSPENDED")
            time.sleep(_REST_S)
            sink.take()
            assert node.publish(TOPIC, b'{"n": 1}') == 201, "a publish was refused"
            asked_s = time.perf_counter()
            node.set_state(TOPIC, name, "ACTIVE")
            resumed.record(_arrival(sink, name).came_s[0] - asked_s)
            node.set_state(TOPIC, name, "SUSPENDED")
    return [
        {"what": "new", **new.summary(), "missed": missed},
        {"what": "resumed", **resumed.summary(), "missed": 0},
    ]


def _first(
    node: DeliveringNode, sink: Sink, name: str, asked_s: float, begin: int
) -> tuple[float, int]:
    """Publish until a message arrives. Return the time, and how many published messages
    never came.
    """
    published: set[int] = set()
    came: dict[int, float] = {}
    while not came:
        assert time.perf_counter() < asked_s + _WITHIN_S, f"{name} is delivered nothing"
        number = begin + len(published)
        assert node.publish(TOPIC, b'{"n": %d}' % number) == 201, "a publish was refused"
        published.add(number)
        time.sleep(_EACH_S)
        came = _taken(sink, name, begin)
    first_s = min(came.values()) - asked_s
    time.sleep(_REST_S)
    return first_s, len(published - came.keys() - _taken(sink, name, begin).keys())


def _taken(sink: Sink, name: str, begin: int) -> dict[int, float]:
    """When the messages with numbers from `begin` on came."""
    came = sink.take().get(name, Arrivals.none())
    pairs = zip(came.numbers, came.came_s, strict=True)
    return {number: came_s for number, came_s in pairs if number >= begin}


def _arrival(sink: Sink, name: str) -> Arrivals:
    end_s = time.perf_counter() + _WITHIN_S
    while (came := sink.take().get(name)) is None:
        assert time.perf_counter() < end_s, f"{name} is delivered nothing"
        time.sleep(_EACH_S)
    return came
