"""Delivery: one subscription's whole path beside the bare sender, to a sink in another process.

    python benchmarks/deliver.py [--messages 100000] [--window 100] [--bytes 1024] [--log memory]

Prints deliveries a second and this process' CPU for each. One run takes well under 30 s; on shared
machines differences under 20 % are noise.
"""

import argparse
import asyncio
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import cast

import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import ConsumersConfig, EndpointsConfig
from hermes_actors.consumer.endpoint import parse_endpoint
from hermes_actors.consumer.headers import request_head
from hermes_actors.consumer.http1 import open_http1_sender
from hermes_actors.consumer.http1_pool import PoolLimits
from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.sender import Push, Sender, SendOutcome
from hermes_actors.consumer.serial import SerialConsumer
from hermes_actors.log.base import Log, TopicSettings
from hermes_actors.log.embedded import open_embedded_log
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
BATCH = 1_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Sink(asyncio.Protocol):
    """Answers 200 to whatever has the length of a request; parses nothing else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with nothing."""
        self.transport = cast("asyncio.Transport", transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        data = self.buffer + data
        answers = 0
        while (end := data.find(b"\r\n\r\n")) >= 0:
            at = data.find(b"Content-Length: ") + 16
            length = int(data[at : data.find(b"\r", at)])
            if len(data) < end + 4 + length:
                break
            data = data[end + 4 + length :]
            answers += 1
        self.buffer = data
        if answers:
            self.transport.write(ANSWER * answers)


def run_sink(pipe: Connection) -> None:
    """The sink's process; says its port through the pipe."""
    import uvloop

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


def cpu_s() -> float:
    """CPU time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def subscription(endpoint: str, window: int) -> LiveSubscription:
    """A subscription without a limit that matters."""
    name = SubscriptionName.parse(f"{TOPIC}$push")
    policy = SerialPolicy(rate=10_000_000, inflight_size=window, request_timeout=10_000)
    body = Subscription(
        topic_name=TOPIC,
        name="push",
        endpoint=endpoint,
        description="",
        owner=Owner("bench", "me"),
        subscription_policy=policy,
    )
    return LiveSubscription(name, body, 0, 1, 1)


class Wait:
    """Done when `count` outcomes have come; an Event of trio, set from the sender's callback."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.failed = 0
        self.event = trio.Event()

    def note(self, outcome: SendOutcome) -> None:
        """One more has come."""
        self.left -= 1
        self.failed += not outcome.is_success
        if not self.left:
            self.event.set()


async def bare(sender: Sender, live: LiveSubscription, body: bytes, count: int, window: int) -> int:
    """The sender alone: `window` pushes in flight, each outcome starts the next."""
    head = request_head(live.subscription, "")
    route = parse_endpoint(live.subscription.endpoint, "bare").resolve(body)
    wait = Wait(count)
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

    for _ in range(min(window, count)):
        start()
    await wait.event.wait()
    return wait.failed


async def whole(
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
        supervisor.start("push", lambda: SerialConsumer(live, TOPIC, parts))
        while delivered.value < count:  # noqa: ASYNC110 -- nothing tells of a counter
            await trio.sleep(0.02)
        await supervisor.stop("push")
    committed = await log.committed(live.name.consumer_group(), TOPIC)
    assert committed[0].position == count, committed
    return metrics.counter("subscription_failures", **labels).value


async def main(options: argparse.Namespace, port: int) -> None:
    """Measure over the log asked for."""
    clock = SystemClock()
    if options.log == "memory":
        await measure(options, port, MemoryLog("dc1", clock), clock)
        return
    with tempfile.TemporaryDirectory() as directory:
        async with open_embedded_log(directory, "dc1", clock) as log:
            await measure(options, port, log, clock)


async def measure(options: argparse.Namespace, port: int, log: Log, clock: SystemClock) -> None:
    """Fill the log, then measure both."""
    await log.create_topic(TOPIC, TopicSettings())
    ids = IdSource()
    body = b'{"x":"' + b"y" * (options.bytes - 8) + b'"}'
    for first in range(0, options.messages, BATCH):
        batch = [
            to_record(
                Message(id=ids.message_id(), body=body, published_at_ms=clock.now_ms(), dc="dc1")
            )
            for _ in range(min(BATCH, options.messages - first))
        ]
        await log.append(TOPIC, 0, batch, Ack.LEADER)
    count = options.messages
    live = subscription(f"http://127.0.0.1:{port}/in", options.window)
    limits = PoolLimits(connections_max=options.window)
    guard = AddressGuard(EndpointsConfig(allow_loopback=True))
    async with open_http1_sender(limits, guard=guard) as sender:
        await bare(sender, live, body, 2_000, options.window)  # connections and caches are warm
        runs: list[tuple[str, Callable[[], Awaitable[int]]]] = [
            ("bare sender", lambda: bare(sender, live, body, count, options.window)),
            ("whole path ", lambda: whole(sender, live, log, clock, count)),
        ]
        for name, run in runs:
            before_s, before_cpu_s = time.monotonic(), cpu_s()
            failed = await run()
            taken_s, taken_cpu_s = time.monotonic() - before_s, cpu_s() - before_cpu_s
            print(
                f"{name}: {count / taken_s:9,.0f} deliveries/s, "
                f"{taken_cpu_s / count * 1e6:5.1f} µs CPU each, {failed} failed"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--host", default="uvloop", choices=["uvloop", "asyncio"])
    parser.add_argument("--log", default="memory", choices=["memory", "embedded"])
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_sink, args=(theirs,), daemon=True)
    process.start()
    try:
        guest.run(main, arguments, ours.recv(), host=arguments.host)
    finally:
        process.terminate()
        process.join()
