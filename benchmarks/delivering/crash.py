"""A node is killed while it delivers, with failing messages: what comes twice, and what never
comes.
"""

import threading
import time
from collections import Counter
from math import isinf
from typing import Any

from delivering.load import NumberedLoad
from delivering.node import TOPIC, DeliveringNode, Place
from delivering.sink import Sink, is_failing
from publishing.load import WARM_UP_S, run

_NAME = "crash"
_BEFORE_END_S = 0.3
_SECOND = 1_000_000_000
"""The first number of the second node's messages."""
_WITHIN_S = 120.0
_QUIET_S = 2.0


def measure(place: Place, sink: Sink, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Load one node, kill it, load the next one on the same log; after that nothing
    fails any more.
    """
    sink.fail()
    sink.take()
    with DeliveringNode(place) as node:
        node.wait_ready()
        node.create(TOPIC)
        node.subscribe(TOPIC, _NAME, sink.at(f"fail/{_NAME}"))
        node.wait_active(TOPIC, _NAME)
        before = NumberedLoad(node, (TOPIC,), rate_per_s, seconds)
        killing = threading.Timer(WARM_UP_S + seconds - _BEFORE_END_S, node.kill)
        killing.start()
        try:
            run(before)
        finally:
            killing.join()
    delivered: Counter[int] = Counter()
    _noted(sink, delivered)
    started_s = time.perf_counter()
    with DeliveringNode(place) as node:
        node.wait_serving(TOPIC)
        after = NumberedLoad(node, (TOPIC,), rate_per_s, max(1.0, seconds / 10), _SECOND)
        run(after)
        wanted = {*before.numbers, *after.numbers}
        first_s = _noted(sink, delivered)
        missing = wanted - delivered.keys()
        failing = sum(is_failing(number) for number in missing)
        sink.mend()
        end_s = time.perf_counter() + _WITHIN_S
        while wanted - delivered.keys() and time.perf_counter() < end_s:
            time.sleep(0.1)
            first_s = min(first_s, _noted(sink, delivered))
        time.sleep(_QUIET_S)
        _noted(sink, delivered)
    twice = sum(times - 1 for times in delivered.values())
    return {
        "rate_per_s": rate_per_s,
        "seconds": seconds,
        "acknowledged": len(wanted),
        "failing": failing,
        "late": len(missing) - failing,
        "lost": len(wanted - delivered.keys()),
        "twice": twice,
        "twice_ms": round(twice / rate_per_s * 1_000),
        "first_after_start_s": None if isinf(first_s) else round(first_s - started_s, 2),
    }


def _noted(sink: Sink, delivered: "Counter[int]") -> float:
    """Count the messages since the last call. Return when the first came, infinity if none did."""
    came = sink.take().get(_NAME)
    if came is None:
        return float("inf")
    delivered.update(came.numbers)
    return came.came_s[0]
