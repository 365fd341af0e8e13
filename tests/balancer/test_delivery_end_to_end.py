"""Metadata, agent, consumer and log together, as a node has them, without HTTP."""

import random
from contextlib import asynccontextmanager

import pytest
import trio

from hermes_actors.config import Config, ManagementConfig
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.log.base import LATEST, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.bodies import subscription_body, topic_body
from hermes_actors.metadata.commands import Accepted, delete, put
from hermes_actors.metadata.keys import seek_key, subscription_key, topic_key
from hermes_actors.metadata.seek import SeekBody, seek_body
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.subscription import (
    BatchBody,
    BatchPolicy,
    DeliveryType,
    SubscriptionState,
)
from hermes_actors.model.topic import Ack
from hermes_actors.node import open_node
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import EPOCH_MS, SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings
from tests.balancer.agent_scene import why
from tests.scripted_sender import ScriptedSender
from tests.values import a_subscription, a_topic

TOPIC = TopicName("shop", "orders")
NAME = SubscriptionName(TOPIC, "push")


class Node:
    """A consuming node; each time that it runs is another life of it."""

    def __init__(self, nursery):
        self.clock = SimulatedClock()
        self.log = MemoryLog("dc1", self.clock)
        self.outcome = SendOutcome(200)
        self.sink = ScriptedSender(nursery, lambda _push: (0.001, self.outcome))
        self.ids = seeded_ids(random.Random(1))
        self.lives = 0

    @asynccontextmanager
    async def running(self):
        self.lives += 1
        environment = surroundings(self.clock, self.log, seed=self.lives, sender=self.sink)
        config = Config(roles=["consumers"], management=ManagementConfig(topic_partitions=2))
        async with open_node(config, environment) as node:
            self.metadata, self.metrics = node.metadata, node.metrics
            await node.metadata.wait_current()
            yield node.agent

    async def change(self, change):
        outcome = await self.metadata.change(change)
        assert isinstance(outcome, Accepted), outcome
        return outcome

    async def create_topic(self):
        topic = a_topic(str(TOPIC))
        await self.change(put(topic_key(TOPIC), topic_body(topic)))
        live = self.metadata.catalog.topics[str(TOPIC)]
        await self.log.topics.create(live.log_topic, TopicSettings(partitions=2))

    async def subscribe(self, **fields):
        fields = {"endpoint": "http://sink/in", "created_at": EPOCH_MS / 1_000, **fields}
        body = a_subscription(topic=str(TOPIC), **fields)
        incarnation = self.metadata.catalog.topics[str(TOPIC)].incarnation
        await self.change(put(subscription_key(NAME), subscription_body(body, incarnation)))

    async def seek(self, positions):
        live = self.metadata.catalog.subscriptions[str(NAME)]
        body = SeekBody(live.incarnation, live.topic_incarnation, {"dc1": positions})
        await self.change(put(seek_key(NAME), seek_body(body)))

    async def publish(self, *bodies):
        live = self.metadata.catalog.topics[str(TOPIC)]
        for number, body in enumerate(bodies):
            message = Message(
                id=self.ids.message_id(), body=body, published_at_ms=self.clock.now_ms(), dc="dc1"
            )
            await self.log.append(live.log_topic, number % 2, [to_record(message)], Ack.LEADER)


@pytest.fixture
def node(nursery, caplog):
    yield Node(nursery)
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def test_a_subscription_is_delivered_from_its_creation_to_its_deletion(node, autojump_clock):
    async with node.running() as agent:
        await node.create_topic()
        await node.subscribe()
        await trio.sleep(1)
        assert node.metadata.catalog.subscriptions[str(NAME)].state is SubscriptionState.ACTIVE
        await node.publish(b"0", b"1", b"2")
        await trio.sleep(1)
        assert sorted(node.sink.bodies) == [b"0", b"1", b"2"]

        await node.subscribe(endpoint="http://sink/new")
        await node.publish(b"3")
        await trio.sleep(1)
        assert node.sink.pushes[-1].route.target == "/new"

        await node.subscribe(state=SubscriptionState.SUSPENDED)
        await trio.sleep(1)
        await node.publish(b"4")
        await trio.sleep(5)
        assert len(node.sink.bodies) == 4
        assert why(agent, str(NAME)).startswith("suspended since ")

        await node.subscribe(state=SubscriptionState.ACTIVE)
        await trio.sleep(1)
        assert node.sink.bodies[4:] == [b"4"]
        shown = render(node.metrics).decode()
        assert (
            'subscription_delivered_total{group="shop",subscription="push",topic="orders"} 5'
            in (shown)
        )

        await node.change(delete(subscription_key(NAME)))
        # Until the agent has heard of it, messages may still be pushed.
        await trio.sleep(1)
        await node.publish(b"5")
        await trio.sleep(5)
        assert len(node.sink.bodies) == 5
        assert agent.subscriptions() == []
        assert 'subscription="push"' not in render(node.metrics).decode()

        # The same name again is another subscription: it starts at its own creation.
        await trio.sleep(60)
        await node.subscribe(created_at=node.clock.now_ms() / 1_000)
        await node.publish(b"6")
        await trio.sleep(1)
        assert node.sink.bodies[5:] == [b"6"]
        assert node.metadata.catalog.subscriptions[str(NAME)].state is SubscriptionState.ACTIVE


async def test_an_endpoint_that_is_gone_suspends_and_whoever_resumes_loses_nothing(
    node, autojump_clock
):
    async with node.running() as agent:
        await node.create_topic()
        await node.subscribe()
        node.outcome = SendOutcome(410)
        await node.publish(*(b"%d" % n for n in range(300)))
        await trio.sleep(1)
        live = node.metadata.catalog.subscriptions[str(NAME)]
        assert live.state is SubscriptionState.SUSPENDED
        assert "HTTP 410" in live.suspension.reason
        assert why(agent, str(NAME)) == f"the broker has suspended it: {live.suspension.reason}"
        # No more than what was in flight when the first answer came.
        assert len(node.sink.bodies) <= 100
        await trio.sleep(60)
        assert len(node.sink.bodies) <= 100

        node.outcome = SendOutcome(200)
        node.sink.pushes.clear()
        await node.subscribe(state=SubscriptionState.ACTIVE)
        await trio.sleep(1)
        assert sorted(node.sink.bodies) == sorted(b"%d" % n for n in range(300))
        live = node.metadata.catalog.subscriptions[str(NAME)]
        assert (live.state, live.suspension) == (SubscriptionState.ACTIVE, None)


BATCH = {
    "delivery_type": DeliveryType.BATCH,
    "subscription_policy": BatchPolicy(batch_time=500, body=BatchBody.MESSAGES),
}


async def test_a_live_subscription_changes_from_serial_to_batch_and_back(node, autojump_clock):
    async with node.running() as agent:
        await node.create_topic()
        await node.subscribe()
        await node.publish(b"0")
        await trio.sleep(1)
        await node.subscribe(**BATCH)
        await trio.sleep(1)
        await node.publish(b"1", b"2")
        await trio.sleep(1)
        # They lie in two partitions, of which either may be read first.
        assert node.sink.bodies in ([b"0", b"[1,2]"], [b"0", b"[2,1]"])
        figures = agent.figures(str(NAME))
        assert (figures.counts.delivered, figures.counts.batches) == (3, 1)
        await node.subscribe()
        await trio.sleep(1)
        await node.publish(b"3", b"4")
        await trio.sleep(1)
        assert sorted(node.sink.bodies[2:]) == [b"3", b"4"]


async def test_a_batch_that_waits_for_its_retry_stops_with_its_subscription(node, autojump_clock):
    # Hermes stops such a subscription when its time to live has passed, or after 300 s.
    async with node.running() as agent:
        await node.create_topic()
        node.outcome = SendOutcome(503)
        await node.subscribe(**BATCH)
        await node.publish(b"1")
        await trio.sleep(5)
        attempts = len(node.sink.bodies)
        assert attempts > 2
        await node.subscribe(state=SubscriptionState.SUSPENDED, **BATCH)
        await trio.sleep(1)
        assert why(agent, str(NAME)).startswith("suspended since ")
        attempts = len(node.sink.bodies)
        await trio.sleep(60)
        assert len(node.sink.bodies) == attempts
        node.outcome = SendOutcome(200)
        await node.subscribe(state=SubscriptionState.ACTIVE, **BATCH)
        await trio.sleep(2)
        assert node.sink.bodies[attempts:] == [b"[1]"]
        await trio.sleep(5)
        assert len(node.sink.bodies) == attempts + 1


async def test_a_node_that_stops_and_starts_delivers_nothing_twice(node, autojump_clock):
    async with node.running():
        await node.create_topic()
        await node.subscribe()
        await node.publish(*(b"%d" % n for n in range(50)))
        await trio.sleep(2)
    await node.publish(*(b"%d" % n for n in range(50, 60)))
    async with node.running():
        await trio.sleep(5)
    assert sorted(node.sink.bodies, key=int) == [b"%d" % n for n in range(60)]


@pytest.mark.slow
async def test_suspending_activating_and_retransmitting_under_load_lose_nothing(
    node, autojump_clock
):
    async with node.running(), trio.open_nursery() as nursery:
        await node.create_topic()
        await node.subscribe()
        await trio.sleep(1)

        async def publish():
            for n in range(0, 2_000, 2):
                await node.publish(b"%d" % n, b"%d" % (n + 1))
                await trio.sleep(0.01)

        nursery.start_soon(publish)
        for pause_s, positions in ((0.4, {0: 3}), (1.3, {0: 20, 1: 5}), (0.7, {1: 0}), (2.0, {})):
            await trio.sleep(pause_s)
            await node.subscribe(state=SubscriptionState.SUSPENDED)
            await trio.sleep(0.2)
            delivered = len(node.sink.bodies)
            await node.seek(positions)
            await trio.sleep(1)
            # Suspended, it is moved and delivers nothing.
            assert len(node.sink.bodies) == delivered
            commits = await node.log.committed("shop_orders_push", str(TOPIC))
            assert {p: commits[p].position for p in positions} == positions
            await node.subscribe(state=SubscriptionState.ACTIVE)
            await trio.sleep(0.3)
            await node.seek(positions)
        await trio.sleep(20)
        numbers = {b"%d" % n for n in range(2_000)}
        assert set(node.sink.bodies) == numbers
        ends = await node.log.positions(str(TOPIC), LATEST)
        commits = await node.log.committed("shop_orders_push", str(TOPIC))
        assert {p: commit.position for p, commit in commits.items()} == ends
