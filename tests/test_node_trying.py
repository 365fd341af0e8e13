"""How whole nodes try an endpoint, with consumers of their own and without."""

from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from hermes_actors.config import Config, ConsumersConfig, RecipientsConfig
from hermes_actors.consumer.senders.sender import Sender, SendOutcome
from hermes_actors.errors import StartupError, Unavailable
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.node import open_node
from hermes_actors.telemetry.metrics import render
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings

ENDPOINT = "http://billing.test/in"


class Taking(Sender):
    """A sender whose endpoint takes all, and how often it was opened."""

    def __init__(self):
        self.pushes = []
        self.opened = self.open = 0
        self.error = None

    def send(self, push, done):
        self.pushes.append(push)
        done(SendOutcome(200))

    @asynccontextmanager
    async def senders(self, *_):
        if self.error is not None:
            raise self.error
        self.opened += 1
        self.open += 1
        try:
            yield lambda _live: self
        finally:
            self.open -= 1


@asynccontextmanager
async def node_with(sender, *roles, config=None):
    clock = SimulatedClock()
    environment = replace(surroundings(clock, MemoryLog("dc1", clock)), open_senders=sender.senders)
    config = msgspec.structs.replace(config or Config(), roles=list(roles))
    async with open_node(config, environment) as node:
        await node.metadata.wait_current()
        await create_shop(node.administration, ENDPOINT)
        yield node


async def tried(node):
    trials = node.administration.trials
    return await trials.make(Anonymous(), "shop.orders", "billing", {})


async def test_a_node_with_consumers_pushes_with_their_sender_and_counts_nothing(autojump_clock):
    sender = Taking()
    async with node_with(sender, "management", "consumers") as node:
        answer = await tried(node)
        assert (answer["isDelivered"], answer["datacenter"]) == (True, "dc1")
        assert (len(sender.pushes), sender.opened) == (1, 1)
        assert "_delivered" not in "".join(
            line
            for line in render(node.metrics).decode().splitlines()
            if line.endswith(" 1.0") and "subscription" in line
        )


async def test_a_node_without_consumers_opens_a_sender_for_each_push_and_closes_it(autojump_clock):
    sender = Taking()
    async with node_with(sender, "management") as node:
        for _ in range(2):
            assert (await tried(node))["isDelivered"]
        assert (len(sender.pushes), sender.opened, sender.open) == (2, 2, 0)


async def test_why_a_node_without_consumers_cannot_push_is_told(autojump_clock):
    sender = Taking()
    async with node_with(sender, "management") as node:
        sender.error = StartupError("consumers.tls.ca_file: /nowhere cannot be read")
        with pytest.raises(Unavailable, match=r"This node cannot push: consumers\.tls\.ca_file"):
            await tried(node)


async def test_what_plug_ins_push_is_left_to_nodes_with_consumers(autojump_clock):
    sender = Taking()
    recipients = RecipientsConfig(resolver="nobody:resolver")
    for consumers in (
        ConsumersConfig(recipients=recipients),
        ConsumersConfig(senders=["jms=nobody:sender"]),
    ):
        async with node_with(sender, "management", config=Config(consumers=consumers)) as node:
            with pytest.raises(Unavailable, match="that also has the role consumers"):
                await tried(node)
    assert sender.opened == 0
