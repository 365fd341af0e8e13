"""Delivers dead letters again, as an internal subscription to the dead-letter topic inside the
subscription's own consumer.

It reads the open letters that a re-drive selects, and puts their messages into the consumer's
buffer, where they are delivered like any other. A delivered letter is closed by a mark; one that
fails again becomes a newer letter. Only these records count: after a restart or a hand-over the
search for open letters starts again, so that each is delivered at least once. The commit holds only
the progress figures.
"""

import logging
from collections import deque
from collections.abc import Callable
from itertools import islice

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.consumer.delivery.bodies import Bodies, Undeliverable
from hermes_actors.consumer.delivery.delivery import Buffer, Delivery, DeliveryState
from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.coordination.lease import Lease
from hermes_actors.log.base import Commit, LogUnavailable, OffsetOutOfRange, UnknownTopic
from hermes_actors.log.letters import LetterBox, OpenLetter, letter_in
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.redrives import (
    Redrive,
    RedriveProgress,
    progress_metadata,
    progress_of,
    redrive_group,
)
from hermes_actors.model.dead_letter import MARK_IDS_MAX, DiscardReason, Letter, Mark, MarkKind
from hermes_actors.model.message import Message, UndecodableRecord, from_record
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)

PLAN_MAX = 100_000
"""Maximum number of letters in one plan, the newest first. Another plan follows."""

OUTSTANDING_MAX = 1_000
OUTSTANDING_BYTES_MAX = 16_777_216
"""Maximum number of letters under way, and of their bytes, retries included."""

_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 1_048_576
_ANSWER_TIMEOUT_S = 10.0
_SEARCH_TIMEOUT_S = 600.0
_ROOM_INTERVAL_S = 0.5
_WRITE_INTERVAL_S = 1.0
_TROUBLE_MAX_S = 5.0


class _Job(Struct, eq=False):
    """A re-drive, the partition of its letters, and its progress."""

    redrive: Redrive
    partition: int
    progress: RedriveProgress
    written: Commit | None = None


class _Redelivery(PartitionOffsets):
    """Settles a letter's message with its re-drive, instead of in its topic."""

    def __init__(
        self, job: _Job, letter: Letter, on_settled: Callable[["_Redelivery"], None]
    ) -> None:
        super().__init__(0)
        self.job = job
        self.letter = letter
        self.is_settled = False
        self.delivery: Delivery | None = None
        self._on_settled = on_settled

    @property
    def is_fresh(self) -> bool:
        """True until it is dispatched, or parked behind another message of its key."""
        delivery = self.delivery
        if self.is_settled or delivery is None or delivery.is_parked:
            return False
        return delivery.taken_up_s is None

    def settle(self, offset: int) -> None:
        """Record that the letter was delivered, or that a newer letter replaces it."""
        self.is_settled = True
        self._on_settled(self)


class Redriver:
    """Re-drives the letters of one subscription into its consumer's `buffer`, and calls `feed`
    after each.

    At most `fresh_max` of them wait there for dispatch, so that new messages get their share; it
    may change at any time. `give_up` gets messages that can no longer be read. While the `lease` is
    closed, nothing is written.
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
        self._live = live
        self._log = parts.log
        self._clock = parts.clock
        self._redrives = parts.redrives
        self._buffer = buffer
        self._feed = feed
        self._give_up = give_up
        self._bodies = bodies
        self._lease = lease
        self._measures = SubscriptionMeasures(parts.metrics, live.name)
        self._box = LetterBox(parts.log, live.name, live.incarnation, parts.namespace)
        self._group = redrive_group(live.name, parts.namespace)
        self._backoff = Backoff(parts.rng, wait_max_s=_TROUBLE_MAX_S)
        self._settled = Wakeup()
        self._touched = Wakeup()
        self._writing = trio.Lock()
        self._job: _Job | None = None
        # By id, until they are closed or given up again.
        self._places: dict[str, _Redelivery] = {}
        self._places_bytes = 0
        # By id of a delivered letter: the time up to which its letters are closed.
        self._to_mark: dict[str, int] = {}
        self._fed: deque[_Redelivery] = deque()
        # Why the re-drive is stuck, and why nothing is written. Empty strings if all is well.
        self._stuck = ""
        self._unwritten = ""
        self.fresh_max = 1

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What holds up the re-drive."""
        detail = self._stuck or self._unwritten
        return (because(Code.REDRIVE_WAITS, detail=detail),) if detail else ()

    async def run(self) -> None:
        """Carry out each requested re-drive."""
        if self._redrives is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_regularly)
            while True:
                redrive = self._redrives.find(self._live)
                self._stuck = ""
                async with trio.open_nursery() as current:
                    current.start_soon(self._wait_until_replaced, redrive, current.cancel_scope)
                    if redrive is not None and self._log.dc in redrive.ranges:
                        await self._carry_out(redrive)

    async def flush(self) -> None:
        """Write down what has been delivered, before the consumer ends. Raises LogUnavailable."""
        await self._write()

    async def _wait_until_replaced(self, redrive: Redrive | None, scope: trio.CancelScope) -> None:
        assert self._redrives is not None, "the node follows them"
        while self._redrives.find(self._live) == redrive:
            await self._redrives.wait_changed()
        scope.cancel()

    async def _carry_out(self, redrive: Redrive) -> None:
        while True:
            try:
                await self._deliver(redrive)
            except (LogUnavailable, UnknownTopic) as error:
                if not self._stuck:
                    _logger.warning("%s: its re-drive waits: %s", self._live.name, error)
                self._stuck = str(error)
                await trio.sleep(self._backoff.next_s())
            else:
                self._backoff.reset()
                return

    async def _deliver(self, redrive: Redrive) -> None:
        """Deliver all letters of the re-drive that are still open, and mark it as done."""
        if self._job is None or self._job.redrive != redrive:
            await self._write()
            self._job = await self._begin(redrive)
        job, progress = self._job, self._job.progress
        if progress.is_done:
            return
        pace = RateLimit(redrive.rate_per_s)
        # It may resume in the same second in which it was interrupted.
        pace.drain(self._clock.monotonic_s())
        below = redrive.ranges[self._log.dc].end
        progress.skipped = 0
        is_whole = False
        while not is_whole:
            offsets, is_whole = await self._open_letters(redrive, below)
            if not is_whole and not offsets:
                raise LogUnavailable("its older letters lie too far back to be found in time")
            if offsets:
                below = offsets[0]
            under_way = sum(place.job is job for place in self._places.values())
            known = progress.redriven + progress.failed + progress.skipped
            progress.total = known + under_way + len(offsets)
            self._stuck = ""
            self._touched.set()
            await self._feed_letters(job, offsets, pace)
            while any(place.job is job for place in self._places.values()):
                await self._settled.wait()
        progress.is_done = True
        self._touched.set()

    async def _begin(self, redrive: Redrive) -> _Job:
        place = await self._box.place()
        if place is None:
            raise LogUnavailable(f"the log has no topic {self._box.topic}")
        commits = await self._log.committed(self._group, self._box.topic)
        return _Job(redrive, place.partition, progress_of(commits.get(place.partition), redrive))

    async def _open_letters(self, redrive: Redrive, below: int) -> tuple[deque[int], bool]:
        """The offsets of the selected open letters below an offset that are not under way,
        ascending, at most the newest PLAN_MAX; True if these are all.
        """
        offsets: deque[int] = deque()

        def take(held: OpenLetter) -> bool:
            if held.letter.id not in self._places:
                offsets.appendleft(held.offset)
            return len(offsets) < PLAN_MAX

        is_whole = await self._box.search(
            redrive.letters, take, below=below, timeout_s=_SEARCH_TIMEOUT_S
        )
        return offsets, is_whole

    async def _feed_letters(self, job: _Job, offsets: deque[int], pace: RateLimit) -> None:
        """Put the letters at these offsets into the buffer, as room and rate allow. Count those
        that retention has removed.
        """
        if not offsets:
            return
        async with self._log.reader(self._box.topic, {job.partition: offsets[0]}) as reader:
            while offsets:
                try:
                    with trio.fail_after(_ANSWER_TIMEOUT_S):
                        batch = await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX)
                except trio.TooSlowError as error:
                    raise LogUnavailable("the log does not answer") from error
                except OffsetOutOfRange as error:
                    # Above the log's end there are only letters that the log has lost.
                    is_expired = error.position < error.start
                    _skip_below(error.start if is_expired else offsets[-1] + 1, offsets, job)
                    reader.seek(job.partition, error.start)
                    continue
                for record in batch:
                    _skip_below(record.offset, offsets, job)
                    if not offsets or offsets[0] != record.offset:
                        continue
                    letter = letter_in(record)
                    whole = None if letter is None else await self._box.whole(letter)
                    if whole is None:
                        job.progress.skipped += 1
                    else:
                        found = await self._read(whole)
                        await self._wait_for_turn(pace)
                        self._add(job, whole, found)
                    offsets.popleft()

    async def _wait_for_turn(self, pace: RateLimit) -> None:
        while True:
            now_s = self._clock.monotonic_s()
            if not self._has_room():
                await self._settled.wait(_ROOM_INTERVAL_S)
            elif not pace.available(now_s):
                await trio.sleep(pace.wait_s(now_s))
            else:
                pace.take(now_s)
                return

    def _has_room(self) -> bool:
        """True while few letters wait for dispatch, and few are under way or not closed yet."""
        while self._fed and not self._fed[0].is_fresh:
            self._fed.popleft()
        return (
            len(self._fed) < max(1, self.fresh_max)
            and len(self._places) < OUTSTANDING_MAX
            and self._places_bytes < OUTSTANDING_BYTES_MAX
        )

    async def _read(self, letter: Letter) -> Message | Undeliverable | None:
        """The letter's message as it is pushed. None if its record cannot be decoded; dispatch then
        gives it up.
        """
        try:
            return await self._bodies.read(letter.original, from_record(letter.original))
        except UndecodableRecord:
            return None
        except Undeliverable as error:
            await self._lease.wait_opened()
            return error

    def _add(self, job: _Job, letter: Letter, found: Message | Undeliverable | None) -> None:
        """Add one letter's message to the buffer, like a record that was just read."""
        message = None if isinstance(found, Undeliverable) else found
        place = _Redelivery(job, letter, self._on_settled)
        # Its time to live starts again.
        record = replace(letter.original, timestamp_ms=self._clock.now_ms())
        delivery = place.delivery = Delivery(record, place, message)
        delivery.redriven = letter
        self._places[letter.id] = place
        self._places_bytes += delivery.size_bytes
        if isinstance(found, Undeliverable):
            self._give_up(delivery, found.reason, str(found))
            return
        self._fed.append(place)
        self._buffer.add(delivery)
        self._feed()

    def _on_settled(self, place: _Redelivery) -> None:
        assert place.delivery is not None, "made together"
        if place.delivery.state is DeliveryState.GIVEN_UP:
            self._end(place)
            place.job.progress.failed += 1
        else:
            # It may have been given up by a node whose clock is ahead.
            self._to_mark[place.letter.id] = max(place.letter.at_ms, self._clock.now_ms())
        self._touched.set()

    def _end(self, place: _Redelivery) -> None:
        assert place.delivery is not None, "made together"
        del self._places[place.letter.id]
        self._places_bytes -= place.delivery.size_bytes
        self._settled.set()

    async def _write_regularly(self) -> None:
        while True:
            await self._touched.wait()
            await trio.sleep(_WRITE_INTERVAL_S)
            try:
                await self._write()
            except (LogUnavailable, UnknownTopic) as error:
                self._unwritten = str(error)
                self._touched.set()

    async def _write(self) -> None:
        """Close delivered letters, then commit the figures. Raises LogUnavailable, UnknownTopic."""
        async with self._writing:
            while self._to_mark and self._lease.is_open():
                some = dict(islice(self._to_mark.items(), MARK_IDS_MAX))
                times = tuple(some.values())
                await self._box.close(
                    Mark(MarkKind.REDRIVEN, tuple(some), self._clock.now_ms(), times)
                )
                self._measures.redriven.add(len(some))
                for letter_id in some:
                    del self._to_mark[letter_id]
                    place = self._places[letter_id]
                    self._end(place)
                    place.job.progress.redriven += 1
            if not self._lease.is_open():
                # Another owner may be carrying it out by now.
                self._touched.set()
                return
            if self._job is not None:
                await self._commit(self._job)
            self._unwritten = ""

    async def _commit(self, job: _Job) -> None:
        span = job.redrive.ranges[self._log.dc]
        position = span.end if job.progress.is_done else span.start
        commit = Commit(position, progress_metadata(job.progress))
        if commit != job.written:
            await self._log.commit(self._group, self._box.topic, {job.partition: commit})
            job.written = commit


def _skip_below(offset: int, offsets: deque[int], job: _Job) -> None:
    while offsets and offsets[0] < offset:
        offsets.popleft()
        job.progress.skipped += 1
