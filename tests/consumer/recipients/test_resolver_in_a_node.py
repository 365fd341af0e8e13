"""A whole node with a resolver of the operator's: loaded, kept running, asked."""

import sys
import types

import pytest
import trio

from hermes_actors.config import Config, ConsumersConfig, ManagementConfig, RecipientsConfig
from hermes_actors.consumer.recipients.resolver import Unresolved
from hermes_actors.errors import StartupError
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from hermes_actors.node import open_node
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings
from tests.scripted_sender import OK, ScriptedSender


class Registry:
    """Knows two addresses for 20 s; then its background work breaks, and begins anew."""

    def __init__(self, context):
        self.dc = context.dc
        self.addresses = []
        self.starts = 0

    def resolve(self, asked):
        return None

    def resolve_all(self, asked):
        if not self.addresses:
            raise Unresolved("not read yet")
        return self.addresses

    async def run(self):
        self.starts += 1
        await trio.sleep(1)
        self.addresses = [f"http://a.{self.dc}/", f"http://b.{self.dc}/"]
        await trio.sleep(20)
        raise OSError("the registry is away")


@pytest.fixture
def config():
    return Config(
        roles=["management", "consumers"],
        management=ManagementConfig(additional_endpoint_protocols=["service"]),
        consumers=ConsumersConfig(recipients=RecipientsConfig(resolver="acme_node:registry")),
    )


async def test_the_resolver_of_a_node_says_who_gets_messages(
    config, trio_clock, nursery, monkeypatch, autojump_clock
):
    made = []
    module = types.ModuleType("acme_node")

    def registry(context):
        made.append(Registry(context))
        return made[0]

    vars(module)["registry"] = registry
    monkeypatch.setitem(sys.modules, "acme_node", module)
    log, sender = MemoryLog(config.dc, trio_clock), ScriptedSender(nursery, lambda _push: OK)
    async with open_node(config, surroundings(trio_clock, log, sender=sender)) as node:
        await node.metadata.wait_current()
        await create_shop(node.administration, "service://orders", mode="BROADCAST")
        await trio.sleep(0.5)
        name = node.metadata.catalog.topics["shop.orders"].log_topic
        message = Message(id="m1", body=b"1", published_at_ms=trio_clock.now_ms(), dc=config.dc)
        await log.append(name, 0, [to_record(message)], Ack.LEADER)
        await trio.sleep(30)
    taken = [(push.route.origin.host, push.body) for push in sender.pushes]
    assert sorted(taken) == [(f"a.{config.dc}", b"1"), (f"b.{config.dc}", b"1")]
    # Its failure took nobody down, and it was started again.
    assert made[0].starts > 1


async def test_a_resolver_that_cannot_be_loaded_keeps_the_node_from_starting(
    config, trio_clock, nursery, autojump_clock
):
    log = MemoryLog(config.dc, trio_clock)
    environment = surroundings(trio_clock, log, sender=ScriptedSender(nursery, lambda _push: OK))
    with pytest.raises((StartupError, ExceptionGroup)) as raised:
        async with open_node(config, environment):
            pass
    group = pytest.RaisesGroup(StartupError, flatten_subgroups=True, allow_unwrapped=True)
    assert group.matches(raised.value)
