"""A consumer over the memory log, trio's clock and a scripted sender."""

import json
import random
from collections.abc import Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.log.base import Stored, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.subscription import (
    BatchBody,
    BatchPolicy,
    DeliveryType,
    SerialPolicy,
)
from hermes_actors.model.topic import Ack, Owner
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.status.reasons import sentences
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.sim.environment.clock import EPOCH_MS, SimulatedClock
from tests.scripted_sender import OK, ScriptedSender
from tests.values import a_subscription


def status_of(consumer):
    """A consumer's figures for the status record, plus some that only tests use."""
    figures, buffer, dispatch = consumer.figures(), consumer._buffer, consumer._dispatch
    shown = msgspec.structs.asdict(figures) | {
        "level": dispatch.pace.level,
        "oldest_age_ms": consumer.reached().oldest_age_ms(consumer._clock.now_ms()),
    }
    return SimpleNamespace(
        **shown,
        why=sentences(each for each in figures.reasons if each.is_stop),
        held_back=sentences(each for each in figures.reasons if not each.is_stop),
        fresh=buffer.fresh,
        buffered_bytes=buffer.buffered_bytes,
        positions={p: each.position for p, each in consumer._progress.partitions.items()},
        dropped_headers=dispatch._pushing._head.dropped,
    )


class World:
    """One topic, one subscription, and everything needed to consume it."""

    topic = "shop.orders"

    def __init__(self, nursery, *, partitions=1, retention_ms=None, **config):
        self.nursery = nursery
        self.clock = SimulatedClock()
        self.log = MemoryLog("dc1", self.clock)
        self.settings = TopicSettings(partitions=partitions, retention_ms=retention_ms)
        self.sender = ScriptedSender(nursery, lambda _push: OK)
        self.metrics = Metrics("hermes_consumers")
        self.config = msgspec.structs.replace(ConsumersConfig(), **config)
        self.crashes = []
        self.started = []
        self.suspensions = []
        self.parts = ConsumerParts(
            log=self.log,
            sender_of=lambda _live: self.sender,
            clock=self.clock,
            rng=random.Random(1),
            ids=seeded_ids(random.Random(2)),
            metrics=self.metrics,
            config=self.config,
            suspend=lambda live, reason: self.suspensions.append((live, reason)),
        )

    def live(self, *, incarnation=7, topic_incarnation=0, policy=None, **fields):
        fields = {
            "endpoint": "http://sink/in",
            "description": "",
            "owner": Owner("test", "me"),
            "created_at": EPOCH_MS / 1_000,
            **fields,
        }
        policy = {"rate": 100_000, **(policy or {})}
        subscription = a_subscription(
            topic=self.topic, subscription_policy=SerialPolicy(**policy), **fields
        )
        name = SubscriptionName.parse(f"{self.topic}$push")
        return LiveSubscription(name, subscription, topic_incarnation, incarnation, 1)

    async def create(self):
        await self.log.topics.create(self.topic, self.settings)

    async def publish(self, *bodies, partition=0, **fields):
        batch = [
            to_record(
                Message(
                    id=f"id-{body.decode(errors='replace')}",
                    body=body,
                    published_at_ms=self.clock.now_ms(),
                    dc="dc1",
                    **fields,
                )
            )
            for body in bodies
        ]
        outcomes = await self.log.append(self.topic, partition, batch, Ack.LEADER)
        assert all(isinstance(outcome, Stored) for outcome in outcomes)

    @asynccontextmanager
    async def consuming(self, live=None, *, keeps_letters=False, **arguments):
        """A supervised consumer for the duration of the block, stopped at its end."""
        live = live or self.live()
        made = []

        def make():
            config = self.parts.config
            letters = msgspec.structs.replace(
                config.dead_letters, enabled=keeps_letters and config.dead_letters.enabled
            )
            consumer = PushConsumer(
                live,
                self.topic,
                msgspec.structs.replace(
                    self.parts, config=msgspec.structs.replace(config, dead_letters=letters)
                ),
                on_started=lambda: self.started.append(1),
                **arguments,
            )
            made.append(consumer)
            return consumer

        async with open_supervisor(random.Random(3), self.crashes.append) as supervisor:
            ref = supervisor.start("consumer", make, restart=TENANT)
            await trio.testing.wait_all_tasks_blocked()
            yield SimpleNamespace(
                ref=ref,
                supervisor=supervisor,
                made=made,
                stop=lambda: supervisor.stop("consumer", grace_s=60),
                status=lambda: status_of(made[-1]),
            )
            await supervisor.stop("consumer", grace_s=60)

    async def committed(self, partition=0):
        return (await self.log.committed("shop_orders_push", self.topic)).get(partition)

    def count(self, name, **labels):
        labels = {"group": "shop", "topic": "orders", "subscription": "push", **labels}
        return self.metrics.counter(f"subscription_{name}", **labels).value


@pytest.fixture
def make_world(nursery) -> Callable[..., World]:
    return lambda **arguments: World(nursery, **arguments)


@pytest.fixture
async def world(make_world):
    world = make_world()
    await world.create()
    return world


@pytest.fixture
def trio_clock():
    return SimulatedClock()


class Batches:
    """The world's subscription with batch delivery."""

    def __init__(self, world):
        self.world = world

    def live(self, *, stamp=1, policy=None, **fields):
        live = self.world.live(**fields)
        policy = BatchPolicy(**{"body": BatchBody.MESSAGES, "batch_time": 1_000, **(policy or {})})
        body = msgspec.structs.replace(
            live.subscription, delivery_type=DeliveryType.BATCH, subscription_policy=policy
        )
        return msgspec.structs.replace(live, subscription=body, stamp=stamp)

    def consuming(self, policy=None, *, keeps_letters=False, **fields):
        live = self.live(policy=policy, **fields)
        return self.world.consuming(live, keeps_letters=keeps_letters)

    @property
    def sent(self):
        return [json.loads(body) for body in self.world.sender.bodies]

    @property
    def times_s(self):
        return self.world.sender.times_s

    def headers(self, number):
        lines = self.world.sender.pushes[number].lines.decode().split("\r\n")
        return dict(line.split(": ", 1) for line in lines if line)

    @staticmethod
    def numbers(count):
        return [b"%d" % n for n in range(count)]


@pytest.fixture
def batches(world):
    return Batches(world)


@pytest.fixture
async def batches_of_three_partitions(make_world):
    world = make_world(partitions=3)
    await world.create()
    return Batches(world)
