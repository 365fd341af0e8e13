"""Filters: how fast a subscription gets through a log of which it wants 1 message in 1,000.

    python benchmarks/filters.py [--messages 200000] [--bytes 500] [--log embedded|memory|kafka]

Each row is the whole consumer (reading, filters, offsets, commits, metrics) over a sender that
answers at once. The first row is the log's bare reader with the same batches. The subscription's
rate is 400 deliveries a second. Prints messages a second and this process' CPU for each.
"""

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.consumer.senders.sender import Push, Sender, SendOutcome
from hermes_actors.log.base import Log, TopicSettings
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.subscription import Filter, Subscription
from hermes_actors.model.topic import Ack, Owner
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import IdSource, SystemClock
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.live.logs import on_kafka
from hermes_local.kafka import Cluster

TOPIC = "bench.filters"
WANTED_EVERY = 1_000
APPEND = 1_000
FILTERS = {
    "header": Filter(type="header", header="Country", matcher="PL"),
    "$.order.country, one name": Filter(
        type="jsonpath", path="$.order.country", matcher="PL", matching_strategy="all"
    ),
    "the same, (?!DE$).*": Filter(type="jsonpath", path="$.order.country", matcher="(?!DE$).*"),
    "$.lines[*].country, any": Filter(
        type="jsonpath", path="$.lines[*].country", matcher="PL", matching_strategy="any"
    ),
    "$..order.country, by library": Filter(
        type="jsonpath", path="$..order.country", matcher="PL", matching_strategy="any"
    ),
}


class Answering(Sender):
    """A sender that accepts every push at once."""

    def send(self, _push: Push, done: Callable[[SendOutcome], None]) -> None:
        """Answer 200 on the next turn of the loop."""
        trio.lowlevel.current_trio_token().run_sync_soon(done, SendOutcome(200))


def cpu_s() -> float:
    """CPU time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def body_of(number: int, size: int) -> tuple[str, bytes]:
    """The country of an order, and its JSON of about `size` bytes."""
    country = "PL" if number % WANTED_EVERY == 0 else "DE"
    head = (
        f'{{"id":{number},"order":{{"country":"{country}","total":{number / 7:.2f}}},"lines":'
        f'[{{"sku":"a-{number}","country":"{country}"}},{{"sku":"b","country":"DE"}}],"note":"'
    )
    return country, (head + "x" * (size - len(head) - 2) + '"}').encode()


async def fill(log: Log, clock: SystemClock, count: int, size: int) -> None:
    """Store the messages."""
    await log.topics.create(TOPIC, TopicSettings())
    ids = IdSource()
    for first in range(0, count, APPEND):
        batch = []
        for number in range(first, min(first + APPEND, count)):
            country, body = body_of(number, size)
            message = Message(
                id=ids.message_id(),
                body=body,
                published_at_ms=clock.now_ms(),
                dc="dc1",
                propagated=(("Country", country),),
            )
            batch.append(to_record(message))
        await log.append(TOPIC, 0, batch, Ack.LEADER)


async def read(log: Log, count: int, config: ConsumersConfig) -> None:
    """Read everything and do nothing with it."""
    seen = 0
    async with log.reader(TOPIC, {0: 0}) as reader:
        while seen < count:
            seen += len(
                await reader.next_batch(config.read_batch_records_max, config.read_batch_bytes_max)
            )


async def consume(
    log: Log, clock: SystemClock, name: str, wanted: Filter, count: int, config: ConsumersConfig
) -> None:
    """Pass everything through a consumer with this filter."""
    metrics = Metrics("hermes_consumers")
    full_name = SubscriptionName.parse(f"{TOPIC}${name}")
    body = Subscription(
        topic_name=TOPIC,
        name=name,
        endpoint="http://127.0.0.1:1/in",
        description="",
        owner=Owner("bench", "me"),
        filters=[wanted],
    )
    parts = ConsumerParts(
        log=log,
        sender_of=lambda _live: Answering(),
        clock=clock,
        rng=random.Random(1),
        ids=IdSource(),
        metrics=metrics,
        config=config,
    )
    live = LiveSubscription(full_name, body, 0, 1, 1)
    labels = {"group": "bench", "topic": "filters", "subscription": name}
    delivered = metrics.counter("subscription_delivered", **labels)
    filtered = metrics.counter("subscription_filtered_out", **labels)
    async with open_supervisor(random.Random(1), print) as supervisor:
        supervisor.start("push", lambda: PushConsumer(live, TOPIC, parts))
        while delivered.value + filtered.value < count:  # noqa: ASYNC110 -- nothing tells of it
            await trio.sleep(0.01)
        await supervisor.stop("push")
    assert delivered.value == -(-count // WANTED_EVERY), delivered.value
    committed = await log.committed(full_name.consumer_group(), TOPIC)
    assert committed[0].position == count, committed


async def measure(log: Log, options: argparse.Namespace) -> None:
    """Fill the log, then print a row for the bare reader and one for each filter."""
    clock, config, count = SystemClock(), ConsumersConfig(), options.messages
    await fill(log, clock, count, options.bytes)
    await read(log, count, config)
    print(f"{count:,} messages of {options.bytes} bytes in the {options.log} log")
    for number, (name, wanted) in enumerate([("bare reader", None), *FILTERS.items()]):
        before_s, before_cpu_s = time.monotonic(), cpu_s()
        if wanted is None:
            await read(log, count, config)
        else:
            await consume(log, clock, f"filter{number}", wanted, count, config)
        taken_s, taken_cpu_s = time.monotonic() - before_s, cpu_s() - before_cpu_s
        print(
            f"  {name:30} {count / taken_s:9,.0f} messages/s, "
            f"{taken_cpu_s / count * 1e6:5.1f} µs CPU each"
        )


async def on_this_machine(options: argparse.Namespace) -> None:
    """Measure with a log that needs no cluster."""
    if options.log == "memory":
        await measure(MemoryLog("dc1", SystemClock()), options)
        return
    with tempfile.TemporaryDirectory() as directory:
        async with open_embedded_log(directory, "dc1", SystemClock()) as log:
            await measure(log, options)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=500)
    parser.add_argument("--log", default="embedded", choices=["embedded", "memory", "kafka"])
    options = parser.parse_args()
    if options.log != "kafka":
        guest.run(on_this_machine, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), brokers=1)
        cluster.start()
        try:
            on_kafka(lambda log: measure(log, options), cluster.bootstrap_servers, within_s=600)
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
