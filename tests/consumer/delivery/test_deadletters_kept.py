"""A message that is given up settles only when its dead letter is in the log."""

import msgspec
import trio

from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.delivery import Settlement
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.coordination.owned import Unfenced
from hermes_actors.log.base import LATEST, RefusedRecord
from hermes_actors.model.dead_letter import DiscardReason, Letter, OpenLetters, read_entry
from hermes_actors.model.partitioner import partition_of
from hermes_actors.status.reasons import sentences

DLQ = "_hermes.dlq.shop"
PARTITION = partition_of(b"shop.orders$push", 4)
REFUSED = SendOutcome(400)


async def stored(world, topic=DLQ):
    """All entries of the subscription's partition, in order."""
    end = (await world.log.positions(topic, LATEST))[PARTITION]
    entries = []
    async with world.log.reader(topic, {PARTITION: 0}) as reader:
        while len(entries) < end:
            entries += [read_entry(record) for record in await reader.next_batch(1_000, 10**9)]
    return entries


def open_letters(entries):
    known = OpenLetters()
    return [entry for entry in reversed(entries) if known.take(entry)]


async def test_a_discarded_message_is_kept_with_its_cause_and_settles(world, autojump_clock):
    await world.create()
    world.sender.script = lambda push: REFUSED if push.body == b"bad" else SendOutcome(200)
    await world.publish(b"good", b"bad", key=b"customer")
    async with world.consuming(keeps_letters=True):
        await trio.sleep(3)
        (letter,) = await stored(world)
        assert (await world.committed()).position == 2
    assert (letter.value, letter.key) == (b"bad", b"customer")
    assert (letter.message_id, letter.offset, letter.partition) == ("id-bad", 1, 0)
    assert (letter.reason, letter.status, letter.attempts) == ("client-error", 400, 1)
    assert (letter.subscription, letter.incarnation, letter.dc) == ("shop.orders$push", 7, "dc1")
    assert dict(letter.headers)["id"] == b"id-bad"
    assert letter.id == "dc1:7:0:1"
    assert world.count("dead_letters") == 1
    settings = await world.log.topics.describe(DLQ)
    assert (settings.partitions, settings.retention_ms) == (4, 604_800_000)


async def test_a_stopped_consumer_holds_no_letters_any_more(world, autojump_clock):
    def waiting():
        name = "hermes_consumers_subscription_waiting_dead_letters"
        families = {family.name: family for family in world.metrics.collect()}
        return [sample.value for sample in families[name].samples]

    world.sender.script = lambda _push: REFUSED
    await world.publish(b"bad", b"worse")
    world.log.faults.unavailable_rate = 1.0
    async with world.consuming(keeps_letters=True) as consumer:
        await trio.sleep(3)
        assert waiting() == [2.0]
        await consumer.stop()
        assert waiting() == [0.0]
    world.log.faults.heal()
    # Nothing settled by that: they are given up, and kept, in the next life.
    async with world.consuming(keeps_letters=True):
        await trio.sleep(3)
    assert sorted(letter.value for letter in await stored(world)) == [b"bad", b"worse"]


async def test_who_wants_no_dead_letters_has_none(world, autojump_clock):
    letters = KeptDeadLetters(
        world.live(dead_letters_enabled=False), world.topic, world.parts, Unfenced()
    )
    kept = []
    letters.add(a_letter(3, b"given up"), kept.append)
    assert (kept, letters.waiting) == ([Settlement.DROPPED], 0)


async def test_the_switch_is_followed_without_a_restart(world, autojump_clock):
    world.sender.script = lambda _push: REFUSED
    live = world.live()
    async with world.consuming(live, keeps_letters=True) as consumer:
        off = msgspec.structs.replace(live.subscription, dead_letters_enabled=False)
        consumer.ref.tell(msgspec.structs.replace(live, subscription=off, stamp=2))
        await trio.sleep(1)
        await world.publish(b"bad")
        await trio.sleep(3)
        assert (await world.committed()).position == 1
    assert await world.log.topics.describe(DLQ) is None


async def test_while_the_log_takes_nothing_for_minutes_nothing_is_lost_and_nothing_grows(
    make_world, autojump_clock
):
    world = make_world(waiting_retries_max=20)
    await world.create()
    world.sender.script = lambda _push: REFUSED
    await world.publish(*[b"%d" % n for n in range(100)])
    world.log.faults.unavailable_rate = 1.0
    async with world.consuming(keeps_letters=True) as consumer:
        await trio.sleep(300)
        status = consumer.status()
        assert len(world.sender.pushes) == 20
        assert "20 messages wait for a retry" in status.why
        assert "dead letters wait for _hermes.dlq.shop" in status.why
        assert status.positions == {0: 0}
        world.log.faults.unavailable_rate = 0.0
        await trio.sleep(30)
        assert (await world.committed()).position == 100
        assert consumer.status().why == ""
    assert sorted(int(each.value) for each in await stored(world)) == list(range(100))
    assert world.count("dead_letter_failures") > 20


async def test_a_crash_between_append_and_settling_makes_a_double_that_counts_once(
    world, autojump_clock
):
    world.sender.script = lambda _push: REFUSED
    await world.publish(b"bad")
    world.log.faults.replication_stopped = True
    async with world.consuming(keeps_letters=True) as consumer:
        await trio.sleep(1)
        # The letter is stored and not acknowledged to anybody.
        consumer.supervisor.crash("consumer")
        await trio.sleep(1)
        world.log.faults.heal()
        await trio.sleep(30)
        assert (await world.committed()).position == 1
    entries = await stored(world)
    assert len(entries) == 2
    assert len(open_letters(entries)) == 1


class Narrow:
    """A memory log, to be narrowed down."""

    def __init__(self, log):
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)


async def test_above_its_topics_limit_a_letter_is_kept_without_its_message(world, autojump_clock):
    await world.log.topics.alter(
        world.topic, msgspec.structs.replace(world.settings, record_bytes_max=20_000_000)
    )
    world.sender.script = lambda _push: REFUSED
    await world.publish(b"x" * 3_000_000, b"small")
    async with world.consuming(keeps_letters=True):
        await trio.sleep(3)
        assert (await world.committed()).position == 2
    large, small = sorted(await stored(world), key=lambda each: each.offset)
    assert (large.missing_bytes, large.value) == (3_000_000, b"")
    assert small.value == b"small"
    assert world.count("dead_letters_truncated") == 1


def a_letter(offset=0, value=b"bad", headers=(), reason=DiscardReason.EXPIRED):
    return Letter(
        dc="dc1",
        subscription="shop.orders$push",
        incarnation=7,
        log_topic="shop.orders",
        partition=0,
        offset=offset,
        timestamp_ms=1,
        key=None,
        value=value,
        headers=headers,
        message_id="id",
        reason=reason.value,
        detail="detail",
        attempts=1,
        status=500,
        at_ms=2,
    )


async def test_a_letter_whose_head_is_refused_waits_and_says_why(world, nursery, autojump_clock):
    settings = msgspec.structs.replace(world.settings, partitions=4, record_bytes_max=10)
    settings = msgspec.structs.replace(settings, retention_ms=604_800_000)
    await world.log.topics.create(DLQ, settings)
    keeper = KeptDeadLetters(world.live(), world.topic, world.parts, Unfenced())
    nursery.start_soon(keeper.run)
    kept = []
    keeper.add(a_letter(), kept.append)
    await trio.sleep(60)
    assert kept == []
    assert "the topic takes at most 10" in sentences(keeper.reasons)
    await world.log.topics.alter(DLQ, msgspec.structs.replace(settings, record_bytes_max=10_000))
    await trio.sleep(10)
    assert kept == [Settlement.DEAD_LETTER]


async def test_a_topic_that_is_deleted_is_made_again(world, nursery, autojump_clock):
    keeper = KeptDeadLetters(world.live(), world.topic, world.parts, Unfenced())
    nursery.start_soon(keeper.run)
    kept = []
    keeper.add(a_letter(0), lambda _: kept.append(0))
    await trio.sleep(1)
    await world.log.topics.delete(DLQ)
    keeper.add(a_letter(1), lambda _: kept.append(1))
    await trio.sleep(10)
    assert kept == [0, 1]
    assert [each.offset for each in await stored(world)] == [1]


async def test_a_topic_that_not_every_broker_knows_yet_costs_no_message(
    world, nursery, autojump_clock
):
    class Propagating(Narrow):
        async def append(self, topic, partition, batch, ack):
            if trio.current_time() < 4:
                await trio.lowlevel.checkpoint()
                return [RefusedRecord(f"there is no topic {topic}") for _ in batch]
            return await self._log.append(topic, partition, batch, ack)

    world.parts = msgspec.structs.replace(world.parts, log=Propagating(world.log))
    keeper = KeptDeadLetters(world.live(), world.topic, world.parts, Unfenced())
    nursery.start_soon(keeper.run)
    kept = []
    keeper.add(a_letter(), lambda _: kept.append(1))
    await trio.sleep(3)
    assert "there is no topic" in sentences(keeper.reasons)
    await trio.sleep(10)
    assert kept == [1]
    assert [each.value for each in await stored(world)] == [b"bad"]
    assert world.count("dead_letters_truncated") == 0


async def test_the_topics_retention_follows_the_configuration(world, nursery, autojump_clock):
    settings = msgspec.structs.replace(world.settings, partitions=4, retention_ms=1_000)
    await world.log.topics.create(DLQ, settings)
    keeper = KeptDeadLetters(world.live(), world.topic, world.parts, Unfenced())
    nursery.start_soon(keeper.run)
    keeper.add(a_letter(), lambda _: None)
    await trio.sleep(1)
    assert (await world.log.topics.describe(DLQ)).retention_ms == 604_800_000


async def test_a_log_that_takes_no_such_topic_is_named_and_tried_again(
    world, nursery, autojump_clock
):
    async def refuse(_topic, _settings):
        await trio.lowlevel.checkpoint()
        raise ValueError("names with a dot are forbidden")

    world.log.topics.create = refuse
    keeper = KeptDeadLetters(world.live(), world.topic, world.parts, Unfenced())
    nursery.start_soon(keeper.run)
    kept = []
    keeper.add(a_letter(), lambda _: kept.append(1))
    await trio.sleep(60)
    assert "names with a dot are forbidden" in sentences(keeper.reasons)
    assert kept == []
