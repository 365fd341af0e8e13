"""A resolver that cannot be used is one clear error at the start; the documented one works."""

import re
import sys
import types
from pathlib import Path

import msgspec
import pytest
import trio

from hermes_actors import config as configuration
from hermes_actors.config import ConfigError
from hermes_actors.consumer.push_consumer import ConsumerFactory
from hermes_actors.consumer.recipients.resolver import ResolverContext, Unresolved, open_resolver
from hermes_actors.errors import StartupError
from hermes_actors.model.subscription import DeliveryMode, SigningPolicy
from hermes_actors.runtime.clock import SystemClock
from tests.values import a_live_topic, a_topic

PAGE = (Path(__file__).parents[3] / "docs" / "delivery.md").read_text()
CONTEXT = ResolverContext("dc1", SystemClock())


def block(language, text):
    (found,) = (
        each for each in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if text in each
    )
    return found


@pytest.fixture
def acme(monkeypatch):
    """The module of the documentation, as if it were installed."""
    module = types.ModuleType("acme_hermes")
    exec(block("python", "class Registry"), module.__dict__)
    monkeypatch.setitem(sys.modules, "acme_hermes", module)
    return module


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("acme_absent:make", "cannot be loaded: No module named"),
        ("acme_hermes:absent", "cannot be loaded: module 'acme_hermes' has no attribute"),
        ("json:loads", "cannot be made: TypeError"),
        ("acme_hermes:len", "cannot be"),
    ],
)
def test_a_resolver_that_cannot_be_used_is_named_with_the_field(name, reason, acme):
    with pytest.raises(StartupError) as raised:
        open_resolver(name, CONTEXT)
    assert raised.value.message.startswith(f"consumers.recipients.resolver: '{name}' {reason}")


def test_the_configuration_says_where_it_is(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(block("toml", "consumers.recipients"))
    assert configuration.load(file, {}).consumers.recipients.resolver == "acme_hermes:registry"
    file.write_text('[consumers.recipients]\nresolver = "acme hermes"')
    with pytest.raises(ConfigError, match="'acme hermes' is not module:function"):
        configuration.load(file, {})


async def test_the_documented_resolver_delivers_what_it_knows(world, acme, autojump_clock):
    resolver = open_resolver("acme_hermes:registry", CONTEXT)
    world.parts = msgspec.structs.replace(world.parts, resolver=resolver)
    live = world.live(endpoint="service://orders", mode=DeliveryMode.BROADCAST)
    async with trio.open_nursery() as nursery:
        async with world.consuming(live):
            await world.publish(b"1")
            await trio.sleep(1)
            assert world.sender.pushes == []
            nursery.start_soon(resolver.run)
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert {push.route.origin.host for push in world.sender.pushes} == {"10.0.0.1", "10.0.0.2"}
    assert world.count("delivered") == 1
    assert issubclass(Unresolved, Exception)


# What the factory makes of it.


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"endpoint": ";".join(["http://a/"] * 101)}, "endpoint: 101 addresses; at most 100"),
        ({"endpoint": "http://a/;ftp://b/"}, "endpoint: the scheme"),
        ({"endpoint_address_resolver_metadata": {"resolve": "srv"}}, 'must be "dns"'),
        ({"endpoint_address_resolver_metadata": {"hosts": "a"}}, "hosts is a list of hosts"),
        ({"signing": SigningPolicy(["whsec_open-sesame"])}, "signing.secrets[0] is not Base64"),
    ],
)
async def test_what_cannot_be_pushed_is_refused_with_the_field(world, live_topic, fields, reason):
    refusal = ConsumerFactory(world.parts).refusal(world.live(**fields), live_topic)
    assert reason in refusal
    assert "sesame" not in refusal


async def test_with_a_resolver_an_endpoint_may_be_anything(world, live_topic, acme):
    live = world.live(endpoint="service://orders")
    assert "scheme" in ConsumerFactory(world.parts).refusal(live, live_topic)
    resolver = open_resolver("acme_hermes:registry", CONTEXT)
    parts = msgspec.structs.replace(world.parts, resolver=resolver)
    assert ConsumerFactory(parts).refusal(live, live_topic) == ""


@pytest.fixture
def live_topic():
    return a_live_topic(a_topic())
