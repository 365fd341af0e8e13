"""Recipients that are looked up, or that the operator's resolver names, consumed."""

import base64

import msgspec
import pytest
import trio

from hermes_actors.config import ProxyConfig
from hermes_actors.consumer.recipients.resolver import Unresolved
from hermes_actors.model.subscription import DeliveryMode
from tests.consumer.recipients_scene import (
    DNS,
    LookUps,
    Resolver,
    broadcast,
    headers_of,
    hosts,
    where,
    with_parts,
)


async def test_each_address_of_a_host_is_a_recipient(world, nursery, autojump_clock):
    look_ups = LookUps(nursery, 0.2, svc=["10.0.0.2", "10.0.0.1", "::1"])
    with_parts(world, names=look_ups)
    live = broadcast(world, "https://svc/in", endpoint_address_resolver_metadata=DNS)
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
        await world.publish(b"2")
        await trio.sleep(1)
    assert hosts(world) == ["10.0.0.1", "10.0.0.2"] * 2
    assert {push.route.origin.host for push in world.sender.pushes} == {"svc"}
    assert all(b"Host: svc\r\n" in push.route.start for push in world.sender.pushes)
    assert {*look_ups.asked} == {"svc"}


async def test_a_host_behind_a_proxy_is_one_recipient_and_looked_up_by_it(
    world, nursery, autojump_clock
):
    look_ups = LookUps(nursery, **{"a.inside": ["10.0.0.1", "10.0.0.2"]})
    proxy = ProxyConfig("http://proxy:3128", no_proxy=["*.inside"])
    config = msgspec.structs.replace(world.parts.config, proxy=proxy)
    with_parts(world, names=look_ups, config=config)
    live = broadcast(world, "http://out/;http://a.inside/", endpoint_address_resolver_metadata=DNS)
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
    assert hosts(world) == ["out", "10.0.0.1", "10.0.0.2"]
    assert {*look_ups.asked} == {"a.inside"}


async def test_a_name_that_is_not_found_is_retried_and_keeps_the_others(
    world, nursery, autojump_clock
):
    look_ups = LookUps(nursery, a=["10.0.0.1"])
    with_parts(world, names=look_ups)
    live = broadcast(world, "http://a/;http://b/", endpoint_address_resolver_metadata=DNS)
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
        assert hosts(world) == ["10.0.0.1"]
        look_ups.names["b"] = ["10.0.0.2", "10.0.0.3"]
        await trio.sleep(3)
    assert hosts(world) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert world.count("delivered") == 1


async def test_a_look_up_and_its_push_together_last_no_longer_than_the_request_time_out(
    world, nursery, autojump_clock
):
    look_ups = LookUps(nursery, 0.7, svc=["10.0.0.1"], slow=["10.0.0.2"])
    with_parts(world, names=look_ups)
    dns = {"endpoint_address_resolver_metadata": DNS, "policy": {"request_timeout": 1_000}}
    async with world.consuming(broadcast(world, "http://svc/in", **dns)):
        await world.publish(b"1")
        await trio.sleep(2)
    assert [push.request_timeout_ms for push in world.sender.pushes] == [300]


@pytest.mark.parametrize("mode", [DeliveryMode.BROADCAST, DeliveryMode.ANYCAST])
async def test_a_name_server_that_never_answers_holds_a_message_for_one_time_out(
    world, nursery, autojump_clock, mode
):
    look_ups = LookUps(nursery, 3_600, svc=["10.0.0.1"])
    with_parts(world, names=look_ups)
    policy = {"request_timeout": 1_000, "attempts_max": 3}
    live = world.live(
        endpoint="http://svc/in",
        mode=mode,
        endpoint_address_resolver_metadata=DNS,
        policy=policy,
    )
    async with world.consuming(live) as consumer:
        await world.publish(b"1")
        await trio.sleep(0.9)
        assert consumer.status().inflight == 1
        await trio.sleep(4)
        undelivered = consumer.status().last_undelivered
    assert undelivered.reason == "attempts: unresolved: no answer of the name servers for svc"


# Resolvers of the operator's.


async def test_a_resolver_says_where_an_endpoint_leads(world, autojump_clock):
    resolver = Resolver(lambda _asked: ["http://a/{id}", "http://w:own@b/in"])
    with_parts(world, resolver=resolver)
    live = broadcast(
        world,
        "service://u:secret@orders",
        endpoint_address_resolver_metadata={"zone": 7},
    )
    async with world.consuming(live):
        await world.publish(b'{"id":1}')
        await trio.sleep(1)
    (asked,) = resolver.asked
    assert (asked.subscription, asked.endpoint) == ("shop.orders$push", "service://orders")
    assert (asked.metadata, asked.message.body) == ({"zone": 7}, b'{"id":1}')
    assert "secret" not in repr(asked)
    sent = {where(push): headers_of(push)["Authorization"] for push in world.sender.pushes}
    assert base64.b64decode(sent["a"].removeprefix("Basic ")) == b"u:secret"
    assert base64.b64decode(sent["b"].removeprefix("Basic ")) == b"w:own"


async def test_a_resolver_may_leave_an_endpoint_to_what_is_built_in(world, autojump_clock):
    with_parts(world, resolver=Resolver(lambda _asked: None))
    async with world.consuming(world.live(endpoint="http://a/in")):
        await world.publish(b"1")
        await trio.sleep(1)
    assert hosts(world) == ["a"]


async def test_a_resolver_leads_nobodys_credentials_to_another(world, autojump_clock):
    resolver = Resolver(lambda asked: None if asked.message.body == b"1" else ["http://c/"])
    with_parts(world, resolver=resolver)
    live = broadcast(world, "http://u:secret@a/;http://b/")
    async with world.consuming(live):
        await world.publish(b"1", b"2")
        await trio.sleep(1)
    sent = {where(push): "Authorization" in headers_of(push) for push in world.sender.pushes}
    assert sent == {"a": True, "b": False, "c": False}
    assert {asked.endpoint for asked in resolver.asked} == {"http://a/;http://b/"}


async def test_a_resolver_that_knows_nothing_yet_slows_nothing(world, autojump_clock):
    def answer(_asked):
        if trio.current_time() < at_s + 3:
            raise Unresolved("the registry is not read yet")
        return ["http://a/"]

    at_s = trio.current_time()
    with_parts(world, resolver=Resolver(answer))
    async with world.consuming(world.live()) as consumer:
        await world.publish(*(b"%d" % each for each in range(50)))
        await trio.sleep(2)
        assert consumer.status().level == "FULL"
        assert world.sender.pushes == []
        await trio.sleep(3)
    assert world.count("delivered") == 50
    assert world.crashes == []


async def test_no_fault_of_a_resolver_ends_the_consumer(world, autojump_clock):
    faults = iter([ZeroDivisionError(), 7, [7], ["nonsense"], ["ftp://a/"], [], None])

    def answer(_asked):
        fault = next(faults, None)
        if isinstance(fault, Exception):
            raise fault
        return fault if fault is not None else ["http://a/"]

    with_parts(world, resolver=Resolver(answer))
    async with world.consuming(broadcast(world)):
        await world.publish(b"1")
        await trio.sleep(5)
    assert hosts(world) == ["a"]
    assert world.crashes == []


async def test_what_a_resolver_says_of_an_error_shows_no_secret(world, autojump_clock):
    told = iter(
        [
            Unresolved("no route to http://u:s3cret p@ss@a/in?token=s3cret, Bearer s3cret"),
            OSError("https://u:s3cret@registry/x said Basic s3cret=="),
        ]
    )

    def answer(_asked):
        raise next(told)

    with_parts(world, resolver=Resolver(answer))
    async with world.consuming(world.live(policy={"attempts_max": 1})) as consumer:
        await world.publish(b"1")
        await trio.sleep(1)
        first = consumer.status().last_undelivered.reason
        await world.publish(b"2")
        await trio.sleep(1)
        second = consumer.status().last_undelivered.reason
    assert first == "attempts: unresolved: no route to http://***@a/in?*** Bearer ***"
    assert second.startswith("attempts: unresolved: the resolver failed: OSError: https://***@reg")
    assert "s3cret" not in second
