"""A PERFORMANCE topic on whole nodes: two frontends hold its messages, another node delivers."""

from collections import Counter
from contextlib import asynccontextmanager

import httpx
import pytest
import trio

from hermes_actors.config import Config
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.errors import Refused
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.node import open_node
from hermes_actors.publisher.demands import Head
from hermes_actors.runtime.bridge import open_bridge
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import surroundings
from tests.nodes_scene import TOPIC, create_billing
from tests.scripted_sender import OK, ScriptedSender

ME = Anonymous()


class Nodes:
    def __init__(self, nursery, bridge):
        self.nursery, self.bridge = nursery, bridge
        self.log = MemoryLog("dc1", SimulatedClock())
        self.nodes, self.scopes, self.stops = {}, {}, {}
        self.pushed = Counter()
        self.outcome = OK
        self.lives = 0

    async def start(self, name, *roles):
        self.lives += 1
        ready, stop = trio.Event(), trio.Event()
        config = Config(node=name, roles=list(roles))
        sender = ScriptedSender(self.nursery, self._answer)
        environment = surroundings(SimulatedClock(), self.log, seed=self.lives, sender=sender)
        scope, ended = trio.CancelScope(), trio.Event()

        async def run():
            with scope:
                async with open_node(config, environment) as node:
                    self.nodes[name] = node
                    ready.set()
                    await stop.wait()
                    await node.memory.settle()
            self.nodes.pop(name)
            ended.set()

        self.nursery.start_soon(run)
        await ready.wait()
        node = self.nodes[name]
        self.scopes[name], self.stops[name] = (scope, ended), (stop, ended)
        node.memory.client = httpx.AsyncClient(transport=httpx.MockTransport(self._route))
        await node.metadata.wait_current()
        if node.frontend is not None:
            node.frontend.drain.open()
            node.memory.listen(f"http://{name}")
        return node

    async def _route(self, request):
        """Other nodes are reached by their names, as long as they are there."""
        node = self.nodes.get(request.url.host)
        if node is None:
            raise httpx.ConnectError("nobody listens")
        transport = httpx.ASGITransport(app=node.memory.app(self.bridge))
        return await transport.handle_async_request(request)

    def _answer(self, push):
        if self.outcome is OK:
            self.pushed[int(push.body)] += 1
        return 0.01, self.outcome

    async def publish(self, name, *numbers):
        gateway, found = self.nodes[name].frontend.gateway, []
        for number in numbers:
            settled = trio.Event()
            body = b"%d" % number
            pending = gateway.admit(
                TOPIC, len(body), None, Head([], {}), lambda _, settled=settled: settled.set()
            )
            gateway.hand_over(pending, body)
            await settled.wait()
            found.append(pending.answer)
        return found

    async def kill(self, name):
        scope, ended = self.scopes[name]
        scope.cancel()
        await ended.wait()

    async def stop(self, name):
        stop, ended = self.stops[name]
        stop.set()
        await ended.wait()


@asynccontextmanager
async def nodes_of(nursery, **topic):
    async with open_bridge() as bridge:
        nodes = Nodes(nursery, bridge)
        a = await nodes.start("a", "frontend", "management")
        await nodes.start("b", "frontend")
        await nodes.start("c", "consumers")
        await create_billing(a.administration, {"durability": "PERFORMANCE", **topic})
        await trio.sleep(12)
        yield nodes, a.administration


async def test_what_frontends_hold_is_delivered_by_another_node_and_every_answer_says_so(
    nursery, autojump_clock
):
    async with nodes_of(nursery) as (nodes, administration):
        answers = await nodes.publish("a", *range(10)) + await nodes.publish("b", *range(10, 20))
        assert {each.status for each in answers} == {201}
        assert {each.headers for each in answers} == {(("hermes-durability", "memory"),)}
        await trio.sleep(3)
        assert nodes.pushed == dict.fromkeys(range(20), 1)
        lag = await administration.standings.lag(TOPIC, "billing")
        assert (lag["lag"], len(lag["datacenters"][0]["partitions"])) == (0, 2)
        with pytest.raises(Refused, match="in memory only"):
            await administration.retransmissions.move(ME, TOPIC, "billing", {"to": "start"})
        nothing_of_it = [name for name in await nodes.log.topics.names() if "orders" in name]
        assert nothing_of_it == []


async def test_a_killed_frontend_loses_what_it_held_and_nothing_else(nursery, autojump_clock):
    async with nodes_of(nursery) as (nodes, _):
        nodes.outcome = SendOutcome(503)
        await nodes.publish("a", 1)
        await nodes.publish("b", 2)
        await trio.sleep(2)
        await nodes.kill("b")
        await nodes.kill("c")
        nodes.outcome = OK
        await nodes.start("c", "consumers")
        await trio.sleep(30)
        assert nodes.pushed == {1: 1}
        await nodes.start("b", "frontend")
        await trio.sleep(5)
        await nodes.publish("b", 3)
        await trio.sleep(5)
        assert nodes.pushed == {1: 1, 3: 1}


async def test_a_stopped_frontend_first_lets_its_messages_be_delivered(
    nursery, autojump_clock, caplog
):
    async with nodes_of(nursery) as (nodes, _):
        await nodes.publish("b", *range(50))
        await nodes.stop("b")
        assert "waiting up to 10 s for 50 messages in memory to be delivered" in caplog.text
        assert nodes.pushed == dict.fromkeys(range(50), 1)
        # Its partition goes to the next one.
        await nodes.start("d", "frontend")
        await trio.sleep(5)
        await nodes.publish("d", 50)
        await trio.sleep(5)
        assert nodes.pushed[50] == 1
        assert sorted(nodes.nodes["a"].memory.log.holders) == [0, 1]


async def test_publishing_and_delivery_go_on_without_the_log(nursery, autojump_clock):
    async with nodes_of(nursery) as (nodes, _):
        nodes.log.faults.unavailable_rate = 1.0
        (answer,) = await nodes.publish("a", 1)
        await trio.sleep(1)
        assert (answer.status, nodes.pushed) == (201, {1: 1})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"ack": "LEADER", "durability": "CONSISTENT"}, "Topic.ack is LEADER"),
        ({"ack": "ALL", "durability": "PERFORMANCE"}, "no replicas"),
        ({"memoryFull": "WAIT"}, "needs durability PERFORMANCE"),
        (
            {"durability": "PERFORMANCE", "fallbackToRemoteDatacenterEnabled": True},
            "must be false",
        ),
    ],
)
async def test_fields_that_contradict_the_durability_are_refused(
    nursery, autojump_clock, fields, problem
):
    nodes = Nodes(nursery, None)
    a = await nodes.start("a", "management")
    with pytest.raises(Refused, match=problem):
        await create_billing(a.administration, fields)


async def test_the_durability_decides_the_ack_and_stays_in_memory_or_out_of_it(
    nursery, autojump_clock
):
    nodes = Nodes(nursery, None)
    administration = (await nodes.start("a", "management")).administration
    await create_billing(administration, {})
    topics = administration.topics
    wanted = {"topics": [{"name": TOPIC, "durability": "CONSISTENT"}]}
    (tried,) = await administration.apply.run(ME, wanted, dry_run=True)
    assert (tried.action, tried.error) == ("change", None)
    assert (await nodes.log.topics.describe(TOPIC)).copies_min == 1
    await administration.apply.run(ME, wanted)
    shown = await topics.get(TOPIC)
    assert (shown["durability"], shown["ack"]) == ("CONSISTENT", "ALL")
    assert (await nodes.log.topics.describe(TOPIC)).copies_min == 2
    with pytest.raises(Refused, match="leave ack out"):
        await topics.update(ME, TOPIC, {"ack": "LEADER"})
    with pytest.raises(Refused, match="create another topic"):
        await topics.update(ME, TOPIC, {"durability": "PERFORMANCE"})
    await topics.update(ME, TOPIC, {"durability": "EVENTUAL"})
    shown = await topics.get(TOPIC)
    assert ("durability" in shown, shown["ack"]) == (False, "LEADER")
