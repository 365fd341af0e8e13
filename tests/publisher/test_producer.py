"""The producer stores in order, in batches, and leaves nobody without an answer."""

import pytest
import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.log.base import Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.partitioner import partition_of


async def test_messages_with_one_key_keep_their_order_in_one_partition(
    world, autojump_clock
) -> None:
    await world.add_topic("shop.keyed", partitions=5)
    publications = []
    for number in range(50):
        publications.append(world.admit("shop.keyed", b"%d" % number, b"key-%d" % (number % 3)))
        if number % 7 == 0:
            await trio.sleep(0.001)
    await trio.sleep(0.01)
    assert all(type(publication.outcome) is Stored for publication in publications)
    for key in (b"key-0", b"key-1", b"key-2"):
        records = [record for record in world.stored if record.key == key]
        assert {record.partition for record in records} == {partition_of(key, 5)}
        numbers = [int(record.value) for record in records]
        assert numbers == sorted(numbers)
        assert len(numbers) in (16, 17)


async def test_what_waits_while_an_append_is_in_flight_is_the_next_batch(
    world, autojump_clock
) -> None:
    await world.add_topic("shop.slow", partitions=1)
    appends = count_appends(world.log)
    world.log.faults.delay_s = (0.010, 0.010)
    world.admit("shop.slow")
    await trio.sleep(0.005)
    publications = [world.admit("shop.slow", b"%d" % number) for number in range(20)]
    await trio.sleep(0.03)
    assert [size for _, size in appends] == [1, 20]
    assert [int(record.value) for record in world.stored[1:]] == list(range(20))
    assert all(type(publication.outcome) is Stored for publication in publications)


async def test_batches_are_bounded_by_records_and_by_bytes(open_world, autojump_clock) -> None:
    async with open_world(batch_records_max=4, batch_bytes_max=1_000) as world:
        await world.add_topic("shop.orders", message_bytes_max=5_000)
        appends = count_appends(world.log)
        for _ in range(8):
            world.admit()
        for _ in range(4):
            world.admit(body=bytes(600))
        world.admit(body=bytes(5_000))
        await trio.sleep(0.05)
        assert [size for _, size in appends] == [4, 4, 1, 1, 1, 1, 1]
        assert len(world.stored) == 13


async def test_without_keys_each_batch_goes_to_another_partition(world, autojump_clock) -> None:
    await world.add_topic("shop.many", partitions=4)
    for _ in range(8):
        await world.publish("shop.many")
    used = [record.partition for record in world.stored]
    assert sorted(used) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_silent_partition_does_not_hold_up_the_others(world, autojump_clock) -> None:
    await world.add_topic("shop.many", partitions=4)
    silence(world.log, 2)
    stuck = next(b"k%d" % n for n in range(100) if partition_of(b"k%d" % n, 4) == 2)
    free = next(b"k%d" % n for n in range(100) if partition_of(b"k%d" % n, 4) == 1)
    for _ in range(20):
        stuck_one = world.admit("shop.many", key=stuck)
        free_one = world.admit("shop.many", key=free)
        await trio.sleep(0.010)
        assert type(free_one.outcome) is Stored
        assert type(stuck_one.outcome) is not Stored


async def test_a_message_that_follows_a_slow_append_does_not_wait_for_its_deadline(
    world, autojump_clock
) -> None:
    await world.add_topic("shop.many", partitions=4)
    for slow_ms in range(15, 65, 3):
        world.log.faults.delay_s = (slow_ms / 1_000, slow_ms / 1_000)
        await world.publish("shop.many")
        world.log.faults.delay_s = None
        await trio.sleep(slow_ms % 7 / 1_000)
        follower = world.admit("shop.many")
        await trio.sleep(0.001)
        assert type(follower.outcome) is Stored, f"after an append of {slow_ms} ms"


async def test_a_silent_log_with_more_waiting_than_a_batch_holds_costs_no_busy_loop(
    open_world, autojump_clock
) -> None:
    async with open_world(batch_records_max=5, append_timeout_s=3.0) as world:
        await world.add_topic("shop.many", partitions=2)
        looks: list[float] = []
        receive = Inbox.receive_nowait

        def counted(inbox, count_max):
            looks.append(trio.current_time())
            # A busy loop would never let the mock clock jump, and the test never end.
            assert len(looks) < 1_000, "the producer spins"
            return receive(inbox, count_max)

        world.log.faults.silent = True
        for _ in range(40):
            world.admit("shop.many")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Inbox, "receive_nowait", counted)
            await trio.sleep(1)
        assert len(looks) < 200


async def test_an_orderly_stop_stores_all_that_waits(world, autojump_clock) -> None:
    for key in (None, b"key"):
        await world.add_topic("shop.ending", incarnation=2 if key else 1, partitions=3)
        world.log.faults.delay_s = (0.005, 0.005)
        publications = [world.admit("shop.ending", b"%d" % number, key) for number in range(30)]
        world.frontend.routes.remove("shop.ending", world.nursery)
        await trio.sleep(0.06)
        world.log.faults.heal()
        assert all(type(publication.outcome) is Stored for publication in publications)


async def test_a_message_whose_deadline_passed_in_the_queue_is_not_stored_later(
    world, autojump_clock
) -> None:
    world.log.faults.delay_s = (0.200, 0.200)
    in_flight = world.admit(body=b"in flight")
    await trio.sleep(0.010)
    waiting = world.admit(body=b"waiting")
    await trio.sleep(1)
    assert in_flight.outcome.status == waiting.outcome.status == 503
    assert "it may have been stored" in in_flight.outcome.message
    assert "was not given to the log within 65 ms; it was not stored" in waiting.outcome.message
    assert [record.value for record in world.stored] == [b"in flight"]


@pytest.mark.parametrize("key", [None, b"key"])
@pytest.mark.parametrize("turns", range(6))
async def test_a_deadline_between_batching_and_append_never_stores_an_empty_body(
    world, autojump_clock, turns: int, key: bytes | None
) -> None:
    await world.add_topic("shop.keyed", partitions=3)
    world.admit("shop.keyed", b"first", b"key")
    await trio.sleep(0.010)
    publication = world.admit("shop.keyed", b"late", key)
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    publication.expire(publication.limits.first_ms)
    await trio.sleep(0.010)
    assert [record.value for record in world.stored] in ([b"first"], [b"first", b"late"])
    assert world.frontend.drain.in_flight == 0


async def test_a_crash_settles_what_is_in_flight_as_unknown_and_the_rest_as_unsent(
    world, autojump_clock
) -> None:
    await world.publish()
    world.log.faults.silent = True
    in_flight = world.admit(body=b"in flight")
    await trio.sleep(0.001)
    waiting = world.admit(body=b"waiting")
    world.supervisor.crash("producer shop.orders_1")
    await trio.sleep(0.001)
    assert type(in_flight.outcome) is UnknownRecord
    assert type(waiting.outcome) is UnavailableRecord
    assert world.frontend.drain.in_flight == 0


async def test_while_a_producer_backs_off_publishes_are_503_at_once(world, autojump_clock) -> None:
    await world.publish()
    world.supervisor.crash("producer shop.orders_1")
    await trio.sleep(0.001)
    start_s = trio.current_time()
    answer = await world.publish()
    assert trio.current_time() == start_s
    assert (answer.status_code, answer.json()["code"]) == (503, "OTHER")
    await trio.sleep(0.2)
    assert (await world.publish()).status_code == 201


async def test_a_topic_that_the_log_does_not_have_yet_is_waited_for(world, autojump_clock) -> None:
    await world.log.topics.delete("shop.orders_1")
    await world.add_topic("shop.late")
    await world.log.topics.delete("shop.late_1")
    early = world.admit("shop.late")
    await trio.sleep(0.070)
    assert early.outcome.status == 503
    assert "it was not stored" in early.outcome.message
    await world.add_topic("shop.late")
    await trio.sleep(1)
    assert (await world.publish("shop.late")).status_code == 201
    assert not world.crashes


@pytest.mark.slow
async def test_a_log_that_was_down_at_the_start_is_used_as_soon_as_it_is_back(
    world, autojump_clock
) -> None:
    world.log.faults.reads_failing = True
    await world.add_topic("shop.late")
    await trio.sleep(300)
    world.log.faults.reads_failing = False
    await trio.sleep(1.1)
    assert (await world.publish("shop.late")).status_code == 201
    assert not world.crashes


async def test_a_stop_waits_for_no_log_that_nobody_waits_for(world, autojump_clock) -> None:
    world.log.faults.reads_failing = True
    await world.add_topic("shop.away")
    waiting = world.admit("shop.away")
    await trio.sleep(5)
    assert waiting.is_done, "answered at its deadline"
    before_s = trio.current_time()
    await world.supervisor.stop("producer shop.away_1", grace_s=20)
    assert trio.current_time() - before_s < 2


def count_appends(log) -> list[tuple[int, int]]:
    """(partition, records) of each append from now on."""
    appends: list[tuple[int, int]] = []
    append = log.append

    async def counted(topic, partition, batch, ack):
        appends.append((partition, len(batch)))
        return await append(topic, partition, batch, ack)

    log.append = counted
    return appends


def silence(log, silent_partition: int) -> None:
    """Appends to one partition never answer."""
    append = log.append

    async def selective(topic, partition, batch, ack):
        if partition == silent_partition:
            await trio.sleep_forever()
        return await append(topic, partition, batch, ack)

    log.append = selective
