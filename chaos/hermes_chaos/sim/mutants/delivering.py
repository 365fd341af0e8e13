"""Seeded bugs of delivery: commits, retries, rates, order, filters, batches, dead letters,
retransmission, the rate control.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from hermes_actors.consumer.batch.assembly import BatchAssembly
from hermes_actors.consumer.batch.dispatch import BatchDispatch
from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.delivery import Delivery, Settlement
from hermes_actors.consumer.delivery.dispatching import Dispatching
from hermes_actors.consumer.letters.redrive import Redriver
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.offsets.progress import TopicProgress
from hermes_actors.consumer.rates.control import RateControl
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.consumer.serial.dispatch import SerialDispatch
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.filters.compiled import Candidate, Filters
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.log.base import LATEST
from hermes_actors.log.commits import CommitOwner, Interval
from hermes_actors.metadata.seek import Seek
from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.subscription import TtlFrom
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.mutants.mutant import WHOLE, Mutant
from hermes_chaos.sim.world import Shape

_settle = PartitionOffsets.settle
_add = KeptDeadLetters.add
_wait = SerialQueue.wait
_rejects = Filters.rejects
_adopt = SerialDispatch.adopt
_redeliver = Redriver._add


def _settle_and_note(self: PartitionOffsets, offset: int) -> None:
    _settle(self, offset)
    self._position = max(self._position, offset + 1)


def _highest(self: PartitionOffsets) -> int:
    return self._position


def _no_intervals(_self: PartitionOffsets) -> Iterator[Interval]:
    return iter(())


def _give_up_at_once(
    self: Dispatching[Any], what: Any, outcome: SendOutcome, _now_s: float
) -> None:
    self._give_up(what, DiscardReason.EXPIRED, outcome.status, "")


async def _load_the_end(self: TopicProgress) -> bool:
    ends = await self._log.positions(self._topic, LATEST)
    missing = [partition for partition in sorted(ends) if partition not in self.partitions]
    self.partitions.update((partition, PartitionOffsets(ends[partition])) for partition in missing)
    return bool(missing)


def _start_by_the_time(_self: TopicProgress, _partition: int) -> None:
    return None


def _wait_no_time(self: SerialQueue, delivery: Delivery, _due_s: float) -> None:
    _wait(self, delivery, 0.0)


def _no_limit(_self: RateLimit, _now_s: float) -> int:
    return 1_000


def _no_drain(_self: RateLimit, _now_s: float) -> None:
    pass


def _settle_then_keep(
    self: KeptDeadLetters, letter: Letter, kept: Callable[[Settlement], None]
) -> None:
    _add(self, letter, lambda _settlement: None)
    kept(Settlement.DEAD_LETTER)


def _ignore_seek(_self: TopicProgress, _seek: Seek | None) -> bool:
    return False


def _any_seek_is_ours(self: TopicProgress, owner: CommitOwner, _partition: int) -> bool:
    ours = self._ownership
    return (owner.incarnation, owner.topic_incarnation) == (
        ours.incarnation,
        ours.topic_incarnation,
    )


def _wait_without_key(self: SerialQueue, delivery: Delivery, due_s: float) -> None:
    _wait(self, delivery, due_s)
    if self._keys is not None:
        following = self._keys.release(delivery)
        if following is not None:
            self._fresh.appendleft(following)


def _stay(_self: RateControl, _level: object, _now_s: float) -> None:
    pass


def _inverted(self: Filters, candidate: Candidate, time: LoopTime | None = None) -> str:
    return "" if _rejects(self, candidate, time) else "jsonpath"


def _one_more(self: BatchAssembly) -> bool:
    return bool(self._open) and len(self._open) > self.size_max


def _settle_the_next_too(self: BatchDispatch, batch: Any) -> None:
    queue = self._assembly._queue
    _settle_batch(self, batch)
    if queue:
        element = queue.popleft()
        self._assembly.buffered_bytes -= element.delivery.size_bytes
        element.delivery.offsets.settle(element.delivery.record.offset)


_settle_batch = BatchDispatch._settle


def _count_no_attempt(self: SerialDispatch, live: Any) -> None:
    _adopt(self, live)
    unbounded = replace(self._retry_policy.policy, attempts_max=None)
    self._retry_policy = replace(self._retry_policy, policy=unbounded)


def _mark_at_once(self: Redriver, job: Any, letter: Any, found: Any) -> None:
    _redeliver(self, job, letter, found)
    self._to_mark[letter.id] = letter.at_ms
    self._places[letter.id]._on_settled = lambda _place: None
    self._touched.set()


def _age_of_the_attempt(_self: SerialDispatch, delivery: Delivery, now_s: float) -> float:
    return (now_s - delivery.sent_s) * 1_000 if delivery.attempts else 0.0


def _live_from_the_reading(self: SerialDispatch, live: Any) -> None:
    _adopt(self, live)
    from_reading = replace(self.policy, ttl_from=TtlFrom.READING)
    self._retry_policy = replace(self._retry_policy, policy=from_reading)


def _age_since_publication(self: SerialDispatch, delivery: Delivery, _now_s: float) -> float:
    return float(self._clock.now_ms() - delivery.record.timestamp_ms)


_MOODS = Shape(faults=frozenset((Fault.SUBSCRIBER,)), strikes=40)

DELIVERING = (
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
        ((Dispatching, "_on_failure", _give_up_at_once),),
    ),
    Mutant(
        "start-at-end",
        "a consumer starts at the end of the log instead of where the last one was",
        ((TopicProgress, "load", _load_the_end),),
    ),
    Mutant(
        "start-by-the-time",
        "a new subscription starts by its time where it was created too",
        ((TopicProgress, "_from_creation", _start_by_the_time),),
    ),
    Mutant(
        "retry-at-once",
        "a failed push is tried again without a wait",
        ((SerialQueue, "wait", _wait_no_time),),
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
        "settle-before-letter-kept",
        "a message that is given up is settled before its dead letter is stored",
        ((KeptDeadLetters, "add", _settle_then_keep),),
        seed=22,
    ),
    Mutant(
        "seek-ignored",
        "a consumer goes on where it is, whatever a retransmission says",
        ((TopicProgress, "go_to", _ignore_seek),),
    ),
    Mutant(
        "stale-commit-wins",
        "a commit that was made before a retransmission counts after it",
        ((TopicProgress, "_is_ours", _any_seek_is_ours),),
    ),
    Mutant(
        "order-broken-on-retry",
        "the next message of a key is pushed while the one before it waits for its retry",
        ((SerialQueue, "wait", _wait_without_key),),
    ),
    Mutant(
        "rate-never-falls",
        "an endpoint at which everything fails is pushed to as fast as before",
        (
            (RateControl, "_fall", _stay),
            (RateControl, "_lower", lambda _self, _rate, _now_s: None),
        ),
        shape=WHOLE,
    ),
    Mutant(
        "filter-inverted",
        "a subscription gets what its filters leave out, and nothing else",
        ((Filters, "rejects", _inverted),),
    ),
    Mutant(
        "batch-one-too-many",
        "a batch takes one message more than its size",
        ((BatchAssembly, "is_full", property(_one_more)),),
    ),
    Mutant(
        "batch-settles-the-next",
        "with a batch the message after it is settled too",
        ((BatchDispatch, "_settle", _settle_the_next_too),),
    ),
    Mutant(
        "attempts-unbounded",
        "a message is tried again however often attemptsMax says",
        ((SerialDispatch, "adopt", _count_no_attempt),),
        seed=2,
        shape=_MOODS,
    ),
    Mutant(
        "ttl-with-each-attempt",
        "a message's time to live begins anew with each attempt",
        ((SerialDispatch, "_age_ms", _age_of_the_attempt),),
        seed=4,
        shape=WHOLE,
    ),
    Mutant(
        "ttl-from-reading",
        "a time to live that is to count from publication counts from the first attempt",
        ((SerialDispatch, "adopt", _live_from_the_reading),),
    ),
    Mutant(
        "ttl-from-publication",
        "a time to live that is to count from the first attempt counts from publication",
        ((SerialDispatch, "_age_ms", _age_since_publication),),
    ),
    Mutant(
        "redrive-marks-first",
        "a dead letter is closed when its message is taken up again, not when it is delivered",
        ((Redriver, "_add", _mark_at_once),),
        shape=WHOLE,
    ),
)
