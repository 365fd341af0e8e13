"""What a batch consumer pushes, when, and that Hermes' defects of batches are not ours."""

import json
import re

import msgspec
import pytest
import trio

from hermes_actors.consumer.batch_consumer import BatchConsumer
from hermes_actors.consumer.sender import Failure, SendOutcome
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_actors.model.record import Record
from hermes_actors.model.subscription import BatchBody, BatchPolicy, DeliveryType, Header
from hermes_actors.model.topic import Ack
from hermes_actors.telemetry.metrics import render

OK = SendOutcome(200)
BUSY = SendOutcome(503)


@pytest.fixture
def batches(world):
    return Batches(world)


class Batches:
    """The world's subscription, delivered in batches."""

    def __init__(self, world):
        self.world = world

    def live(self, *, stamp=1, policy=None, **fields):
        live = self.world.live(**fields)
        policy = BatchPolicy(**{"body": BatchBody.MESSAGES, "batch_time": 1_000, **(policy or {})})
        body = msgspec.structs.replace(
            live.subscription, delivery_type=DeliveryType.BATCH, subscription_policy=policy
        )
        return msgspec.structs.replace(live, subscription=body, stamp=stamp)

    def consuming(self, policy=None, *, keeps_letters=False, **fields):
        live = self.live(policy=policy, **fields)
        return self.world.consuming(live, consumer_class=BatchConsumer, keeps_letters=keeps_letters)

    @property
    def sent(self):
        return [json.loads(body) for body in self.world.sender.bodies]

    @property
    def times_s(self):
        return self.world.sender.times_s

    def headers(self, number):
        lines = self.world.sender.pushes[number].lines.decode().split("\r\n")
        return dict(line.split(": ", 1) for line in lines if line)


def numbers(count, start=0):
    return [b"%d" % n for n in range(start, start + count)]


async def test_full_batches_go_at_once_and_the_rest_when_its_time_has_come(batches, autojump_clock):
    await batches.world.publish(*numbers(25))
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


async def test_a_message_that_does_not_fit_goes_into_the_next_batch(batches, autojump_clock):
    await batches.world.publish(b'"aaaa"', b'"bbbb"', b'"cccc"')
    async with batches.consuming({"batch_volume": 2 + 6 + 1 + 6}):
        await trio.sleep(3)
    assert batches.sent == [["aaaa", "bbbb"], ["cccc"]]


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
    await batches.world.publish(*numbers(7))
    policy = {"batch_size": 4, "message_backoff": 1_000, "backoff_multiplier": 2.0}
    async with batches.consuming(policy) as consumer:
        await trio.sleep(0.5)
        status = consumer.status()
        assert (status.inflight, status.waiting_retries) == (0, 4)
        assert "a batch of 4 messages waits for attempt 2" in status.held_back
        assert "HTTP 503" in status.held_back
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


async def test_the_order_of_a_partition_holds_over_retries(make_world, autojump_clock):
    world = make_world(partitions=3)
    await world.create()
    batches = Batches(world)
    tries = iter(range(1_000))
    world.sender.script = lambda _push: BUSY if next(tries) % 3 else OK
    for n in range(60):
        await world.publish(b"[%d,%d]" % (n % 3, n), partition=n % 3)
    async with batches.consuming({"batch_size": 7, "message_backoff": 50}):
        await trio.sleep(30)
    delivered = [
        each
        for n, each in enumerate(batches.sent)
        if n + 1 == len(batches.sent)
        or batches.headers(n)["Hermes-Batch-Id"] != batches.headers(n + 1)["Hermes-Batch-Id"]
    ]
    for partition in range(3):
        got = [n for each in delivered for p, n in each if p == partition]
        assert got == list(range(partition, 60, 3))
    assert any(len({p for p, _ in each}) > 1 for each in delivered)
    assert world.sender.inflight_high == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", ["7", "Tue, 14 Nov 2023 22:13:27 GMT"])
async def test_retry_after_is_honoured(batches, autojump_clock, status, asked):
    answers = [SendOutcome(status, asked)]
    batches.world.sender.script = lambda _push: answers.pop() if answers else OK
    await batches.world.publish(b"1")
    policy = {"retry_client_errors": True, "batch_size": 1, "batch_time": 1}
    async with batches.consuming(policy):
        await trio.sleep(20)
    assert len(batches.times_s) == 2
    assert batches.times_s[1] == pytest.approx(7, abs=0.1)


async def test_a_batch_past_its_time_to_live_leaves_a_dead_letter_of_each_message(
    batches, autojump_clock
):
    batches.world.sender.script = lambda push: BUSY if b"9" not in push.body else OK
    await batches.world.publish(*numbers(5))
    policy = {"message_ttl": 3, "message_backoff": 500, "batch_size": 5}
    async with batches.consuming(policy, keeps_letters=True) as consumer:
        await trio.sleep(10)
        undelivered = consumer.status().last_undelivered
        assert (undelivered.reason, undelivered.message_id) == ("expired: HTTP 503", "id-4")
        await batches.world.publish(b"9")
        await trio.sleep(3)
    assert 5 <= len(batches.sent) <= 8
    assert batches.sent[-1] == [9]
    world = batches.world
    assert world.count("discarded") == world.count("dead_letters") == 5
    assert world.count("delivered") == 1
    assert (await world.committed()).position == 6


async def test_a_time_to_live_of_0_means_one_attempt(batches, autojump_clock):
    batches.world.sender.script = lambda _push: BUSY
    await batches.world.publish(b"1")
    async with batches.consuming({"message_ttl": 0}):
        await trio.sleep(10)
    assert len(batches.sent) == 1
    assert batches.world.count("discarded") == 1


async def test_attempts_and_statuses_end_as_the_policy_says(batches, autojump_clock):
    answers = {b"[1]": SendOutcome(409), b"[2]": SendOutcome(500), b"[3]": BUSY}
    batches.world.sender.script = lambda push: answers[push.body]
    await batches.world.publish(b"1", b"2", b"3")
    policy = {"batch_size": 1, "retry_on": [409], "discard_on": [500], "attempts_max": 3}
    async with batches.consuming(policy):
        await trio.sleep(20)
    assert batches.sent == [[1]] * 3 + [[2]] + [[3]] * 3
    assert batches.world.count("discarded") == 3


async def test_a_client_error_leaves_counters_and_gauge_right_d3(batches, autojump_clock):
    batches.world.sender.script = lambda push: SendOutcome(400) if b"0" in push.body else OK
    await batches.world.publish(*numbers(6))
    async with batches.consuming({"batch_size": 3}) as consumer:
        await trio.sleep(3)
        status = consumer.status()
        assert (status.inflight, status.waiting_retries, status.buffered_bytes) == (0, 0, 0)
    world = batches.world
    assert batches.sent == [[0, 1, 2], [3, 4, 5]]
    assert world.count("discarded") == 3
    assert world.count("delivered") == 3
    shown = render([world.metrics]).decode().splitlines()
    gauges = [line for line in shown if line.startswith("hermes_consumers_subscription_inflight{")]
    assert [line.rpartition(" ")[2] for line in gauges] == ["0.0"]


async def test_the_next_offset_is_committed_and_nothing_comes_twice_d4(batches, autojump_clock):
    await batches.world.publish(*numbers(10))
    for _ in range(3):
        async with batches.consuming({"batch_size": 10}) as consumer:
            await trio.sleep(5)
            assert consumer.status().positions == {0: 10}
        assert (await batches.world.committed()).position == 10
    assert batches.sent == [list(range(10))]


async def test_failed_batches_are_retried_after_any_change_of_the_subscription_d5(
    batches, autojump_clock
):
    is_well = False
    batches.world.sender.script = lambda _push: OK if is_well else BUSY
    await batches.world.publish(b"1", b"2")
    async with batches.consuming({"message_backoff": 1_000}) as consumer:
        await trio.sleep(5)
        changed = batches.live(
            stamp=2, policy={"message_backoff": 2_000, "message_ttl": 600}, description="new"
        )
        consumer.ref.tell(changed)
        before = len(batches.sent)
        await trio.sleep(60)
        assert len(batches.sent) - before >= 20
        is_well = True
        await trio.sleep(5)
    assert batches.world.count("delivered") == 2
    assert batches.world.count("discarded") == 0
    ids = {batches.headers(n)["Hermes-Batch-Id"] for n in range(len(batches.sent))}
    assert len(ids) == 1


async def test_a_new_endpoint_gets_the_waiting_batch_at_once(batches, autojump_clock):
    batches.world.sender.script = lambda push: OK if push.route.origin.host == "new" else BUSY
    await batches.world.publish(b"1")
    async with batches.consuming({"message_backoff": 50_000, "message_ttl": 600}) as consumer:
        await trio.sleep(5)
        consumer.ref.tell(
            batches.live(stamp=2, policy={"message_backoff": 50_000}, endpoint="http://new/in")
        )
        await trio.sleep(0.1)
        assert batches.world.count("delivered") == 1


async def test_a_waiting_batch_is_made_anew_when_its_bounds_or_its_form_change(
    batches, autojump_clock
):
    batches.world.sender.script = lambda push: SendOutcome(413) if len(push.body) > 10 else OK
    await batches.world.publish(*numbers(10))
    retried = {"retry_client_errors": True, "message_ttl": 600, "message_backoff": 5_000}
    async with batches.consuming({"batch_size": 10, **retried}) as consumer:
        await trio.sleep(7)
        assert batches.sent == [list(range(10))] * 2
        consumer.ref.tell(batches.live(stamp=2, policy={"batch_size": 4, **retried}))
        await trio.sleep(3)
    assert batches.sent[2:] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len({batches.headers(n)["Hermes-Batch-Id"] for n in range(5)}) == 4


async def test_an_idle_or_waiting_subscription_stops_at_once_d6(batches, autojump_clock):
    async with batches.consuming({"batch_time": 300_000}) as consumer:
        await trio.sleep(50)
        at_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - at_s < 0.1
    # And with an open batch: its messages are not settled, so nothing is lost.
    await batches.world.publish(b"1")
    async with batches.consuming({"batch_time": 300_000}) as consumer:
        await trio.sleep(50)
        at_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - at_s < 0.1
    assert (await batches.world.committed()).position == 0
    async with batches.consuming({"batch_time": 1}):
        await trio.sleep(1)
    assert batches.sent == [[1]]


async def test_a_stop_does_not_wait_for_a_retry(batches, autojump_clock):
    batches.world.sender.script = lambda _push: BUSY
    await batches.world.publish(b"1")
    policy = {"batch_time": 1, "message_backoff": 100_000, "message_ttl": 7_200}
    async with batches.consuming(policy) as consumer:
        await trio.sleep(5)
        at_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - at_s < 0.1
    assert len(batches.sent) == 1
    assert (await batches.world.committed()).position == 0


async def test_a_stop_waits_for_the_answer_and_commits_it(batches, autojump_clock):
    batches.world.sender.script = lambda _push: (2.0, OK)
    await batches.world.publish(*numbers(4))
    async with batches.consuming({"batch_size": 2}) as consumer:
        await trio.sleep(1)
        await consumer.stop()
    assert batches.sent == [[0, 1]]
    assert (await batches.world.committed()).position == 2


async def test_a_batch_given_up_while_stopping_keeps_its_dead_letters(batches, autojump_clock):
    batches.world.sender.script = lambda _push: (2.0, SendOutcome(400))
    await batches.world.publish(*numbers(300))
    async with batches.consuming({"batch_size": 300}, keeps_letters=True) as consumer:
        await trio.sleep(1)
        await consumer.stop()
    assert batches.world.count("dead_letters") == 300
    assert (await batches.world.committed()).position == 300


async def test_an_answer_that_never_comes_holds_a_stop_no_longer_than_the_grace(
    batches, autojump_clock
):
    batches.world.sender.script = lambda _push: None
    await batches.world.publish(b"1")
    async with batches.consuming({"batch_time": 1}) as consumer:
        await trio.sleep(1)
        at_s = trio.current_time()
        await consumer.stop()
        assert 5 <= trio.current_time() - at_s < 6
    # The late answer is nobody's.
    batches.world.sender.unanswered[0](OK)
    assert batches.world.count("delivered") == 0


async def test_a_failed_consumer_is_started_again_and_delivers_d7(batches, autojump_clock):
    def script(push):
        if len(batches.world.sender.pushes) == 1:
            raise RuntimeError("a bug")
        return OK

    batches.world.sender.script = script
    await batches.world.publish(b"1", b"2")
    async with batches.consuming({"batch_size": 2}) as consumer:
        await trio.sleep(60)
        assert len(consumer.made) == 2
        assert consumer.status().inflight == 0
    assert [type(crash.error) for crash in batches.world.crashes] == [ExceptionGroup]
    assert batches.sent == [[1, 2], [1, 2]]
    assert (await batches.world.committed()).position == 2


async def test_a_failure_in_an_answer_is_the_actors_failure_d7(batches, autojump_clock):
    async with batches.consuming({"batch_size": 2}) as consumer:
        consumer.made[0]._sending._measures.batches = None
        await batches.world.publish(b"1", b"2")
        await trio.sleep(60)
        assert len(consumer.made) == 2
    assert len(batches.world.crashes) == 1
    assert batches.world.count("batches") == 1


async def test_no_second_sees_more_messages_than_the_rate(batches, autojump_clock):
    await batches.world.publish(*numbers(1_000))
    async with batches.consuming({"batch_size": 40, "message_rate": 100}):
        await trio.sleep(8.5)
    # 33 at a time fill the second as well as whole batches can.
    assert {len(each) for each in batches.sent} == {33}
    taken = list(zip(batches.times_s, map(len, batches.sent), strict=True))
    for at_s, _ in taken:
        assert sum(count for each_s, count in taken if at_s <= each_s < at_s + 1 - 1e-9) <= 100
    assert len(batches.sent) == 8 * 3


async def test_a_batch_size_above_the_rate_makes_batches_of_the_rate(batches, autojump_clock):
    await batches.world.publish(*numbers(25))
    async with batches.consuming({"batch_size": 100, "message_rate": 10}) as consumer:
        await trio.sleep(1.5)
        assert "messageRate of 10/s is used up" in consumer.status().held_back
        await trio.sleep(5)
    assert [len(each) for each in batches.sent] == [10, 10, 5]


async def test_a_retransmission_takes_waiting_messages_out_of_their_batch(
    make_world, autojump_clock
):
    world = make_world(partitions=2)
    await world.create()
    batches = Batches(world)
    is_well = False
    world.sender.script = lambda _push: OK if is_well else BUSY
    await world.publish(b"1", b"2", partition=0)
    await world.publish(b"11", b"12", partition=1)
    policy = {"batch_size": 4, "message_backoff": 5_000, "message_ttl": 600}
    async with batches.consuming(policy) as consumer:
        await trio.sleep(3)
        assert sorted(batches.sent[0]) == [1, 2, 11, 12]
        is_well = True
        live = batches.live(stamp=2, policy=policy)
        seek = Seek(1, SeekBody(7, 0, positions={"dc1": {0: 2}}))
        consumer.ref.tell(msgspec.structs.replace(live, seek=seek))
        await trio.sleep(3)
        assert consumer.status().positions == {0: 2, 1: 2}
    assert batches.sent[1:] == [[11, 12]]
    assert world.crashes == []


async def test_a_gone_endpoint_suspends_and_keeps_the_batch(batches, autojump_clock):
    world = batches.world
    world.sender.script = lambda _push: SendOutcome(410)
    await world.publish(b"1")
    async with batches.consuming({"batch_time": 1}) as consumer:
        await trio.sleep(5)
        assert "HTTP 410" in consumer.status().why
        world.sender.script = lambda _push: OK
        consumer.ref.tell(batches.live(stamp=2))
        await trio.sleep(3)
    assert len(world.suspensions) == 1
    assert batches.sent == [[1], [1]]
    assert world.count("delivered") == 1


async def test_a_full_buffer_completes_a_batch(make_world, autojump_clock):
    world = make_world(buffered_bytes_max=10_000)
    await world.create()
    batches = Batches(world)
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


async def test_an_idle_subscription_hardly_wakes_its_actor(batches, autojump_clock):
    looks = []
    async with batches.consuming() as consumer:
        sending = consumer.made[0]._sending
        fill = sending.fill
        sending.fill = lambda now_s: (looks.append(now_s), fill(now_s))[1]
        await trio.sleep(1_000)
    assert len(looks) <= 3
