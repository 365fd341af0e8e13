"""Whole nodes of one datacentre in one process, on a memory log, pushing into a list."""

from collections import Counter

import trio

from hermes_actors.config import Config, MetadataConfig
from hermes_actors.consumer.senders.sender import Sender, SendOutcome
from hermes_actors.log.base import Stored
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from hermes_actors.node import open_node
from hermes_actors.security.account import Credentials
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings
from hermes_chaos.wanted import subscription_body, topic_body

TOPIC = "shop.orders"
NAMES = ("billing", "mail")


class SleepingClock(SimulatedClock):
    """The clock of a machine that may have slept."""

    slept_s = 0.0

    def boottime_s(self):
        return super().boottime_s() + self.slept_s


class Cluster:
    def __init__(self, nursery):
        self.nursery = nursery
        self.log = MemoryLog("dc1", SimulatedClock())
        self.nodes = {}
        self.stops = {}
        self.clocks = {}
        # (node, subscription, body), in order.
        self.pushes = []
        self.takes_s = 0.01
        # Of subscriptions whose endpoint is slower.
        self.slow_s = {}
        self.starts = 0
        # (subscription, body) that ends the node which pushes it, and the nodes that it has ended.
        self.lethal = set()
        self.lost = []

    async def start(self, name):
        ready = trio.Event()
        # Each start is another life, with ids of its own.
        self.starts += 1
        self.stops[name] = stop = trio.Event()
        self.clocks[name] = clock = SleepingClock()
        ended = trio.Event()

        def send(push, done):
            subscription = push.route.subscription.partition("$")[2]
            self.pushes.append((name, subscription, push.body))
            if (subscription, push.body) in self.lethal:
                # As a crash: whatever is under way ends, and nobody is told.
                self.lost.append(name)
                self.nodes[name].kill()
                return
            takes_s = self.slow_s.get(subscription, self.takes_s)
            self.nursery.start_soon(self._answer, done, takes_s)

        class Handing(Sender):
            def send(self, push, done):
                send(push, done)

        is_first = not self.nodes
        config = Config(
            node=name,
            roles=["management", "consumers"] if is_first else ["consumers"],
            metadata=MetadataConfig(replicator="a"),
        )
        environment = surroundings(clock, self.log, seed=self.starts, sender=Handing())
        scope = trio.CancelScope()

        async def run():
            with scope:
                async with open_node(config, environment) as node:
                    self.nodes[name] = node
                    ready.set()
                    await stop.wait()
            ended.set()

        self.nursery.start_soon(run)
        await ready.wait()
        self.nodes[name].kill = scope.cancel
        self.nodes[name].ended = ended
        await self.nodes[name].metadata.wait_current()

    async def _answer(self, done, takes_s):
        await trio.sleep(takes_s)
        done(SendOutcome(200))

    async def stop(self, name):
        before_s = trio.current_time()
        self.stops[name].set()
        await self.nodes[name].ended.wait()
        return trio.current_time() - before_s

    async def create(self):
        administration = self.nodes["a"].administration
        caller = await administration.security.identify(Credentials())
        await administration.groups.create(caller, {"groupName": "shop"})
        await administration.topics.create(caller, topic_body(TOPIC))
        for name in NAMES:
            subscription = subscription_body(TOPIC, name, "http://sink/")
            await administration.subscriptions.create(caller, TOPIC, subscription)
        while TOPIC not in await self.log.topics():  # noqa: ASYNC110 -- the log tells no event
            await trio.sleep(0.01)

    async def publish(self, *numbers):
        now_ms = SimulatedClock().now_ms()
        for number in numbers:
            message = Message(
                id=f"m{number}", body=b"%d" % number, published_at_ms=now_ms, dc="dc1"
            )
            (outcome,) = await self.log.append(TOPIC, number % 10, [to_record(message)], Ack.LEADER)
            assert isinstance(outcome, Stored)

    def pushed(self, since=0):
        """How often each message was pushed to each subscription."""
        return Counter((name, int(body)) for _, name, body in self.pushes[since:])

    def pushers(self, since=0):
        return {(node, name) for node, name, _ in self.pushes[since:]}

    def holders(self):
        """Who owns each partition of each subscription."""
        return {
            (name, partition): node
            for name in NAMES
            for node, partitions in self.owners(name).items()
            for partition in partitions
        }

    def owners(self, name):
        state = next(iter(self.nodes.values())).coordination.state
        return {
            state.node_of(grant.boot): grant.partitions for grant in state.grants(f"{TOPIC}${name}")
        }


def once(*numbers):
    return Counter({(name, number): 1 for name in NAMES for number in numbers})
