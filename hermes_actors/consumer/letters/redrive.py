"""Delivers dead letters again, to their subscription only, beside what its consumer reads: through
the same queues, window, rate and retries, at least once, and crashes go on where they were.

Data flows from left to right: dead-letter topic → plan → pace → fresh queue → … → a mark that
closes the letter, or a newer letter. The marks are what counts; the commit is how far it has come.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import trio
from msgspec.structs import replace

from hermes_actors.consumer.delivery.bodies import Bodies, Undeliverable
from hermes_actors.consumer.delivery.delivery import Buffer, Delivery, DeliveryState
from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.letters.redrive_records import Planning, RedrivePlan, RedriveRecords
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.coordination.owned import Lease
from hermes_actors.log.backoff import Backoff
from hermes_actors.log.base import LogUnavailable, UnknownTopic
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.redrives import (
    FollowedRedrives,
    LetterRange,
    Redrive,
    RedriveProgress,
    redrive_group,
)
from hermes_actors.model.dead_letter import MARK_IDS_MAX, DiscardReason, Letter, dlq_topic
from hermes_actors.model.message import Message, UndecodableRecord, from_record
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)

OUTSTANDING_MAX = 1_000
OUTSTANDING_BYTES_MAX = 16_777_216
"""The most that is under way of re-drives, their retries included."""

_LOOK_S = 0.5
"""How late it may be noticed that a re-drive was cancelled."""

_SETTLE_INTERVAL_S = 1.0
_TROUBLE_MAX_S = 5.0


class _Redelivery(PartitionOffsets):
    """Where a re-driven delivery settles: not in the topic's progress but with the re-drive."""

    def __init__(
        self,
        letter: Letter,
        offset: int,
        number: int,
        on_settled: Callable[["_Redelivery"], None],
    ) -> None:
        super().__init__(0)
        self.letter = letter
        self.offset = offset
        self.number = number
        self._on_settled = on_settled
        self.delivery: Delivery | None = None
        self.is_settled = False
        self.closes_up_to_ms = letter.at_ms

    @property
    def is_fresh(self) -> bool:
        """True until it is taken up, or has to wait behind its key, which may be for long."""
        delivery = self.delivery
        if self.is_settled or delivery is None or delivery.is_parked:
            return False
        return delivery.taken_up_s is None

    def settle(self, offset: int) -> None:
        """Record that the letter was delivered, or given up again with its newer letter kept."""
        self.is_settled = True
        self._on_settled(self)


class Redriver:
    """The re-driving part of one subscription's consumer: it puts deliveries into its `buffer`, and
    calls `feed` after each. At most `fresh_max` of them wait there to be taken up, so that what is
    published meanwhile gets its turn; set it at any time.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        buffer: Buffer,
        feed: Callable[[], None],
        give_up: Callable[[Delivery, DiscardReason, str], None],
        bodies: Bodies,
        lease: Lease,
    ) -> None:
        """While the `lease` is closed nothing is written down. `give_up` is for a message that
        cannot be read any more.
        """
        self._live = live
        self._name = str(live.name)
        self._parts = parts
        self._clock = parts.clock
        self._buffer = buffer
        self._feed = feed
        self._give_up = give_up
        self._bodies = bodies
        self._lease = lease
        self._may_write = lease.is_open
        self._measures = SubscriptionMeasures(parts.metrics, live.name)
        self._records = RedriveRecords(
            parts.log,
            self._name,
            dlq_topic(live.name.topic.group, parts.namespace),
            redrive_group(live.name, parts.namespace),
        )
        self._backoff = Backoff(parts.rng, wait_max_s=_TROUBLE_MAX_S)
        self._settled = Wakeup()
        self._touched = Wakeup()
        self._settling = trio.Lock()
        # By id: under way, and delivered while their marks are on their way.
        self._outstanding: dict[str, _Redelivery] = {}
        self._outstanding_bytes = 0
        self._to_mark: dict[str, _Redelivery] = {}
        self._fed: deque[_Redelivery] = deque()
        self._progress: RedriveProgress | None = None
        self._is_read = False
        self._position = 0
        self._partition = 0
        # Why it does not go on, and why nothing is written down; "" when they do.
        self._stuck = ""
        self._unwritten = ""
        self.fresh_max = 1

    @property
    def is_asked(self) -> bool:
        """True where re-drives can be asked for; else `run` is not to be called."""
        return self._parts.redrives is not None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What keeps a re-drive from going on."""
        detail = self._stuck or self._unwritten
        return (because(Code.REDRIVE_WAITS, detail=detail),) if detail else ()

    async def run(self) -> None:
        """Carry out what is asked for, for ever; a task of the consumer's."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._settle_regularly)
            while True:
                redrive = self._wanted()
                if redrive is None:
                    self._stuck = ""
                    await self._redrives().wait_changed()
                else:
                    await self._carry_out(redrive)

    async def flush(self) -> None:
        """Write down what has been delivered: the consumer ends. Raises LogUnavailable."""
        await self._settle()

    def _redrives(self) -> FollowedRedrives:
        found = self._parts.redrives
        assert found is not None, "it runs only where re-drives can be asked for"
        return found

    def _wanted(self) -> Redrive | None:
        redrive = self._redrives().find(self._live)
        if redrive is None or self._parts.log.dc not in redrive.ranges:
            return None
        done = self._progress
        is_done = (
            done is not None
            and done.is_done
            and (done.number, done.requested_at_ms) == (redrive.number, redrive.requested_at_ms)
        )
        return None if is_done else redrive

    async def _carry_out(self, redrive: Redrive) -> None:
        """Go on with it until it is done or another one has taken its place."""
        version = self._redrives().version(self._live)

        def is_current() -> bool:
            return self._redrives().version(self._live) is version

        try:
            await self._try_to_carry_out(redrive, is_current)
            self._backoff.reset()
        except (LogUnavailable, UnknownTopic) as error:
            if not self._stuck:
                _logger.warning("%s: its re-drive waits: %s", self._name, error)
            self._stuck = str(error)
            # What could not be written down now is written later, though nothing more is done.
            self._touched.set()
            await trio.sleep(self._backoff.next_s())

    async def _try_to_carry_out(self, redrive: Redrive, is_current: Callable[[], bool]) -> None:
        span = redrive.ranges[self._parts.log.dc]
        # Of an earlier one nothing may be left to be counted as this one's.
        await self._settle()
        self._partition = await self._records.find_partition()
        self._progress, position = await self._records.progress(self._partition, redrive, span)
        self._is_read = False
        self._position = position
        pace = RateLimit(redrive.rate_per_s)
        # It may go on after a restart, or after trouble, in the same second.
        pace.drain(self._clock.monotonic_s())
        while is_current() and not self._progress.is_done:
            plan = await self._plan(redrive, replace(span, start=position), is_current)
            if plan is None:
                return
            self._stuck = ""
            so_far = self._progress
            done = so_far.redriven + so_far.failed + so_far.skipped
            under_way = self._under_way(redrive.number)
            self._progress = replace(so_far, total=done + under_way + len(plan.offsets))
            self._touched.set()
            await self._deliver(redrive, plan, pace, is_current)
            if plan.next is None:
                break
            position = plan.next
        await self._finish(redrive, span, is_current)

    async def _plan(
        self, redrive: Redrive, span: LetterRange, is_current: Callable[[], bool]
    ) -> RedrivePlan | None:
        """RedrivePlan the re-drive; None when it is another one now: a long log is not read on for
        nothing.
        """
        planning = Planning(self._name, self._live.incarnation, span, redrive.letters)
        await self._records.each_from(self._partition, span.start, planning.take, is_current)
        if not is_current():
            return None
        return planning.plan(frozenset({*self._outstanding, *self._to_mark}))

    async def _deliver(
        self,
        redrive: Redrive,
        plan: RedrivePlan,
        pace: RateLimit,
        is_current: Callable[[], bool],
    ) -> None:
        wanted = deque(plan.offsets)
        async with self._records.reader(self._partition, wanted) as batches:
            while wanted and is_current():
                batch: Sequence[StoredRecord] = await batches.next_batch()
                for record in batch:
                    letter = self._records.letter(record)
                    if letter is not None:
                        whole = await self._records.whole(letter)
                        if whole is None:
                            self._skip()
                        else:
                            found = await self._read(whole)
                            if not await self._wait_for_turn(pace, is_current):
                                return
                            self._add(redrive, whole, record.offset, found)
                    self._position = record.offset
            for _ in range(batches.expired):
                self._skip()

    async def _wait_for_turn(self, pace: RateLimit, is_current: Callable[[], bool]) -> bool:
        """Wait for room and for the rate; False when the re-drive is another one now."""
        while is_current():
            now_s = self._clock.monotonic_s()
            if not self._has_room():
                await self._settled.wait(_LOOK_S)
            elif not pace.available(now_s):
                await trio.sleep(min(_LOOK_S, pace.wait_s(now_s)))
            else:
                pace.take(now_s)
                return True
        return False

    def _has_room(self) -> bool:
        """True while few wait to be taken up, and few are under way or not marked yet."""
        fed = self._fed
        while fed and not fed[0].is_fresh:
            fed.popleft()
        return (
            len(fed) < max(1, self.fresh_max)
            and len(self._outstanding) + len(self._to_mark) < OUTSTANDING_MAX
            and self._outstanding_bytes < OUTSTANDING_BYTES_MAX
        )

    async def _read(self, letter: Letter) -> Message | Undeliverable | None:
        """Return the letter's message as it is pushed; None where it is no message, which taking it
        up finds out once more and says in a newer letter.
        """
        try:
            message = from_record(
                letter.original, lambda: letter.message_id or self._parts.ids.message_id()
            )
            return await self._bodies.read(letter.original, message)
        except UndecodableRecord:
            return None
        except Undeliverable as error:
            await self._lease.wait_opened()
            return error

    def _add(
        self, redrive: Redrive, letter: Letter, offset: int, found: Message | Undeliverable | None
    ) -> None:
        """Put one letter's message into the fresh queue, as if it had just been read."""
        message = None if isinstance(found, Undeliverable) else found
        # Its time to live begins anew.
        record = replace(letter.original, timestamp_ms=self._clock.now_ms())
        place = _Redelivery(letter, offset, redrive.number, self._on_settled)
        delivery = place.delivery = Delivery(record, place, message)
        delivery.redriven = letter
        self._outstanding[letter.id] = place
        self._outstanding_bytes += delivery.size_bytes
        if isinstance(found, Undeliverable):
            self._give_up(delivery, found.reason, str(found))
            return
        self._fed.append(place)
        self._buffer.add(delivery)
        self._feed()

    def _on_settled(self, place: _Redelivery) -> None:
        delivery = place.delivery
        assert delivery is not None, "made together"
        del self._outstanding[place.letter.id]
        self._outstanding_bytes -= delivery.size_bytes
        if delivery.state is DeliveryState.GIVEN_UP:
            self._count(place, failed=1)
        else:
            # Given up by a node whose clock is ahead, it has been delivered all the same.
            place.closes_up_to_ms = max(place.letter.at_ms, self._clock.now_ms())
            self._to_mark[place.letter.id] = place
        self._settled.set()
        self._touched.set()

    def _skip(self) -> None:
        if self._progress is not None:
            self._progress = replace(self._progress, skipped=self._progress.skipped + 1)
            self._touched.set()

    def _count(self, place: _Redelivery, *, redriven: int = 0, failed: int = 0) -> None:
        progress = self._progress
        self._measures.redriven.add(redriven)
        if progress is not None and progress.number == place.number:
            self._progress = replace(
                progress,
                redriven=progress.redriven + redriven,
                failed=progress.failed + failed,
            )

    def _under_way(self, number: int) -> int:
        places = (*self._outstanding.values(), *self._to_mark.values())
        return sum(place.number == number for place in places)

    async def _finish(
        self, redrive: Redrive, span: LetterRange, is_current: Callable[[], bool]
    ) -> None:
        """Wait for what is under way, and say that all of it is done."""
        while is_current() and self._under_way(redrive.number):
            await self._settled.wait(_LOOK_S)
            if not self._outstanding:
                await self._settle()
        if is_current() and self._progress is not None:
            self._position = span.end
            self._progress = replace(self._progress, is_done=True)
            await self._settle()

    # Writing down.

    async def _settle_regularly(self) -> None:
        while True:
            await self._touched.wait()
            await trio.sleep(_SETTLE_INTERVAL_S)
            try:
                await self._settle()
            except (LogUnavailable, UnknownTopic) as error:
                self._unwritten = str(error)
                self._touched.set()

    async def _settle(self) -> None:
        """Mark what is delivered, then commit. Raises LogUnavailable, UnknownTopic."""
        async with self._settling:
            if not self._may_write():
                # Another owner may carry it out by now.
                self._touched.set()
                return
            while self._to_mark:
                places = islice(self._to_mark.items(), MARK_IDS_MAX)
                some = {each: place.closes_up_to_ms for each, place in places}
                await self._records.mark(self._partition, some, self._clock.now_ms())
                for letter_id in some:
                    self._count(self._to_mark.pop(letter_id), redriven=1)
                self._settled.set()
            if self._progress is not None and self._may_write():
                under_way = [place.offset for place in self._outstanding.values()]
                position = min([self._position, *under_way])
                await self._records.commit(self._partition, position, self._progress)
            self._unwritten = ""
