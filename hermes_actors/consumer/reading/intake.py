"""Reads one subscription's partitions into the fresh queue, and stops at its bounds.

A partition whose oldest unsettled message is too far behind is skipped; the others are read on.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import assert_never

import trio

from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.delivery.delivery import Buffer, Delivery, Transitions
from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.offsets.progress import TopicProgress
from hermes_actors.consumer.reading.filters import (
    Exhausted,
    Filtered,
    Later,
    Postponed,
    Screening,
    Seen,
    let_pass,
)
from hermes_actors.log.base import Log, LogUnavailable, OffsetOutOfRange, Reader, UnknownTopic
from hermes_actors.metadata.seek import Seek
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import Message, is_avro, is_for_another
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)

_TROUBLE_PAUSE_S = 1.0
_PARTITION_CHECK_S = 30.0

_TURN_S = 0.004
"""The longest that a batch is screened before other tasks run."""
_CLOCK_EVERY = 16
_SHARE_MIN = 0.001
_FOR_ANOTHER = Filtered("only-for")
_TOMBSTONE = Filtered("tombstones")


class Intake:
    """The reading half of a consumer. `on_read` is called after each batch and each skip; `give_up`
    gets each message that the screen gives up, with the reason.

    `read_ahead` is how many fresh messages may wait; it may change at any time. `lacks_bytes` is
    True while reading waits for `note_settled`.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        subscription: str,
        progress: TopicProgress,
        buffer: Buffer,
        config: ConsumersConfig,
        measures: SubscriptionMeasures,
        transitions: Transitions,
        on_read: Callable[[], None],
        give_up: Callable[[Delivery, DiscardReason, str], None],
        screening: Screening,
    ) -> None:
        self._log = log
        self._topic = topic
        self._subscription = subscription
        self._progress = progress
        self._buffer = buffer
        self._config = config
        self._measures = measures
        self._transitions = transitions
        self._on_read = on_read
        self._give_up = give_up
        self._screening = screening
        self._room = Wakeup()
        self._scope = trio.CancelScope()
        self._reads: dict[int, int] = {}
        self._stuck: set[int] = set()
        self._is_over = False
        # Partitions in doubt: the log may have lost records that were read. They are not read until
        # they are compared, at this time.
        self._doubtful: dict[int, float] = {}
        self._looked_at: set[int] = set()
        self._doubted = Wakeup()
        self._doubt_detail = ""
        self._reader: Reader | None = None
        self._looks_back = False
        self.lacks_bytes = False
        # The share of recently read records that passed the screen.
        self._passing_share = 1.0
        self.read_ahead = 1
        self._trouble: Reason | None = because(Code.STARTING)

    async def find_start(self) -> None:
        """Find the start offsets; wait while the log or its topic is unavailable."""
        while True:
            try:
                await self._progress.load()
            except LogUnavailable as error:
                self._trouble = because(Code.LOG_AWAY, detail=str(error))
            except UnknownTopic:
                self._trouble = because(Code.NO_TOPIC, topic=self._topic)
            else:
                self._trouble = None
                return
            await trio.sleep(_TROUBLE_PAUSE_S)

    def seek(self, seek: Seek | None) -> bool:
        """Drop what was read of the partitions that a new retransmission moves, and stop reading
        them. True if the retransmission is new; then call `arrive`.
        """
        if not self._progress.go_to(seek):
            return False
        self._buffer.drop_superseded()
        # Discards a batch that was read but not screened yet.
        self._scope.cancel()
        return True

    async def arrive(self) -> None:
        """After `seek`: wait until the new positions are found, and read on from there."""
        await self.find_start()
        self._scope.cancel()

    async def run(self) -> None:
        """Read until `stop`; survives any trouble of the log."""
        while not self._is_over:
            with_room = self._with_room()
            if back := self._stuck & with_room.keys():
                # The log may have been truncated there while nobody was reading.
                self._doubt(back)
            self._stuck = self._progress.partitions.keys() - with_room.keys()
            self._reads = self._readable()
            with trio.CancelScope() as self._scope:
                if self._reads:
                    await self._survive()
                else:
                    # `review` ends this when a partition has room again; `_trust` when it is no
                    # longer in doubt.
                    await trio.sleep_forever()
            await trio.lowlevel.checkpoint()

    async def watch_partitions(self) -> None:
        """Pick up owned partitions that the log did not show at first. Also notice a truncation of
        the log while no records arrive that would reveal it.
        """
        while True:
            is_whole = self._progress.is_whole
            await trio.sleep(_PARTITION_CHECK_S if is_whole else _TROUBLE_PAUSE_S)
            if self._reader is not None and self._reader.doubtful:
                self._scope.cancel()
            if is_whole:
                continue
            try:
                if await self._progress.load():
                    self._scope.cancel()
            except (LogUnavailable, UnknownTopic):
                # The reader meets the same error and reports it.
                continue

    async def settle_doubts(self) -> None:
        """Compare each partition in doubt with the log until it is known where to read on. Other
        partitions are read meanwhile. Never ends.
        """
        async with trio.open_nursery() as nursery:
            while True:
                due_s = min(
                    (at_s for each, at_s in self._doubtful.items() if each not in self._looked_at),
                    default=inf,
                )
                await self._doubted.wait(due_s - trio.current_time())
                now_s = trio.current_time()
                for number, at_s in self._doubtful.items():
                    if at_s <= now_s and number not in self._looked_at:
                        self._looked_at.add(number)
                        nursery.start_soon(self._compare, number)

    def stop(self) -> None:
        """Stop reading."""
        self._is_over = True
        self._scope.cancel()

    def note_room(self) -> None:
        """Note that fresh messages have been dispatched."""
        if not self._room.is_set and self._buffer.fresh <= self.read_ahead // 2:
            self._room.set()

    def note_settled(self) -> None:
        """Note that a message is settled, which may free the bytes that reading waits for."""
        if self.lacks_bytes and self._buffer.buffered_bytes <= self._config.buffered_bytes_max // 2:
            self.lacks_bytes = False
            self._room.set()

    def review(self) -> None:
        """Check again what may be read: settling may have made room or freed a partition."""
        self._room.set()
        if self._readable().keys() != self._reads.keys():
            self._scope.cancel()

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The trouble or the bound that stops reading."""
        config, buffer = self._config, self._buffer
        if self._trouble is not None:
            return (self._trouble,)
        if buffer.is_waiting_full:
            count = buffer.waiting + buffer.parked + buffer.buried
            return (because(Code.RETRIES_FULL, count=count),)
        if buffer.buffered_bytes >= config.buffered_bytes_max:
            return (because(Code.BYTES_FULL, bytes=buffer.buffered_bytes),)
        if self._doubt_detail:
            names = ", ".join(map(str, sorted(self._doubtful)))
            return (because(Code.PARTITIONS_AWAY, partitions=names, detail=self._doubt_detail),)
        stuck = ", ".join(
            map(str, sorted(self._progress.partitions.keys() - self._with_room().keys()))
        )
        if stuck:
            span = config.unsettled_span_max
            return (because(Code.SPAN_FULL, partitions=stuck, offsets=span),)
        if awaited := self._progress.awaited:
            return (because(Code.PARTITIONS_NEW, partitions=", ".join(map(str, awaited))),)
        return ()

    def _with_room(self) -> dict[int, int]:
        return self._progress.readable(self._config.unsettled_span_max)

    def _readable(self) -> dict[int, int]:
        with_room = self._with_room()
        if not self._doubtful:
            return with_room
        return {each: at for each, at in with_room.items() if each not in self._doubtful}

    async def _survive(self) -> None:
        try:
            await self._read_partitions()
        except OffsetOutOfRange as error:
            # After a retransmission the old position no longer matters.
            if not self._scope.cancel_called:
                self._on_out_of_range(error)
        except LogUnavailable as error:
            self._pause(because(Code.LOG_AWAY, detail=str(error)))
        except UnknownTopic:
            self._pause(because(Code.NO_TOPIC, topic=self._topic))

    def _pause(self, trouble: Reason) -> None:
        self._trouble = trouble
        self._doubt(self._reads, _TROUBLE_PAUSE_S)

    def _doubt(self, partitions: Iterable[int], after_s: float = 0.0) -> None:
        """Stop reading these partitions until they are compared with the log, in `after_s`."""
        at_s = trio.current_time() + after_s
        self._doubtful.update((number, at_s) for number in partitions)
        self._doubted.set()

    async def _read_partitions(self) -> None:
        """Read the partitions of `_reads` until this set changes or the log fails."""
        partitions = self._progress.partitions
        # A new owner that reads no new record for long must still know which record precedes its
        # position.
        positions = {each: partitions[each].trail.begin_at(at) for each, at in self._reads.items()}
        self._looks_back = positions != self._reads or any(
            partitions[partition].trail.is_told for partition in self._reads
        )
        try:
            async with self._log.reader(self._topic, positions) as self._reader:
                while not self._reader.doubtful and await self._wait_for_room():
                    await self._read_batch(self._reader)
        finally:
            reader, self._reader = self._reader, None
            # However it ended and for whichever partition: the next reader would not know of the
            # doubt.
            if reader is not None and reader.doubtful:
                self._doubt(reader.doubtful)

    async def _compare(self, partition: int) -> None:
        """Rewind a partition to where the log still holds the records that were read. Records that
        the log lost are gone; whatever it stores there now is new.
        """
        offsets = self._progress.partitions.get(partition)
        if offsets is None:
            self._trust(partition)
            return
        read_end, doubted_s = offsets.read_end, self._doubtful[partition]
        reached = max(read_end, offsets.recovered_end)
        try:
            place = await self._progress.find_place(partition, reached)
        except (LogUnavailable, UnknownTopic, OffsetOutOfRange) as error:
            self._looked_at.discard(partition)
            self._doubt_detail = str(error)
            self._doubt([partition], _TROUBLE_PAUSE_S)
            return
        if offsets.read_end != read_end or self._doubtful[partition] != doubted_s:
            # In doubt again, or records in processing were added meanwhile.
            self._looked_at.discard(partition)
            self._doubt([partition])
            return
        if place >= reached:
            # Nothing that an earlier owner read from here on is settled.
            offsets.trail.cut(place)
        elif not offsets.is_superseded:
            _logger.warning(
                "%s/%d: the log was cut; it was read up to %d, and is read again from %d on",
                self._topic,
                partition,
                reached,
                min(read_end, place),
            )
            offsets.cut(place)
        self._trust(partition)

    def _trust(self, partition: int) -> None:
        """End the doubt about a partition: its position is known, so it is read on."""
        self._looked_at.discard(partition)
        del self._doubtful[partition]
        if not self._doubtful:
            self._doubt_detail = ""
        self._trouble = None
        self._on_read()
        self._scope.cancel()

    async def _wait_for_room(self) -> bool:
        """Wait until a batch may be read; False if the set of readable partitions has changed."""
        buffer = self._buffer
        while self._readable().keys() == self._reads.keys():
            has_bytes = buffer.buffered_bytes < self._config.buffered_bytes_max
            if has_bytes and buffer.fresh <= self.read_ahead // 2:
                return True
            self.lacks_bytes = not has_bytes
            await self._room.wait()
        return False

    async def _read_batch(self, reader: Reader) -> None:
        config, buffer, partitions = self._config, self._buffer, self._progress.partitions
        span = max(partitions[partition].span for partition in self._reads)
        bytes_left = config.buffered_bytes_max - buffer.buffered_bytes
        batch: Sequence[StoredRecord] = ()
        # A log that failed before and now waits for records without an error has recovered.
        with trio.move_on_after(_TROUBLE_PAUSE_S if self._trouble else float("inf")):
            batch = await reader.next_batch(
                max(1, min(self._records_wanted(), config.unsettled_span_max - span)),
                max(1, min(config.read_batch_bytes_max, bytes_left)),
            )
        self._trouble = None
        if reader.doubtful:
            # The log may have been truncated: this batch may follow records that replaced those
            # read before.
            return
        if self._scope.cancel_called:
            # A retransmission may have moved the partition. If the batch is still wanted, it is
            # read again.
            return
        if not batch:
            # What lies there is not for readers: it counts as settled.
            for number in self._reads:
                partitions[number].skip_to(reader.position(number))
        elif self._looks_back:
            batch = self._skip_read(batch)
        if batch:
            await self._take_in(batch)
        self._on_read()

    def _skip_read(self, batch: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
        """The batch without the records below the start position; the trail notes those. Empty if
        one of them is not the record that an earlier owner read there.
        """
        partitions, fresh = self._progress.partitions, []
        for record in batch:
            offsets = partitions[record.partition]
            if not offsets.trail.recognizes(record):
                self._doubt([record.partition])
                return ()
            if record.offset >= offsets.read_end:
                fresh.append(record)
            else:
                offsets.trail.note(record)
        return fresh

    def _records_wanted(self) -> int:
        """How many records to read so that about as many pass the screen as there is room for."""
        wanted = self.read_ahead - self._buffer.fresh
        if self._screening.screen is let_pass:
            return wanted
        return min(int(wanted / self._passing_share), self._config.read_batch_records_max)

    async def _take_in(self, batch: Sequence[StoredRecord]) -> None:
        """Filter each record: buffer it, settle it, or give it up. Yields to other tasks in
        between.
        """
        partitions, buffer, transitions = self._progress.partitions, self._buffer, self._transitions
        transitions.read(batch)
        passed, turn_ends_s = len(batch), trio.current_time() + _TURN_S
        for count, record in enumerate(batch, 1):
            if self._doubtful and record.partition in self._doubtful:
                # An earlier record of the partition was postponed; reading resumes there.
                continue
            offsets = partitions[record.partition]
            seen: Seen = None
            # Of a JSON topic too: this node may not know yet that the topic was migrated to Avro.
            is_made = is_avro(record)
            screen = self._screening.screen
            if is_made and screen is let_pass:
                screen = self._screening.look
            if is_for_another(record, self._subscription):
                seen = _FOR_ANOTHER
            elif record.is_tombstone and self._screening.skips_tombstones:
                seen = _TOMBSTONE
            elif screen is not let_pass and not offsets.was_settled(record.offset):
                found = screen(record)
                if isinstance(found, Later):
                    # The record has not begun: if this is cancelled, it is read again.
                    self._on_read()
                    found = await found.verdict()
                    if self._scope.cancel_called:
                        return
                    turn_ends_s = trio.current_time() + _TURN_S
                seen = found
            if isinstance(seen, Postponed):
                self._doubt([record.partition], seen.again_s)
                continue
            offsets.trail.note(record)
            if not offsets.begin(record.offset, record.timestamp_ms):
                continue
            match seen:
                case None | Message():
                    buffer.add(Delivery(record, offsets, seen))
                    is_made = seen is not None and seen.body is not record.value
                case Filtered():
                    offsets.filter_out(record.offset)
                    transitions.filtered(record, offsets)
                    passed -= 1
                case Exhausted(detail, message, reason):
                    passed -= 1
                    self._give_up(Delivery(record, offsets, message), reason, detail)
                case _:
                    assert_never(seen)
            if is_made and buffer.buffered_bytes >= self._config.buffered_bytes_max:
                # Decoding made the message larger: the rest is read again when there is room.
                self._scope.cancel()
                return
            if (is_made or count % _CLOCK_EVERY == 0) and trio.current_time() >= turn_ends_s:
                # Report before yielding: a retransmission that cancels this drops only the rest of
                # the batch.
                self._on_read()
                await trio.lowlevel.checkpoint()
                if self._scope.cancel_called:
                    # Cancelled in the moment it was resumed.
                    return
                turn_ends_s = trio.current_time() + _TURN_S
        self._passing_share = max(_SHARE_MIN, (self._passing_share + passed / len(batch)) / 2)

    def _on_out_of_range(self, error: OffsetOutOfRange) -> None:
        offsets = self._progress.partitions[error.partition]
        if error.position < error.start:
            # Perhaps only records below the start position are gone.
            offsets.trail.start_at(error.start)
            if lost := offsets.skip_to(error.start):
                self._measures.expired.add(lost)
                _logger.warning("%s: retention removed %d records not yet read", error, lost)
        else:
            self._doubt([error.partition])
        self._on_read()
