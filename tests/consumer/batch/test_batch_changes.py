"""Stops, changes and failures of batch consumers: Hermes' defects of batches are not ours."""

import msgspec
import trio

from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.metadata.seek import Seek, SeekBody

OK = SendOutcome(200)
BUSY = SendOutcome(503)


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
    await batches.world.publish(*batches.numbers(10))
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


async def test_a_retransmission_takes_waiting_messages_out_of_their_batch(
    batches_of_three_partitions, autojump_clock
):
    batches = batches_of_three_partitions
    world = batches.world
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
        seek = Seek(world.clock.now_ms(), SeekBody(7, 0, positions={"dc1": {0: 2}}))
        consumer.ref.tell(msgspec.structs.replace(live, seek=seek))
        await trio.sleep(3)
        assert consumer.status().positions == {0: 2, 1: 2, 2: 0}
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


async def test_a_late_410_does_not_keep_what_a_retransmission_has_taken_elsewhere(
    batches_of_three_partitions, autojump_clock
):
    batches = batches_of_three_partitions
    world = batches.world
    world.sender.script = lambda _push: (2.0, SendOutcome(410))
    await world.publish(b"1", b"2", partition=0)
    await world.publish(b"11", b"12", partition=1)
    policy = {"batch_size": 4, "batch_time": 500}
    async with batches.consuming(policy) as consumer:
        await trio.sleep(1)
        assert sorted(batches.sent[0]) == [1, 2, 11, 12]
        world.sender.script = lambda _push: OK
        live = batches.live(stamp=2, policy=policy)
        seek = Seek(world.clock.now_ms(), SeekBody(7, 0, positions={"dc1": {0: 2}}))
        consumer.ref.tell(msgspec.structs.replace(live, seek=seek))
        await trio.sleep(5)
        assert consumer.status().positions == {0: 2, 1: 2, 2: 0}
        assert consumer.status().buffered_bytes == 0
    assert batches.sent[1:] == [[11, 12]]
    assert world.suspensions == []
