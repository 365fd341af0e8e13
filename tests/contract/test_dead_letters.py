"""Dead letters in each kind of log: kept whatever their size, found backwards, marked, resumed."""

import random

import msgspec
import trio

from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.letters.redrive_records import Planning, RedriveRecords
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.coordination.owned import Unfenced
from hermes_actors.management.dead_letters.scan import find_place, record_at, search
from hermes_actors.metadata.redrives import LetterRange, Redrive, RedriveProgress
from hermes_actors.model.dead_letter import DiscardReason, LetterFilter
from hermes_actors.model.message import from_record
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import SystemClock, seeded_ids
from hermes_actors.telemetry.metrics import Metrics
from tests.values import a_live_subscription, a_subscription

NAME = SubscriptionName.parse("shop.orders$push")
COUNT = 250
LARGE = b"x" * 2_500_000


def live():
    return a_live_subscription(a_subscription())


def parts_over(log):
    return ConsumerParts(
        log=log,
        sender_of=lambda _live: None,
        clock=SystemClock(),
        rng=random.Random(1),
        ids=seeded_ids(random.Random(2)),
        metrics=Metrics("hermes_consumers"),
        config=ConsumersConfig(),
    )


def a_letter(keeper, offset, value):
    record = StoredRecord(0, offset, 1, None, value, (("id", b"%d" % offset),))
    delivery = Delivery(record, PartitionOffsets(0), from_record(record, str))
    letter = keeper.letter_of(delivery, DiscardReason.EXPIRED, "detail", 1, 503)
    return msgspec.structs.replace(letter, at_ms=offset)


async def keep_all(keeper, letters):
    left = len(letters)
    all_kept = trio.Event()

    def kept(_settlement):
        nonlocal left
        left -= 1
        if not left:
            all_kept.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        for letter in letters:
            keeper.add(letter, kept)
        with trio.move_on_after(60):
            await all_kept.wait()
        nursery.cancel_scope.cancel()
    assert left == 0, keeper.reasons


async def found_in(place):
    found = []

    def take(held):
        found.append(held)
        return True

    assert await search(place, LetterFilter(), take)
    return found


async def test_letters_are_kept_found_closed_and_gone_on_with(under_test):
    async with under_test.open() as log:
        keeper = KeptDeadLetters(live(), "shop.orders", parts_over(log), Unfenced())
        letters = [a_letter(keeper, n, b"%d" % n) for n in range(COUNT)]
        letters.insert(100, a_letter(keeper, COUNT, LARGE))
        await keep_all(keeper, letters)
        place = await find_place(log, keeper.topic, str(NAME), 7)
        found = await found_in(place)
        assert {held.letter.offset for held in found} == set(range(COUNT + 1))
        offsets = [held.offset for held in found]
        assert offsets == sorted(offsets, reverse=True)
        (large,) = [held for held in found if held.letter.offset == COUNT]
        assert (large.value_bytes, large.letter.missing_bytes) == (len(LARGE), 0)
        record = await record_at(log, place.topic, place.partition, large.offset)
        assert record.value == LARGE

        records = RedriveRecords(log, str(NAME), place.topic, "shop_orders_push.redrive")
        partition = await records.find_partition()
        assert partition == place.partition
        too_early = {held.letter.id: held.letter.at_ms - 1 for held in found[200:]}
        await records.mark(partition, too_early, 1)
        assert len(await found_in(await find_place(log, place.topic, str(NAME), 7))) == len(found)
        closed = {held.letter.id: held.letter.at_ms for held in found[:200]}
        await records.mark(partition, closed, 1)
        left = await found_in(await find_place(log, place.topic, str(NAME), 7))
        assert {held.letter.id for held in left} == {held.letter.id for held in found[200:]}

        span = LetterRange(place.start, place.end)
        planning = Planning(str(NAME), 7, span, LetterFilter())
        await records.each_from(partition, span.start, planning.take, lambda: True)
        plan = planning.plan()
        assert plan.offsets == sorted(held.offset for held in left)
        redrive = Redrive(1, 7, 50, 1, "me", {"dc1": span})
        assert await records.progress(partition, redrive, span) == (
            RedriveProgress(1, 1),
            span.start,
        )
        progress = RedriveProgress(1, 1, total=9, redriven=3)
        await records.commit(partition, span.start + 5, progress)
        assert await records.progress(partition, redrive, span) == (progress, span.start + 5)
