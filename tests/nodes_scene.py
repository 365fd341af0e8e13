"""Whole nodes in one process, on memory logs: many in one datacentre, or one in each of two."""

import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import trio

from hermes_actors.config import Config, ManagementConfig
from hermes_actors.consumer.senders.sender import SendOutcome, parse_lines
from hermes_actors.log.base import Stored
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from hermes_actors.node import open_node
from hermes_actors.publisher.batches.forms import ENVELOPES
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.security.account import Credentials
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk, open_store_on
from hermes_chaos.sim.environment.http_in import Line, TrioHost
from hermes_chaos.sim.environment.surroundings import surroundings
from hermes_chaos.wanted import subscription_body, topic_body
from tests.publisher.in_process import Answers, head_of
from tests.scripted_sender import OK, ScriptedSender

TOPIC = "shop.orders"
NAMES = ("billing", "mail")


class SleepingClock(SimulatedClock):
    """The clock of a machine that may have been suspended."""

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
        # By subscription, for slower endpoints.
        self.slow_s = {}
        self.starts = 0

    async def start(self, name):
        ready = trio.Event()
        # Each start is a new life with new ids.
        self.starts += 1
        self.stops[name] = stop = trio.Event()
        self.clocks[name] = clock = SleepingClock()
        ended = trio.Event()
        is_first = not self.nodes
        config = Config(
            node=name,
            roles=["management", "consumers"] if is_first else ["consumers"],
        )
        sender = ScriptedSender(self.nursery, partial(self._answer, name))
        environment = surroundings(clock, self.log, seed=self.starts, sender=sender)
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

    def _answer(self, name, push):
        subscription = push.route.subscription.partition("$")[2]
        self.pushes.append((name, subscription, push.body))
        return self.slow_s.get(subscription, self.takes_s), OK

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
        while TOPIC not in await self.log.topics.names():  # noqa: ASYNC110 -- the log tells no event
            await trio.sleep(0.01)

    async def publish(self, *numbers, partition=None):
        now_ms = SimulatedClock().now_ms()
        for number in numbers:
            message = Message(
                id=f"m{number}", body=b"%d" % number, published_at_ms=now_ms, dc="dc1"
            )
            place = number % 10 if partition is None else partition
            (outcome,) = await self.log.append(TOPIC, place, [to_record(message)], Ack.LEADER)
            assert isinstance(outcome, Stored)

    def pushed(self, since=0):
        """How often each message was pushed to each subscription."""
        return Counter((name, int(body)) for _, name, body in self.pushes[since:])

    def pushers(self, since=0):
        return {(node, name) for node, name, _ in self.pushes[since:]}

    def holders(self):
        """The owner of each partition of each subscription."""
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


class Endpoint(ScriptedSender):
    """Answers with these statuses, in order."""

    def __init__(self, nursery, *statuses):
        self.statuses = list(statuses)
        super().__init__(nursery, lambda _push: (0.01, SendOutcome(self.statuses.pop(0))))
        self.is_done = trio.Event()

    async def _answer(self, *answer):
        await super()._answer(*answer)
        if not self.statuses and not self.inflight:
            self.is_done.set()

    @property
    def pushed(self):
        """The headers of each push."""
        return [
            {name.decode(): value.decode() for name, value in parse_lines(push.lines)}
            for push in self.pushes
        ]


def memory_spool(mounted=None):
    """Opens a spool on that disk, or on a new one."""
    return partial(open_store_on, mounted or Mount(SimulatedDisk()), 1_000_000)


async def create_billing(administration, topic, endpoint="http://shop.test/x", **subscription):
    """Create the group, the topic with these fields, and its subscription billing."""
    caller = await administration.security.identify(Credentials())
    await administration.groups.create(caller, {"groupName": "shop"})
    await administration.topics.create(caller, topic_body(TOPIC, **topic))
    body = subscription_body(TOPIC, "billing", endpoint, **subscription)
    await administration.subscriptions.create(caller, TOPIC, body)


@asynccontextmanager
async def two_datacentres(sender, create, *, remote_partitions=10, **parts):
    """A node of dc1 with all roles, its log and dc2's, where another node consumes; yielded once
    both know what `create(administration)` has created. `parts` override the environments. Topics
    have 10 partitions in dc1.
    """
    clock = SimulatedClock()
    dc1, dc2 = MemoryLog("dc1", clock), MemoryLog("dc2", clock)
    first = surroundings(clock, dc1, dc2, sender=sender)
    second = surroundings(clock, dc2, dc1, sender=sender, seed=2)
    made = ManagementConfig(topic_partitions=remote_partitions)
    consuming = Config(dc="dc2", node="two", roles=["consumers"], management=made)
    async with (
        open_node(Config(dc="dc1", node="one"), replace(first, **parts)) as node,
        open_node(consuming, replace(second, **parts)) as other,
    ):
        await node.metadata.wait_current()
        node.frontend.drain.open()
        await create(node.administration)
        while not (other.agent.subscriptions() and node.frontend.routes.by_name):  # noqa: ASYNC110
            await trio.sleep(0.1)
        await trio.sleep(3)
        yield node, dc1, dc2


async def publish(node, body, *, topic=TOPIC, **headers):
    """Publish with these headers; return the status."""
    fields = {name.encode(): value.encode() for name, value in headers.items()}
    head = Head(list(fields.items()), fields)
    settled = trio.Event()
    gateway = node.frontend.gateway
    pending = gateway.admit(topic, len(body), None, head, lambda _: settled.set())
    gateway.hand_over(pending, body)
    await settled.wait()
    return pending.answer.status


async def publish_batch(node, *keys):
    """Publish a message with each of these keys in one batch; return the statuses."""
    async with trio.open_nursery() as nursery:
        edge = PublishEdge(node.frontend, TrioHost(nursery))
        edge.tick(0.0, 0)
        line = Line(edge)
        body = b"".join(b'{"message": 1, "key": "%b"}\n' % key for key in keys)
        fields = [(b"content-type", ENVELOPES.encode()), (b"content-length", b"%d" % len(body))]
        line.send(head_of("POST", f"/topics/{TOPIC}/batch", fields) + body)
        with trio.fail_after(60):
            while not (answers := Answers(bytes(line.answered), line.is_closed)).is_complete:
                await line.changed.wait()
        lines = answers.body
        nursery.cancel_scope.cancel()
    return [json.loads(line)["status"] for line in lines.splitlines()]
