"""Measures one subscription on a long log, on a node with all roles."""

import time
from collections.abc import Iterator
from typing import Any

from delivering.node import TOPIC, DeliveringNode, Place
from delivering.sink import Counted, Sink
from publishing.load import cpu_s
from publishing.messages import Messages

_NAME = "sustained"
_BATCH = 5_000
_STALLED_S = 60.0
_QUIET_S = 2.0


def measure(place: Place, sink: Sink, messages: Messages, count: int) -> dict[str, Any]:
    """Fill the log while the subscription is suspended, then let a fresh node deliver
    everything.
    """
    with DeliveringNode(place) as node:
        node.wait_ready()
        node.create(TOPIC)
        node.subscribe(TOPIC, _NAME, sink.at("count"))
        node.wait_active(TOPIC, _NAME)
        time.sleep(_QUIET_S)
        node.set_state(TOPIC, _NAME, "SUSPENDED")
        time.sleep(_QUIET_S)
        sink.counted()
        for batch in _batches(messages, count):
            status = node.publish(TOPIC, batch, "application/x-ndjson")
            assert status in (200, 207), f"a batch is answered {status}"
    with DeliveringNode(place) as node:
        node.wait_serving()
        time.sleep(_QUIET_S)
        node.set_state(TOPIC, _NAME, "ACTIVE")
        return _drained(node, sink, count)


def _batches(messages: Messages, count: int) -> Iterator[bytes]:
    kinds = messages.bodies
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        yield b"".join(kinds[number % len(kinds)] + b"\n" for number in numbers)


def _drained(node: DeliveringNode, sink: Sink, count: int) -> dict[str, Any]:
    """Measure from the first look that sees a delivery until the last delivery."""
    pid = node.process.pid
    begun_s = heard_s = time.perf_counter()
    start_s = last_s = first_s = start_cpu_s = end_cpu_s = 0.0
    start = taken = 0
    memory_mib = 0.0
    while taken < count:
        time.sleep(0.02)
        seen: Counted = sink.counted()
        now_s = time.perf_counter()
        if not seen.messages:
            assert now_s < heard_s + _STALLED_S, f"{taken} of {count} came, then nothing more"
            continue
        heard_s, taken, last_s, end_cpu_s = now_s, taken + seen.messages, seen.last_s, cpu_s(pid)
        if not start:
            start, start_s, start_cpu_s, first_s = taken, now_s, end_cpu_s, seen.last_s
        memory_mib = max(memory_mib, node.memory_mib())
    time.sleep(_QUIET_S)
    again = taken + sink.counted().messages - count
    measured, took_s = max(1, taken - start), max(last_s - start_s, 1e-9)
    cpu_us = (end_cpu_s - start_cpu_s) / measured * 1e6
    return {
        "what": "node",
        "deliveries": count,
        "deliveries_per_s": round(measured / took_s),
        "cpu_us_each": round(cpu_us, 1),
        "per_core_per_s": round(1e6 / cpu_us) if cpu_us else None,
        "memory_mib": memory_mib,
        "first_after_s": round(first_s - begun_s, 2),
        "more_than_once": again,
    }
