"""Dead letters in each kind of log: kept whatever their size, found, read and closed."""

import random

import msgspec
import trio

from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.coordination.owned import Unfenced
from hermes_actors.log.letters import LetterBox
from hermes_actors.model.dead_letter import DiscardReason, LetterFilter, Mark, MarkKind
from hermes_actors.model.message import from_record
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import SystemClock, seeded_ids
from hermes_actors.telemetry.metrics import Metrics
from tests.values import a_live_subscription, a_subscription

NAME = SubscriptionName.parse("shop.orders$push")
COUNT = 250
LARGE = b"x" * 2_000_000
TOO_LARGE = b"x" * 3_000_000


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
    delivery = Delivery(record, PartitionOffsets(0), from_record(record))
    letter = keeper.letter_of(delivery, DiscardReason.EXPIRED, "detail", 503)
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


async def found_in(box):
    found = []

    def take(held):
        found.append(held)
        return True

    assert await box.search(LetterFilter(), take)
    return found


async def test_letters_are_kept_found_read_and_closed(under_test):
    async with under_test.open() as log:
        keeper = KeptDeadLetters(live(), "shop.orders", parts_over(log), Unfenced())
        letters = [a_letter(keeper, n, b"%d" % n) for n in range(COUNT)]
        letters.insert(100, a_letter(keeper, COUNT, LARGE))
        await keep_all(keeper, letters)
        box = LetterBox(log, NAME, 7)
        found = await found_in(box)
        assert {held.letter.offset for held in found} == set(range(COUNT + 1))
        offsets = [held.offset for held in found]
        assert offsets == sorted(offsets, reverse=True)
        (large,) = [held for held in found if held.letter.offset == COUNT]
        assert (large.value_bytes, large.letter.missing_bytes) == (len(LARGE), 0)
        assert (await box.read(large)).value == LARGE

        def mark(some, before_ms):
            times = tuple(held.letter.at_ms - before_ms for held in some)
            return Mark(MarkKind.REDRIVEN, tuple(held.letter.id for held in some), 1, times)

        await box.close(mark(found[200:], before_ms=1))
        assert len(await found_in(box)) == len(found)
        await box.close(mark(found[:200], before_ms=0))
        left = await found_in(box)
        assert {held.letter.id for held in left} == {held.letter.id for held in found[200:]}


async def test_what_is_too_large_for_any_topic_is_kept_without_its_message(under_test):
    async with under_test.open() as log:
        keeper = KeptDeadLetters(live(), "shop.orders", parts_over(log), Unfenced())
        await keep_all(keeper, [a_letter(keeper, 0, TOO_LARGE), a_letter(keeper, 1, b"small")])
        found = await found_in(LetterBox(log, NAME, 7))
        kept = {held.letter.offset: held.letter.missing_bytes for held in found}
        assert kept == {0: len(TOO_LARGE), 1: 0}
