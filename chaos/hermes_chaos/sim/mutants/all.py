"""All seeded bugs, which the checkers must catch."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.consumer.reading.offsets import PartitionOffsets
from hermes_actors.consumer.reading.progress import TopicProgress
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.consumer.serial.dispatch import Dispatch
from hermes_actors.consumer.serial.lanes import Delivery, Lanes
from hermes_actors.log.base import Stored
from hermes_actors.log.batching import Batch, Batcher
from hermes_actors.log.commits import Interval
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.publisher.producer import TopicProducer
from hermes_actors.publisher.publication import Publication
from hermes_chaos.sim.mutants.delivering import DELIVERING
from hermes_chaos.sim.mutants.mutant import Mutant
from hermes_chaos.sim.mutants.owning import OWNING
from hermes_chaos.sim.mutants.publishing import PUBLISHING

_append: Callable[[TopicProducer, Batch], Any] = TopicProducer._append
_settle = PartitionOffsets.settle
_wait = Lanes.wait


async def _acknowledge_then_append(self: TopicProducer, batch: Batch) -> None:
    for publication in cast("list[Publication]", batch.items):
        # `settle` lets go of the body, which the append still needs.
        body = publication.body
        publication.settle(Stored(0))
        publication.body = body
    await _append(self, batch)


async def _lead_and_leave_the_watcher(
    self: TopicProducer, batch: Batch | None, inbox: Inbox[Publication], batcher: Batcher
) -> None:
    while batch is not None:
        self._leading = batch
        await self._append(batch)
        batcher.release(batch)
        self._take(inbox, batcher)
        batch = batcher.next_batch(self._clock.monotonic_s())
    self._leading = None


async def _wait_beside_another(self: Inbox[Any]) -> bool:
    # The assertion that an inbox has one reader would stop the producer before the bug shows.
    if self._mailbox.items or self._mailbox.closed:
        await trio.lowlevel.checkpoint()
    while not self._mailbox.items:
        if self._mailbox.closed:
            return False
        await self._mailbox.readers.park()
    return True


def _settle_and_note(self: PartitionOffsets, offset: int) -> None:
    _settle(self, offset)
    self._position = max(self._position, offset + 1)


def _highest(self: PartitionOffsets) -> int:
    return self._position


def _no_intervals(_self: PartitionOffsets) -> Iterator[Interval]:
    return iter(())


def _give_up_at_once(
    self: Dispatch, delivery: Delivery, outcome: SendOutcome, _now_s: float
) -> None:
    self._discard(delivery, DiscardReason.EXPIRED, outcome.status, outcome.reason())


async def _load_the_end(self: TopicProgress) -> bool:
    ends = await self._log.end_positions(self._topic)
    missing = [partition for partition in sorted(ends) if partition not in self.partitions]
    self.partitions.update((partition, PartitionOffsets(ends[partition])) for partition in missing)
    return bool(missing)


def _wait_no_time(self: Lanes, delivery: Delivery, _due_s: float) -> None:
    _wait(self, delivery, 0.0)


def _no_limit(_self: RateLimit, _now_s: float) -> int:
    return 1_000


def _no_drain(_self: RateLimit, _now_s: float) -> None:
    pass


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "ack-before-append",
            "a publisher is answered 201 before its message is in the log",
            ((TopicProducer, "_append", _acknowledge_then_append),),
        ),
        Mutant(
            "commit-highest",
            "the commit's position is the highest delivered offset, not the lowest unsettled one",
            (
                (PartitionOffsets, "settle", _settle_and_note),
                (PartitionOffsets, "position", property(_highest)),
                (PartitionOffsets, "intervals", _no_intervals),
            ),
        ),
        Mutant(
            "no-retry",
            "a push that fails is given up at once",
            ((Dispatch, "_on_failure", _give_up_at_once),),
        ),
        Mutant(
            "start-at-end",
            "a consumer starts at the end of the log instead of where the last one was",
            ((TopicProgress, "load", _load_the_end),),
        ),
        Mutant(
            "retry-at-once",
            "a failed push is tried again without a wait",
            ((Lanes, "wait", _wait_no_time),),
        ),
        Mutant(
            "no-rate",
            "a subscription's rate is not kept",
            ((RateLimit, "available", _no_limit),),
        ),
        Mutant(
            "undrained-limit",
            "a consumer that begins may push at once what its predecessor has just pushed",
            ((RateLimit, "drain", _no_drain),),
        ),
        Mutant(
            "wake-up-taken",
            "a second task takes the wake-up of the message that follows a slow append",
            (
                (TopicProducer, "_lead", _lead_and_leave_the_watcher),
                (Inbox, "wait", _wait_beside_another),
            ),
        ),
        *PUBLISHING,
        *DELIVERING,
        *OWNING,
    )
}
