"""In this process: the bare sender, and the consumer's whole path over a log, to the same sink."""

import random
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import ConsumersConfig, EndpointsConfig
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.recipients.headers import request_head
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.consumer.senders.sender import Push, Sender, SendOutcome
from hermes_actors.log.base import Log, TopicSettings
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.subscription import SerialPolicy, Subscription
from hermes_actors.model.topic import Ack, Owner
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import IdSource, SystemClock
from hermes_actors.security.address_guard import AddressGuard
from hermes_actors.telemetry.metrics import Metrics

TOPIC = "bench.deliver"
_WINDOW = 100
_BATCH = 1_000
_WARM_UP = 2_000


def measure(log: str, endpoint: str, body: bytes, count: int) -> list[dict[str, Any]]:
    """A row for each of the two; `log` is memory or embedded."""
    rows: list[dict[str, Any]] = []
    guest.run(_main, log, endpoint, body, count, rows, host="uvloop")
    return rows


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _subscription(endpoint: str) -> LiveSubscription:
    name = SubscriptionName.parse(f"{TOPIC}$push")
    policy = SerialPolicy(rate=10_000_000, inflight_size=_WINDOW, request_timeout=10_000)
    body = Subscription(
        topic_name=TOPIC,
        name="push",
        endpoint=endpoint,
        description="",
        owner=Owner("bench", "me"),
        subscription_policy=policy,
    )
    return LiveSubscription(name, body, 0, 1, 1)


class _Wait:
    """Done when `count` outcomes have come. Uses a trio Event, set from the sender's callback."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.failed = 0
        self.event = trio.Event()

    def note(self, outcome: SendOutcome) -> None:
        """Count an outcome."""
        self.left -= 1
        self.failed += not outcome.is_success
        if not self.left:
            self.event.set()


async def _bare(sender: Sender, live: LiveSubscription, body: bytes, count: int) -> int:
    """The sender alone: a window of pushes in flight, and each outcome starts the next."""
    head = request_head(live.subscription, "")
    route = parse_endpoint(live.subscription.endpoint, "bare").resolve(body)
    wait = _Wait(count)
    started = 0

    def start() -> None:
        nonlocal started
        started += 1
        message = Message(id="0" * 36, body=body, published_at_ms=1)
        lines = head.lines(head.message_lines(message), 0)
        sender.send(Push(route, lines, body, 10_000), done)

    def done(outcome: SendOutcome) -> None:
        wait.note(outcome)
        if started < count:
            start()

    for _ in range(min(_WINDOW, count)):
        start()
    await wait.event.wait()
    return wait.failed


async def _whole(
    sender: Sender, live: LiveSubscription, log: Log, clock: SystemClock, count: int
) -> int:
    """The consumer: log, decoding, window, offsets, commits, metrics, sender."""
    metrics = Metrics("hermes_consumers")
    parts = ConsumerParts(
        log=log,
        sender_of=lambda _live: sender,
        clock=clock,
        rng=random.Random(1),
        ids=IdSource(),
        metrics=metrics,
        config=ConsumersConfig(),
    )
    labels = {"group": "bench", "topic": "deliver", "subscription": "push"}
    delivered = metrics.counter("subscription_delivered", **labels)
    async with open_supervisor(random.Random(1), print) as supervisor:
        supervisor.start("push", lambda: PushConsumer(live, TOPIC, parts))
        while delivered.value < count:  # noqa: ASYNC110 -- nothing tells of a counter
            await trio.sleep(0.02)
        await supervisor.stop("push")
    committed = await log.committed(live.name.consumer_group(), TOPIC)
    assert committed[0].position == count, committed
    return metrics.counter("subscription_failures", **labels).value


async def _main(
    kind: str, endpoint: str, body: bytes, count: int, rows: list[dict[str, Any]]
) -> None:
    clock = SystemClock()
    if kind == "memory":
        await _measure(MemoryLog("dc1", clock), clock, endpoint, body, count, rows)
        return
    with tempfile.TemporaryDirectory() as directory:
        async with open_embedded_log(directory, "dc1", clock) as log:
            await _measure(log, clock, endpoint, body, count, rows)


async def _measure(
    log: Log,
    clock: SystemClock,
    endpoint: str,
    body: bytes,
    count: int,
    rows: list[dict[str, Any]],
) -> None:
    """Fill the log, then measure both."""
    await log.topics.create(TOPIC, TopicSettings())
    ids = IdSource()
    for first in range(0, count, _BATCH):
        batch = [
            to_record(
                Message(id=ids.message_id(), body=body, published_at_ms=clock.now_ms(), dc="dc1")
            )
            for _ in range(min(_BATCH, count - first))
        ]
        await log.append(TOPIC, 0, batch, Ack.LEADER)
    live = _subscription(endpoint)
    limits = PoolLimits(connections_max=_WINDOW)
    guard = AddressGuard(EndpointsConfig(allow_loopback=True))
    async with open_http1_sender(limits, guard=guard) as sender:
        # Warm up connections and caches.
        await _bare(sender, live, body, min(count, _WARM_UP))
        runs: list[tuple[str, Callable[[], Awaitable[int]]]] = [
            ("bare sender", lambda: _bare(sender, live, body, count)),
            ("whole path", lambda: _whole(sender, live, log, clock, count)),
        ]
        for name, run in runs:
            before_s, before_cpu_s = time.perf_counter(), _cpu_s()
            failed = await run()
            took_s, took_cpu_s = time.perf_counter() - before_s, _cpu_s() - before_cpu_s
            rows.append(
                {
                    "what": name,
                    "deliveries": count,
                    "deliveries_per_s": round(count / took_s),
                    "cpu_us_each": round(took_cpu_s / count * 1e6, 1),
                    "failed": failed,
                }
            )
