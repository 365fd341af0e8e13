"""An agent whose consumers only record, over hand-written metadata and coordination."""

import random
from contextlib import asynccontextmanager

import trio

from hermes_actors.balancer.agent import Agent
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Spent
from hermes_actors.errors import Unavailable
from hermes_actors.metadata.bodies import subscription_body, topic_body
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Accepted
from hermes_actors.metadata.keys import seek_key, subscription_key, topic_key
from hermes_actors.metadata.seek import SeekBody, seek_body
from hermes_actors.metadata.state import Register
from hermes_actors.metadata.watch import Watch
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.status.lag import Reached
from hermes_actors.status.reasons import sentences
from hermes_actors.status.record import Flow, SubscriptionFigures
from tests.balancer.hand_coordination import HandCoordination
from tests.values import a_subscription, a_topic


class FoldedMetadata:
    """A catalog in which registers are set by hand: the fold without a log."""

    dc = "dc1"

    def __init__(self):
        self.catalog = Catalog()
        self.is_failing = False
        self.changes = []
        self._watches = []
        self._stamp = 0

    def watch(self):
        watch = Watch(self.catalog, self._watches.remove)
        self._watches.append(watch)
        return watch

    def put(self, key, body, incarnation=0):
        self._stamp += 1
        for change in self.catalog.apply(Register(key, incarnation, self._stamp, "dc1", body)):
            for watch in self._watches:
                watch.note(change)

    async def change(self, change):
        await trio.lowlevel.checkpoint()
        self.changes.append(change)
        if self.is_failing:
            raise Unavailable("the log is away")
        self.put(change.key, change.body)
        return Accepted(0, self._stamp)


class RecordingConsumer:
    def __init__(self, factory, live, owned, on_started):
        self.factory = factory
        self.live = live
        self.owned = owned
        self.on_started = on_started
        self.spendings = Spent()

    def spent(self):
        return self.spendings

    def known(self):
        return RateState("SLOW", 1.0)

    def hand_over(self):
        self.factory.events.append(("hand over", str(self.live.name), self.owned.partitions))

    def figures(self):
        return SubscriptionFigures(counts=Flow(delivered=3), inflight=2, waiting_retries=1)

    def reached(self):
        return Reached("shop.orders", {0: 5}, self.factory.oldest_ms)

    async def run(self, inbox):
        name = str(self.live.name)
        self.factory.events.append(("start", name, self.live.subscription.endpoint))
        if self.factory.is_broken:
            raise RuntimeError("broken")
        self.on_started()
        async for live in inbox:
            self.factory.events.append(("update", name, live.subscription.endpoint))
        await trio.sleep(self.factory.stop_s)
        self.factory.events.append(("stop", name, self.live.subscription.endpoint))


class RecordingFactory:
    def __init__(self):
        self.events = []
        self.made = []
        self.is_broken = False
        self.oldest_ms = None
        self.stop_s = 0.0

    def refusal(self, live, topic):
        return "not this one" if live.subscription.endpoint.startswith("jms:") else ""

    def make(self, live, topic, owned, on_started):
        consumer = RecordingConsumer(self, live, owned, on_started)
        self.made.append(consumer)
        return consumer


class World:
    def __init__(self):
        self.metadata = FoldedMetadata()
        self.factory = RecordingFactory()
        self.gone = []
        self.at_rest = {}
        self.cluster = HandCoordination()
        self.cpu_s = 0.0
        # As a leader would: assign new subscriptions to this node.
        self.is_planned = True
        self.put_topic()

    def put_topic(self, incarnation=0, body=True):
        topic = a_topic()
        key = topic_key(TopicName("shop", "orders"))
        self.metadata.put(key, topic_body(topic) if body else None, incarnation)

    def put(
        self, name="push", *, incarnation=0, topic_incarnation=0, endpoint="http://a", **fields
    ):
        subscription = a_subscription(name, endpoint=endpoint, **fields)
        self.metadata.put(
            subscription_key(SubscriptionName.parse(f"shop.orders${name}")),
            subscription_body(subscription, topic_incarnation),
            incarnation,
        )
        if self.is_planned and self.cluster.state.leader:
            self.plan_all()

    def plan(self, name=None, *targets):
        self.cluster.plan(name or PUSH, *(targets or [("b1", (0,))]))

    def plan_all(self):
        for name in sorted(self.metadata.catalog.subscriptions):
            if not self.cluster.state.targets_of(name):
                self.plan(name)

    def used_s(self):
        return self.cpu_s

    cores = 4.0

    def available(self, now_s):
        return self.cores / 2

    def seek(self, position):
        body = seek_body(SeekBody(0, 0, {"dc1": {0: position}}))
        self.metadata.put(seek_key(SubscriptionName.parse(PUSH)), body)

    def delete(self, name="push", incarnation=1):
        key = subscription_key(SubscriptionName.parse(f"shop.orders${name}"))
        self.metadata.put(key, None, incarnation)

    def keep(self, live, log_topic, owned):
        self.at_rest[str(live.name)] = (log_topic, live.seek, self.kinds)

    def release(self, name):
        self.at_rest.pop(name, None)

    def reached(self, name):
        return Reached("shop.orders", {0: 4}) if name in self.at_rest else Reached()

    @asynccontextmanager
    async def running(self):
        cluster = self.cluster
        agent = Agent(
            self.metadata,
            self.factory,
            cluster.view,
            cluster.presence,
            cluster.releases,
            clock=cluster.clock,
            rng=random.Random(1),
            cpu=self,
            on_gone=lambda live: self.gone.append(str(live.name)),
            resting=self,
        )
        stop = trio.Event()
        is_over = trio.Event()
        async with cluster.beating("b1", "n1"), trio.open_nursery() as nursery:

            async def run():
                await agent.run(stop)
                is_over.set()

            nursery.start_soon(cluster.releases.run, trio.Event())
            nursery.start_soon(run)
            if self.is_planned:
                self.plan_all()
            await trio.sleep(0.1)
            yield agent
            stop.set()
            await is_over.wait()
            nursery.cancel_scope.cancel()

    @property
    def kinds(self):
        return [kind for kind, _, _ in self.factory.events]


PUSH = "shop.orders$push"


def why(agent, subscription=PUSH):
    """Why it is stopped here, in words; None if it does not run on this node."""
    figures = agent.figures(subscription)
    return None if figures is None else sentences(figures.reasons)
