"""Subscriptions of several addresses, consumed: who gets what, and what is remembered."""

import base64
import hashlib
import hmac
import logging
import random

import msgspec
import pytest
import trio

from hermes_actors.config import ProxyConfig, RecipientsConfig
from hermes_actors.consumer.recipients.headers import parse_lines
from hermes_actors.consumer.recipients.resolver import Unresolved
from hermes_actors.consumer.recipients.resolver_dns import Names
from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.model.signing_secrets import hmac_secret
from hermes_actors.model.subscription import DeliveryMode, Header, SigningPolicy

OK = SendOutcome(200)
LIST = "http://a/in;http://b/in;http://c/in"


def where(push):
    return push.route.origin.address or push.route.origin.host


def headers_of(push):
    return {name.decode(): value.decode() for name, value in parse_lines(push.lines)}


def hosts(world, body=None):
    return [where(push) for push in world.sender.pushes if body in (None, push.body)]


def broadcast(world, endpoint=LIST, **fields):
    return world.live(endpoint=endpoint, mode=DeliveryMode.BROADCAST, **fields)


def with_parts(world, **parts):
    world.parts = msgspec.structs.replace(world.parts, **parts)
    return world


class Script:
    """Answers by host: each its list of outcomes, then 200 for ever."""

    def __init__(self, **outcomes):
        self.outcomes = {host: list(each) for host, each in outcomes.items()}

    def __call__(self, push):
        left = self.outcomes.get(where(push), [])
        return left.pop(0) if left else OK


async def test_a_broadcast_reaches_every_address_once(world, autojump_clock):
    async with world.consuming(broadcast(world)):
        await world.publish(b"1", b"2")
        await trio.sleep(1)
    assert hosts(world, b"1") == ["a", "b", "c"]
    assert hosts(world, b"2") == ["a", "b", "c"]
    assert world.count("delivered") == 2
    assert world.count("http_status_codes", status_code="200") == 6
    assert await world.committed() is not None


async def test_a_retry_goes_only_to_those_who_do_not_have_it(world, autojump_clock):
    world.sender.script = Script(b=[SendOutcome(500)] * 3)
    async with world.consuming(broadcast(world)):
        await world.publish(b"1")
        await trio.sleep(5)
    assert hosts(world) == ["a", "b", "c", "b", "b", "b"]
    assert [headers_of(push)["Hermes-Retry-Count"] for push in world.sender.pushes] == [
        "0", "0", "0", "1", "2", "3",
    ]  # fmt: skip
    assert world.count("delivered") == 1
    assert world.count("failures") == 3


async def test_a_client_error_of_one_is_served_and_told_of_at_the_end(
    world, autojump_clock, caplog
):
    world.sender.script = Script(a=[SendOutcome(400)], b=[SendOutcome(503)])
    with caplog.at_level(logging.INFO):
        async with world.consuming(broadcast(world)) as consumer:
            await world.publish(b"1")
            await trio.sleep(5)
            undelivered = consumer.status().last_undelivered
    assert hosts(world) == ["a", "b", "c", "b"]
    assert (world.count("delivered"), world.count("discarded")) == (0, 1)
    assert undelivered.reason == "client-error: HTTP 400: missed by http://a:80/in (HTTP 400)"


async def test_a_crash_forgets_who_has_it_and_all_get_it_again(world, autojump_clock):
    world.sender.script = Script(b=[SendOutcome(500)])
    live = broadcast(world, policy={"message_backoff": 5_000})
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
    async with world.consuming(live):
        await trio.sleep(1)
    assert hosts(world) == ["a", "b", "c", "a", "b", "c"]
    assert world.count("delivered") == 1


async def test_each_address_has_its_own_credentials(world, autojump_clock):
    endpoint = "http://u:one@a/in;http://b/in;http://v:two@c/in"
    live = broadcast(world, endpoint, headers=[Header("Authorization", "fixed")])
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
    sent = {where(push): headers_of(push)["Authorization"] for push in world.sender.pushes}
    assert sent["b"] == "fixed"
    assert base64.b64decode(sent["a"].removeprefix("Basic ")) == b"u:one"
    assert base64.b64decode(sent["c"].removeprefix("Basic ")) == b"v:two"


async def test_one_message_counts_once_against_the_rate(world, autojump_clock):
    world.sender.script = lambda _push: OK
    async with world.consuming(broadcast(world, policy={"rate": 10})):
        await world.publish(*(b"%d" % each for each in range(20)))
        await trio.sleep(60)
    starts = {}
    for push, at_s in zip(world.sender.pushes, world.sender.times_s, strict=True):
        starts.setdefault(push.body, at_s)
    seconds = list(starts.values())
    assert len(seconds) == 20
    assert seconds[-1] - seconds[0] < 2.2
    assert all(after - before >= 1.0 for before, after in zip(seconds, seconds[11:], strict=False))


async def test_pushes_of_one_message_are_bounded(make_world, autojump_clock):
    world = make_world(recipients=RecipientsConfig(pushes_max=2))
    await world.create()
    world.sender.script = lambda _push: (0.1, OK)
    endpoint = ";".join(f"http://h{each}/" for each in range(7))
    async with world.consuming(broadcast(world, endpoint)):
        await world.publish(b"1")
        await trio.sleep(5)
    assert len(world.sender.pushes) == 7
    assert world.sender.inflight_high == 2
    assert world.count("delivered") == 1


async def test_anycast_takes_turns_and_tries_the_next_one_at_a_retry(world, autojump_clock):
    world.sender.script = Script(b=[SendOutcome(500)] * 9)
    async with world.consuming(world.live(endpoint=LIST)):
        for each in range(6):
            await world.publish(b"%d" % each)
            await trio.sleep(1)
    assert hosts(world) == ["a", "b", "c", "c", "a", "b", "c", "c"]
    assert world.count("delivered") == 6


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_answered_each_recipient_takes_each_message_once(
    world, autojump_clock, seed
):
    rng = random.Random(seed)
    outcomes = [
        OK, OK, SendOutcome(500), SendOutcome(503, "1"), SendOutcome(302),
        SendOutcome(0, "", Failure.TIMEOUT), SendOutcome(0, "", Failure.OVERLOADED),
    ]  # fmt: skip
    taken = {}

    def script(push):
        outcome = rng.choice(outcomes)
        if outcome is OK:
            taken.setdefault((where(push), push.body), []).append(trio.current_time())
        return (rng.random(), outcome)

    world.sender.script = script
    async with world.consuming(broadcast(world, policy={"message_backoff": 50})):
        await world.publish(*(b"%d" % each for each in range(30)))
        await trio.sleep(600)
    assert len(taken) == 3 * 30
    assert all(len(each) == 1 for each in taken.values())
    assert (world.count("delivered"), world.count("discarded")) == (30, 0)
    assert await world.committed() is not None
    assert world.crashes == []


async def test_a_template_in_a_list_is_filled_for_each_address(world, autojump_clock):
    endpoint = "http://a/{id};http://b/{missing}"
    async with world.consuming(broadcast(world, endpoint, policy={"message_ttl": 1})):
        await world.publish(b'{"id":7}')
        await trio.sleep(5)
    assert [push.route.target for push in world.sender.pushes] == ["/7"]
    assert world.count("discarded") == 1


# Looked up.


class LookUps:
    """Answers from a table, `delay_s` later where one is given."""

    def __init__(self, nursery, delay_s=0.0, **names):
        self.names = names
        self.asked = []
        self._nursery = nursery
        self._delay_s = delay_s

    def resolve(self, host, done):
        self.asked.append(host)
        found = self.names.get(host, OSError("no such host"))
        if not self._delay_s:
            done(found)
            return

        async def later():
            await trio.sleep(self._delay_s)
            done(found)

        self._nursery.start_soon(later)


DNS = {"resolve": "dns"}


async def test_each_address_of_a_host_is_a_recipient(world, nursery, autojump_clock):
    look_ups = LookUps(nursery, 0.2, svc=["10.0.0.2", "10.0.0.1", "::1"])
    with_parts(world, names=Names(look_ups, trio.current_time, 5.0))
    live = broadcast(world, "https://svc/in", endpoint_address_resolver_metadata=DNS)
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
        await world.publish(b"2")
        await trio.sleep(1)
    assert hosts(world) == ["10.0.0.1", "10.0.0.2"] * 2
    assert {push.route.origin.host for push in world.sender.pushes} == {"svc"}
    assert all(b"Host: svc\r\n" in push.route.start for push in world.sender.pushes)
    assert look_ups.asked == ["svc"]


async def test_a_host_behind_a_proxy_is_one_recipient_and_looked_up_by_it(
    world, nursery, autojump_clock
):
    look_ups = LookUps(nursery, **{"a.inside": ["10.0.0.1", "10.0.0.2"]})
    proxy = ProxyConfig("http://proxy:3128", no_proxy=["*.inside"])
    config = msgspec.structs.replace(world.parts.config, proxy=proxy)
    with_parts(world, names=Names(look_ups, trio.current_time, 5.0), config=config)
    live = broadcast(world, "http://out/;http://a.inside/", endpoint_address_resolver_metadata=DNS)
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
    assert hosts(world) == ["out", "10.0.0.1", "10.0.0.2"]
    assert look_ups.asked == ["a.inside"]


async def test_a_name_that_is_not_found_is_retried_and_keeps_the_others(
    world, nursery, autojump_clock
):
    look_ups = LookUps(nursery, a=["10.0.0.1"])
    with_parts(world, names=Names(look_ups, trio.current_time, 5.0))
    live = broadcast(world, "http://a/;http://b/", endpoint_address_resolver_metadata=DNS)
    async with world.consuming(live):
        await world.publish(b"1")
        await trio.sleep(1)
        assert hosts(world) == ["10.0.0.1"]
        look_ups.names["b"] = ["10.0.0.2", "10.0.0.3"]
        await trio.sleep(3)
    assert hosts(world) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert world.count("delivered") == 1


def test_old_answers_serve_while_new_ones_are_asked_for_and_outlive_the_name_server():
    now, found = [0.0], {"svc": ["10.0.0.1"]}
    waiting = []

    class Later:
        def resolve(self, host, done):
            waiting.append((host, done))

    names = Names(Later(), lambda: now[0], 5.0)
    told = []

    def answer():
        host, done = waiting.pop()
        done(found.get(host, OSError("server failure")))

    assert not names.require("svc", lambda: told.append(1))
    assert not names.require("svc", lambda: told.append(2))
    answer()
    assert told == [1, 2]
    assert names.addresses("svc") == ("10.0.0.1",)
    now[0], found["svc"] = 6.0, ["10.0.0.2"]
    assert names.require("svc", lambda: told.append(3))
    assert names.addresses("svc") == ("10.0.0.1",)
    answer()
    assert names.addresses("svc") == ("10.0.0.2",)
    del found["svc"]
    now[0] = 12.0
    names.require("svc", lambda: told.append(4))
    answer()
    assert names.addresses("svc") == ("10.0.0.2",)
    now[0] = 100.0
    names.require("svc", lambda: told.append(5))
    answer()
    assert names.addresses("svc") == ()
    assert names.problem("svc") == "server failure"
    assert told == [1, 2]


# Resolvers of the operator's.


class Resolver:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def resolve(self, asked):
        self.asked.append(asked)
        found = self.answer(asked)
        return found[0] if isinstance(found, list) else found

    def resolve_all(self, asked):
        self.asked.append(asked)
        return self.answer(asked)

    async def run(self):
        """Nothing to keep fresh."""


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


async def test_no_fault_of_a_resolver_ends_the_consumer(world, autojump_clock, caplog):
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
    assert sum("the resolver failed" in each.message for each in caplog.records) == 1


# Signatures and events.


async def test_each_attempt_is_signed_at_its_own_time_with_the_messages_id(world, autojump_clock):
    new, old = b"n" * 32, b"o" * 24
    world.sender.script = Script(sink=[SendOutcome(0, "", Failure.TIMEOUT)])
    policy = {"message_backoff": 3_000}
    secrets = SigningPolicy([hmac_secret(new), hmac_secret(old)])
    async with world.consuming(world.live(signing=secrets, policy=policy)):
        await world.publish(b'{"a":1}')
        await trio.sleep(10)
    first, second = (headers_of(push) for push in world.sender.pushes)
    assert first["webhook-id"] == second["webhook-id"] == 'id-{"a":1}'
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) in (3, 4)
    for headers in (first, second):
        content = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.{{"a":1}}'.encode()
        assert headers["webhook-signature"].split() == [
            "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
            for key in (new, old)
        ]


async def test_a_rotation_takes_effect_without_a_restart(world, autojump_clock):
    live = world.live(signing=SigningPolicy([hmac_secret(b"o" * 24)]))
    async with world.consuming(live) as consumer:
        await world.publish(b"1")
        await trio.sleep(1)
        both = SigningPolicy([hmac_secret(b"n" * 24), hmac_secret(b"o" * 24)])
        body = msgspec.structs.replace(live.subscription, signing=both)
        consumer.ref.tell(msgspec.structs.replace(live, subscription=body, stamp=2))
        await trio.sleep(1)
        await world.publish(b"2")
        await trio.sleep(1)
    counts = [len(headers_of(push)["webhook-signature"].split()) for push in world.sender.pushes]
    assert counts == [1, 2]
    assert len(consumer.made) == 1


async def test_a_trace_reaches_the_subscriber(world, autojump_clock):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with world.consuming():
        await world.publish(b"1", traceparent=trace)
        await trio.sleep(1)
    assert headers_of(world.sender.pushes[0])["traceparent"] == trace


async def test_an_event_reaches_the_subscriber_as_it_was_published(world, autojump_clock):
    attributes = (
        ("specversion", "1.0"),
        ("id", "e 1"),
        ("source", "/shop"),
        ("type", "order.made"),
        ("datacontenttype", "application/vnd.order+json"),
    )
    async with world.consuming(world.live(cloud_events_enabled=True)):
        await world.publish(b"{}", attributes=attributes, key=b"k")
        await trio.sleep(1)
    headers = headers_of(world.sender.pushes[0])
    assert headers["Content-Type"] == "application/vnd.order+json"
    assert {name: value for name, value in headers.items() if name.startswith("ce-")} == {
        "ce-specversion": "1.0",
        "ce-id": "e%201",
        "ce-source": "/shop",
        "ce-type": "order.made",
        "ce-partitionkey": "k",
    }
