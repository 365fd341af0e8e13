"""Subscriptions of several addresses, consumed: who gets what, and what is remembered."""

import base64
import hashlib
import hmac
import logging
import random

import msgspec
import pytest
import trio

from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.model.signing_secrets import hmac_secret
from hermes_actors.model.subscription import Header, SigningPolicy
from tests.consumer.recipients_scene import (
    LIST,
    OK,
    Script,
    broadcast,
    headers_of,
    hosts,
    where,
)
from tests.seeds import seeds


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


async def test_anycast_takes_turns_and_tries_the_next_one_at_a_retry(world, autojump_clock):
    world.sender.script = Script(b=[SendOutcome(500)] * 9)
    async with world.consuming(world.live(endpoint=LIST)):
        for each in range(6):
            await world.publish(b"%d" % each)
            await trio.sleep(1)
    assert hosts(world) == ["a", "b", "c", "c", "a", "b", "c", "c"]
    assert world.count("delivered") == 6


@pytest.mark.parametrize("seed", seeds(8))
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
