"""What a batch consumer pushes, and when."""

import base64
import hmac
import re

import msgspec
import pytest
import trio

from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.model.record import Record
from hermes_actors.model.subscription import (
    BatchBody,
    Header,
    SigningPolicy,
)
from hermes_actors.model.topic import Ack

OK = SendOutcome(200)
BUSY = SendOutcome(503)


async def test_full_batches_go_at_once_and_the_rest_when_its_time_has_come(batches, autojump_clock):
    await batches.world.publish(*batches.numbers(25))
    async with batches.consuming({"batch_size": 10, "batch_time": 5_000}) as consumer:
        await trio.sleep(1)
        assert [len(each) for each in batches.sent] == [10, 10]
        assert "5 of 10 messages of a batch are there" in consumer.status().held_back
        await trio.sleep(5)
        assert [len(each) for each in batches.sent] == [10, 10, 5]
        assert [n for each in batches.sent for n in each] == list(range(25))
        assert batches.times_s[2] == pytest.approx(batches.times_s[0] + 5, abs=0.01)
        assert consumer.status().held_back == ""
    world = batches.world
    assert world.count("delivered") == 25
    assert world.count("batches") == 3
    assert consumer.made[-1].figures().counts.batches == 3
    assert world.count("http_status_codes", status_code="200") == 3
    assert world.crashes == []


async def test_a_message_too_large_for_any_batch_is_a_dead_letter_and_blocks_nobody(
    batches, autojump_clock
):
    await batches.world.publish(b"1", b'"' + b"x" * 100 + b'"', b"2")
    async with batches.consuming({"batch_volume": 50}, keeps_letters=True) as consumer:
        await trio.sleep(3)
        assert consumer.status().last_undelivered.reason.startswith("too-large: 102 bytes")
    assert batches.sent == [[1, 2]]
    assert batches.world.count("discarded") == 1
    assert batches.world.count("dead_letters") == 1
    assert (await batches.world.committed()).position == 3


@pytest.mark.parametrize(
    "body", [b"", b"{", b"1]", b"\xff", b'"\xff"', b"NaN", b"\xef\xbb\xbf{}", b"[" * 5_000]
)
async def test_a_message_that_is_not_json_is_a_dead_letter_and_breaks_no_array(
    batches, autojump_clock, body
):
    await batches.world.publish(b'{"a": 1}')
    record = Record(key=None, value=body, headers=(("id", b"x"), ("dc", b"d")), timestamp_ms=1)
    await batches.world.log.append(batches.world.topic, 0, [record], Ack.LEADER)
    await batches.world.publish(b'"half a pair: \\ud800"')
    async with batches.consuming(keeps_letters=True) as consumer:
        await trio.sleep(3)
        assert consumer.status().last_undelivered.reason.startswith("undecodable: ")
    assert batches.sent == [[{"a": 1}, "half a pair: \ud800"]]
    assert batches.world.count("undecodable") == 1
    assert batches.world.count("dead_letters") == 1


async def test_envelopes_say_what_hermes_says_of_each_message(batches, autojump_clock):
    world = batches.world
    await world.publish(b'{"a": 1}')
    await world.publish(b"[2]", propagated=(("Trace-Id", "t"),))
    async with batches.consuming({"body": BatchBody.ENVELOPES}):
        await trio.sleep(3)
    published = world.sender.bodies[0]
    at_ms = re.search(rb'"timestamp":(\d+)', published).group(1)
    assert published == (
        b'[{"_w":true,"metadata":{"timestamp":%b,"id":"id-{\\"a\\": 1}","externalMetadata":{}},'
        b'"message":{"a": 1}},'
        b'{"_w":true,"metadata":{"timestamp":%b,"id":"id-[2]","externalMetadata":'
        b'{"Trace-Id":"t","messageId":"id-[2]"}},"message":[2]}]' % (at_ms, at_ms)
    )


async def test_a_batch_says_who_it_is_and_ours_win_over_fixed_headers(batches, autojump_clock):
    await batches.world.publish(b"1")
    async with batches.consuming(
        endpoint="http://user:pass@sink/in",
        subscription_identity_headers_enabled=True,
        cloud_events_enabled=True,
        headers=[Header("X-Mine", "yes"), Header("hermes-batch-id", "no")],
    ) as consumer:
        await trio.sleep(3)
        assert consumer.status().dropped_headers == ("hermes-batch-id",)
    headers = batches.headers(0)
    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", headers["Hermes-Batch-Id"])
    assert headers["Content-Type"] == "application/json"
    assert headers["Keep-Alive"] == "true"
    assert headers["Authorization"] == "Basic dXNlcjpwYXNz"
    assert headers["Hermes-Retry-Count"] == "0"
    assert headers["Hermes-Topic-Name"] == "shop.orders"
    assert headers["Hermes-Subscription-Name"] == "push"
    assert headers["X-Mine"] == "yes"
    assert batches.world.sender.pushes[0].request_timeout_ms == 30_000


async def test_a_failed_batch_is_sent_again_as_it_was_before_anything_else(batches, autojump_clock):
    answers = [BUSY, SendOutcome(0, failure=Failure.CONNECT), BUSY, OK]
    batches.world.sender.script = lambda _push: answers.pop(0) if answers else OK
    await batches.world.publish(*batches.numbers(7))
    policy = {"batch_size": 4, "message_backoff": 1_000, "backoff_multiplier": 2.0}
    async with batches.consuming(policy) as consumer:
        await trio.sleep(0.5)
        status = consumer.status()
        assert (status.inflight, status.waiting_retries) == (0, 4)
        assert "a batch of 4 messages waits for attempt 2" in status.held_back
        await trio.sleep(20)
    assert batches.sent == [[0, 1, 2, 3]] * 4 + [[4, 5, 6]]
    ids = [batches.headers(n)["Hermes-Batch-Id"] for n in range(5)]
    assert len(set(ids[:4])) == 1
    assert ids[4] != ids[0]
    counts = [batches.headers(n)["Hermes-Retry-Count"] for n in range(5)]
    assert counts == ["0", "1", "2", "3", "0"]
    gaps_s = [batches.times_s[n + 1] - batches.times_s[n] for n in range(3)]
    for gap_s, base_s in zip(gaps_s, (1, 2, 4), strict=True):
        assert base_s <= gap_s < base_s * 1.25 + 0.01
    assert batches.world.count("retries") == 3
    assert (await batches.world.committed()).position == 7


async def test_a_batch_past_its_time_to_live_leaves_a_dead_letter_of_each_message(
    batches, autojump_clock
):
    batches.world.sender.script = lambda push: BUSY if b"9" not in push.body else OK
    await batches.world.publish(*batches.numbers(5))
    policy = {"message_ttl": 3, "message_backoff": 500, "batch_size": 5}
    async with batches.consuming(policy, keeps_letters=True) as consumer:
        await trio.sleep(10)
        undelivered = consumer.status().last_undelivered
        assert (undelivered.reason, undelivered.offset) == ("expired: HTTP 503", 4)
        await batches.world.publish(b"9")
        await trio.sleep(3)
    assert 5 <= len(batches.sent) <= 8
    assert batches.sent[-1] == [9]
    world = batches.world
    assert world.count("discarded") == world.count("dead_letters") == 5
    assert world.count("delivered") == 1
    assert (await world.committed()).position == 6


async def test_a_full_buffer_completes_a_batch(batches, autojump_clock):
    world = batches.world
    small = msgspec.structs.replace(world.config, buffered_bytes_max=10_000)
    world.parts = msgspec.structs.replace(world.parts, config=small)
    await world.publish(*(b'"%b"' % (b"x" * 500) for _ in range(30)))
    policy = {"batch_size": 1_000, "batch_volume": 1_000_000, "batch_time": 60_000}
    async with batches.consuming(policy) as consumer:
        await trio.sleep(5)
        # Nothing more would be read until the batch's time: it goes at once.
        assert len(batches.sent) >= 1
        assert sum(map(len, batches.sent)) >= 20
        await trio.sleep(60)
        assert consumer.status().buffered_bytes == 0
    assert sum(map(len, batches.sent)) == 30


async def test_a_retry_goes_to_another_address_of_several(batches, autojump_clock):
    batches.world.sender.script = lambda push: OK if push.route.origin.host == "b" else BUSY
    await batches.world.publish(b"1")
    endpoint = "http://a/in;http://x:y@b/in"
    async with batches.consuming({"batch_time": 1}, endpoint=endpoint):
        await trio.sleep(10)
        await batches.world.publish(b"2")
        await trio.sleep(10)
    hosts = [push.route.origin.host for push in batches.world.sender.pushes]
    assert hosts[:2] == ["a", "b"]
    assert "Authorization" not in batches.headers(0)
    assert batches.headers(1)["Authorization"] == "Basic eDp5"
    assert batches.world.count("delivered") == 2


async def test_each_attempt_at_a_batch_is_signed(batches, autojump_clock):
    key = bytes(range(32))
    answers = [BUSY]
    batches.world.sender.script = lambda _push: answers.pop() if answers else OK
    await batches.world.publish(b"1", b"2")
    signing = SigningPolicy(["whsec_" + base64.b64encode(key).decode()])
    async with batches.consuming({"message_backoff": 2_000}, signing=signing):
        await trio.sleep(10)
    assert len(batches.sent) == 2
    times = []
    for number, push in enumerate(batches.world.sender.pushes):
        headers = batches.headers(number)
        batch_id, at_s = headers["webhook-id"], headers["webhook-timestamp"]
        assert batch_id == headers["Hermes-Batch-Id"]
        signed = f"{batch_id}.{at_s}.".encode() + push.body
        mac = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        assert headers["webhook-signature"] == f"v1,{mac}"
        times.append(int(at_s))
    assert times[1] - times[0] >= 2
