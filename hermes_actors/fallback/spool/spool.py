"""The spool: what it has said yes to is on the disk, and stays there until a log has it.

It is the one actor that writes to the spool's disk, and outlives its own failures: offers are made
to it and read from it while it restarts. What is offered while a write is under way is the next
write, one fsync for all of it.
"""

import logging
import math
from collections.abc import Callable, Hashable, Sequence

import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox, MailboxClosed, MailboxFull, Ref
from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.format import (
    FRAME_OVERHEAD_BYTES,
    SpoolEntry,
    decode_entry,
    encode_entry,
    set_aside_line,
)
from hermes_actors.fallback.spool.index import Place, SpoolIndex, Waiting
from hermes_actors.fallback.spool.measures import SpoolMeasures
from hermes_actors.fallback.spool.store import SegmentStore, SpoolUnavailable
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics

_logger = logging.getLogger(__name__)

_TRIED_MIN_S = 60.0
_CATCH_UP_S = 0.025
_CATCH_UP_POLL_S = 0.002
_NEARLY_CAUGHT_UP_MAX = 1_000
# The bound in bytes is the configuration's.
_QUEUED_OFFERS_MAX = 20_000

_GROUP_BYTES_MAX = 4 * 1024 * 1024
_GROUP_OFFERS_MAX = 4_096
_AFTER_FAILURE_S = 1.0
_TIDY_AGAIN_S = 5.0
_TIDY_TIMEOUT_S = 2.0
_LOOK_INTERVAL_S = 1.0
_MARKS_A_TIME_MAX = 10_000
_ROLL_BYTES = 1024 * 1024
"""A segment of which nothing is needed is deleted, but not for every message a new one begun."""
_COPIED_AT_MOST = 0.25
"""Of a segment that keeps others from being written, this share may be copied to be rid of it."""

Done = Callable[[SpoolUnavailable | None], None]


class Offer(Struct, eq=False):
    """Entries that are kept together or not at all; `done(None)` when they are on the disk."""

    waiting: list[Waiting]
    payloads: list[bytes]
    size_bytes: int
    done: Done


class Spool:
    """One node's spool. `load` it, then `start` it; `ref` is its mailbox's end."""

    def __init__(
        self, store: SegmentStore, config: SpoolConfig, clock: Clock, metrics: Metrics
    ) -> None:
        self.index = SpoolIndex()
        self.store = store
        self.clock = clock
        self.ref: Ref[Offer | None] | None = None
        self.is_open = False
        self.trouble = ""
        self.lost = ""
        """Why nothing is kept until the node is started again: its files are gone."""
        self.config = config
        self._sequence = 0
        self._loaded_s = -math.inf
        self._held: dict[Hashable, list[Waiting]] = {}
        self.changed = trio.Event()
        """Set when there is more to send."""
        self._done: list[Place] = []
        self._failing_until_s = self._look_at_s = -math.inf
        self._tidy_at_s = math.inf
        self.measures = SpoolMeasures(metrics)
        metrics.gauge("spool_entries", lambda: self.index.entries)
        metrics.gauge("spool_bytes", lambda: self.index.size_bytes)
        metrics.gauge("spool_disk_bytes", lambda: store.size_bytes)
        metrics.gauge("spool_oldest_age_s", self._oldest_age_s)
        metrics.gauge("spool_is_failing", lambda: float(bool(self.trouble)))

    async def load(self) -> None:
        """Take over what an earlier run left. Raises StartupError."""
        loaded = await self.store.load()
        index, measures = self.index, self.measures
        # The wall clock is asked once for all that an earlier process left, and never again.
        self._loaded_s, now_ms = self.clock.monotonic_s(), self.clock.now_ms()
        for found in loaded.entries:
            waiting = index.reserve(
                found.topic,
                found.log_topic,
                found.incarnation,
                found.key,
                sequence=found.sequence,
                since_s=self._loaded_s - max(now_ms - found.spooled_at_ms, 0) / 1_000,
                size_bytes=found.place.size_bytes,
            )
            index.written(waiting, found.place)
            self._sequence = found.sequence
        measures.accepted_missing.add(loaded.missing)
        measures.torn_tails.add(loaded.torn)
        for reason, count in loaded.set_aside.items():
            measures.set_aside[reason].add(count)
        if index.entries:
            _logger.warning("spool: %d messages of an earlier run wait to be stored", index.entries)

    def start(self, supervisor: Supervisor) -> None:
        """Write what is offered, under this supervisor."""
        self.ref = supervisor.start(
            "spool writer", lambda: self, mailbox_capacity=_QUEUED_OFFERS_MAX
        )

    # Offering.

    def offer(
        self,
        entries: Sequence[SpoolEntry],
        done: Done,
        *,
        sent_as: Hashable = None,
    ) -> bool:
        """Keep these together; `done` is called once, later, if this is True.

        `sent_as` is what their append is known by, if one is under way: nothing of it is replayed
        before `concluded`, or before the configured wait is over.
        """
        ref, now_s = self.ref, self.clock.monotonic_s()
        if ref is None or not self.is_open:
            return self._refuse(len(entries), "closed")
        if self.lost or now_s < self._failing_until_s:
            return self._refuse(len(entries), "disk")
        payloads = [
            encode_entry(self._sequence + number, entry) for number, entry in enumerate(entries, 1)
        ]
        size_bytes = sum(map(len, payloads)) + FRAME_OVERHEAD_BYTES * len(payloads)
        reason = self._reason_against(len(entries), size_bytes)
        if reason:
            return self._refuse(len(entries), reason)
        held_until_s = 0.0
        if sent_as is not None:
            held_until_s = now_s + self.config.late_acknowledgement_wait_ms / 1_000
        waiting = [
            self.index.reserve(
                entry.topic,
                entry.log_topic,
                entry.incarnation,
                entry.message.key,
                sequence=self._sequence + number,
                since_s=now_s,
                size_bytes=len(payload) + FRAME_OVERHEAD_BYTES,
                held_until_s=held_until_s,
                held_by=sent_as,
            )
            for number, (entry, payload) in enumerate(zip(entries, payloads, strict=True), 1)
        ]
        try:
            ref.tell(Offer(waiting, payloads, size_bytes, done))
        except (MailboxFull, MailboxClosed):
            for each in waiting:
                self.index.release(each)
            return self._refuse(len(entries), "queue")
        self._sequence += len(entries)
        if sent_as is not None:
            self._held[sent_as] = waiting
        return True

    async def catch_up(self, log_topic: str, is_behind: Callable[[], bool]) -> None:
        """Wait while `is_behind` something of this topic, if that is a matter of milliseconds.

        A key that is published to without a pause would else never leave the spool: each message
        would find its predecessor here.
        """
        await trio.lowlevel.checkpoint()
        until_s = self.clock.monotonic_s() + _CATCH_UP_S
        while is_behind() and self.clock.monotonic_s() < until_s:
            queue = self.index.queue(log_topic)
            if queue is None or not queue.is_flowing or queue.count > _NEARLY_CAUGHT_UP_MAX:
                return
            await trio.sleep(_CATCH_UP_POLL_S)

    def concluded(self, sent_as: Hashable, are_stored: Sequence[bool]) -> None:
        """The append that was under way has ended: which of its messages it stored."""
        for waiting, is_stored in zip(self._held.pop(sent_as, ()), are_stored, strict=False):
            waiting.held_by = None
            waiting.held_until_s = 0.0
            if is_stored and not waiting.is_settled:
                self.measures.late_acknowledgements.add()
                waiting.is_stored = True
                if waiting.place is not None:
                    self.settle([waiting])
        self.changed.set()

    def _reason_against(self, count: int, size_bytes: int) -> str:
        config, index = self.config, self.index
        queued_bytes = index.being_written_bytes + size_bytes
        if queued_bytes > config.queued_bytes_max:
            return "queue"
        if self.store.size_bytes + queued_bytes > config.disk_bytes_max:
            return "full"
        if index.entries + index.being_written + count > config.entries_max:
            return "full"
        return ""

    def _refuse(self, count: int, reason: str) -> bool:
        self.measures.refused[reason].add(count)
        return False

    def _oldest_age_s(self) -> float:
        oldest_s = self.index.oldest_s()
        return 0.0 if oldest_s is None else self.clock.monotonic_s() - oldest_s

    # Replaying.

    def has_expired(self, waiting: Waiting, now_s: float, *, is_tried: bool) -> bool:
        """True for what has waited too long to be sent. Called when its turn comes; `is_tried`: its
        topic is known, so that it is sent if it has not expired.

        Here nobody asks the wall clock, which may jump. For how long an earlier process's entry has
        waited there is nothing else; so that one is tried for a while before that is believed. One
        that cannot be tried has waited since the start.
        """
        if waiting.tried_s is None and is_tried:
            waiting.tried_s = now_s
        age_max_s = self.config.age_max_ms / 1_000
        if now_s - waiting.since_s <= age_max_s:
            return False
        if waiting.since_s >= self._loaded_s:
            return True
        if waiting.tried_s is None:
            return now_s - self._loaded_s > age_max_s
        return now_s - waiting.tried_s >= min(_TRIED_MIN_S, age_max_s)

    async def read(self, batch: Sequence[Waiting]) -> list[tuple[Waiting, SpoolEntry | None]]:
        """The entries, without those settled meanwhile; None for what cannot be read.

        Raises SpoolUnavailable.
        """
        places = [each.place for each in batch if each.place is not None]
        payloads = await self.store.read(places)
        read: list[tuple[Waiting, SpoolEntry | None]] = []
        for each, place, payload in zip(batch, places, payloads, strict=True):
            # What cannot be read may have been copied elsewhere in the meantime.
            if not each.is_settled and (payload is not None or each.place == place):
                read.append((each, None if payload is None else decode_entry(payload)[1]))
        return read

    def settle(self, batch: Sequence[Waiting]) -> None:
        """A log has these, or people have: they are not needed any more."""
        if not batch:
            return
        for each in batch:
            if self.index.settle(each) and each.place is not None:
                self._done.append(each.place)
        for sent_as in {each.held_by for each in batch if each.held_by is not None}:
            # Of the others the append that is under way may still tell.
            if all(each.is_settled for each in self._held.get(sent_as, ())):
                self._held.pop(sent_as, None)
        self._tidy_soon()

    async def set_aside(self, batch: Sequence[Waiting], reason: str) -> None:
        """Put these where people can find them. Raises SpoolUnavailable; then they still wait."""
        now_ms = self.clock.now_ms()
        lines = []
        read = await self.read(batch)
        for each, entry in read:
            if entry is not None:
                lines.append(set_aside_line(reason, now_ms, entry))
            elif each.place is not None:
                await self.store.copy_aside(each.place)
        if lines:
            await self.store.set_aside(reason, b"".join(lines))
        _logger.error(
            "spool: %d messages of %s set aside: %s",
            len(read),
            batch[0].queue.topic if batch else "",
            reason,
        )
        self.measures.set_aside[reason].add(len(read))
        self.settle([each for each, _entry in read])

    # Writing: the actor.

    async def run(self, inbox: Inbox[Offer | None]) -> None:
        """Write what is offered until the inbox ends; what waits then is written first."""
        taken: list[Offer] = []
        try:
            await self._tidy()
            self.is_open = True
            while await self._wait(inbox):
                await self._look()
                received = inbox.receive_nowait(_GROUP_OFFERS_MAX)
                taken = [each for each in received if each]
                while taken:
                    group = _group(taken)
                    taken = taken[len(group) :]
                    await self._write(group)
                if received or self._tidy_at_s <= self.clock.monotonic_s():
                    await self._tidy()
            await self._tidy(at_end=True)
        finally:
            self.is_open = False
            error = SpoolUnavailable("closed", "the spool is stopped; the message was not stored")
            while left := [*taken, *inbox.receive_nowait(_GROUP_OFFERS_MAX)]:
                taken = []
                for offer in left:
                    if offer is not None:
                        self._not_written(offer, error)

    async def _wait(self, inbox: Inbox[Offer | None]) -> bool:
        look_at_s = math.inf if self.lost else self._look_at_s
        next_s = min(self._tidy_at_s, look_at_s) - self.clock.monotonic_s()
        with trio.move_on_after(max(next_s, 0.0)):
            return await inbox.wait()
        return True

    async def _look(self) -> None:
        """Look once a second whether the files are still those that are written to."""
        now_s = self.clock.monotonic_s()
        if self.lost or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_INTERVAL_S
        try:
            self.lost = await self.store.lost()
        except OSError as error:
            self.trouble = f"the spool's disk: {error}"
            return
        if self.lost:
            self.trouble = self.lost
            _logger.error("spool: %s", self.lost)

    async def _write(self, offers: Sequence[Offer]) -> None:
        """Write these with one fsync and say so to each."""
        found: list[Place] | SpoolUnavailable = SpoolUnavailable(
            "closed",
            "the spool was stopped while it wrote the message, which may be stored yet",
            may_be_kept=True,
        )
        started_s = self.clock.monotonic_s()
        try:
            found = await self._append([each for offer in offers for each in offer.payloads])
            if isinstance(found, SpoolUnavailable):
                self._failed(found)
        finally:
            at = 0
            for offer in offers:
                if isinstance(found, SpoolUnavailable):
                    self._not_written(offer, found)
                else:
                    self._written(offer, found[at : at + len(offer.waiting)])
                    at += len(offer.waiting)
        self.measures.write.observe(self.clock.monotonic_s() - started_s)

    async def _append(self, payloads: Sequence[bytes]) -> list[Place] | SpoolUnavailable:
        """Where they lie, or why not; it may take too long, unless the process stood still."""
        timeout_s = self.config.write_timeout_ms / 1_000
        found: list[Place] | SpoolUnavailable = SpoolUnavailable(
            "slow", f"the spool's disk did not write within {timeout_s:g} s", may_be_kept=True
        )

        async def give_up(scope: trio.CancelScope) -> None:
            # In two halves: a pause of the process ends only one of them, and a disk that works
            # has the other.
            for _half in range(2):
                await trio.sleep(timeout_s / 2)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up, nursery.cancel_scope)
            try:
                found = await self.store.append(payloads)
            except SpoolUnavailable as error:
                found = error
            nursery.cancel_scope.cancel()
        return found

    def _failed(self, error: SpoolUnavailable) -> None:
        if not self.trouble:
            _logger.error("spool: %s; messages that no log takes are refused", error.message)
        self.trouble = error.message
        self._failing_until_s = self.clock.monotonic_s() + _AFTER_FAILURE_S
        self._tidy_soon()

    # House-keeping.

    async def _tidy(self, *, at_end: bool = False) -> None:
        """Record what is settled, and delete what nobody needs. What fails is tried again."""
        if self.lost:
            return
        self._tidy_at_s = math.inf
        trouble = "the spool's disk is slow"
        try:
            with trio.move_on_after(_TIDY_TIMEOUT_S):
                await self._delete_unneeded(at_end=at_end)
                await self._mark_done()
                if not at_end:
                    await self._make_room()
                    # A new file that could be made also shows that the disk takes something again.
                    await self.store.prepare()
                trouble = ""
        except SpoolUnavailable as error:
            trouble = error.message
        self.trouble = trouble
        if trouble:
            self._tidy_at_s = self.clock.monotonic_s() + _TIDY_AGAIN_S

    async def _delete_unneeded(self, *, at_end: bool) -> None:
        store, index = self.store, self.index
        if not index.entries and not index.being_written:
            sealed_bytes = sum(size for _number, size in store.sealed())
            if at_end or store.size_bytes - sealed_bytes > _ROLL_BYTES:
                await store.seal()
        gone = [number for number, _size in store.sealed() if not index.is_needed(number)]
        for number in gone:
            await store.delete(number)
        if gone:
            self._done = [place for place in self._done if place.segment not in gone]

    async def _mark_done(self) -> None:
        done = self._done
        while done:
            places = done[:_MARKS_A_TIME_MAX]
            await self.store.mark_done(places)
            del done[: len(places)]

    async def _make_room(self) -> None:
        """Copy the little that is needed of a segment, when such segments take half the space."""
        store = self.store
        if store.size_bytes <= self.config.disk_bytes_max / 2:
            return
        for number, size_bytes in store.sealed():
            needed = self.index.unsettled(number)
            if sum(each.size_bytes for each in needed) > size_bytes * _COPIED_AT_MOST:
                continue
            read = await store.read([each.place for each in needed if each.place])
            payloads = [payload for payload in read if payload is not None]
            if len(payloads) < len(needed):
                continue  # The replayer will meet the damage, and set it aside.
            places = await store.append(payloads)
            for each, place in zip(needed, places, strict=True):
                if each.is_settled:
                    # While it was copied: the copy must not be found by the next run.
                    self._done.append(place)
                else:
                    self.index.move(each, place)
            self._tidy_soon()
            return

    def _written(self, offer: Offer, places: Sequence[Place]) -> None:
        """The disk has an offer's entries."""
        for each, place in zip(offer.waiting, places, strict=True):
            self.index.written(each, place)
        self.measures.written.add(len(offer.waiting))
        offer.done(None)
        self.settle([each for each in offer.waiting if each.is_stored])
        self.changed.set()

    def _not_written(self, offer: Offer, error: SpoolUnavailable) -> None:
        """An offer could not be written."""
        for each in offer.waiting:
            if each.held_by is not None:
                self._held.pop(each.held_by, None)
            self.index.release(each)
        self.measures.refused[error.reason].add(len(offer.waiting))
        offer.done(error)

    def _tidy_soon(self) -> None:
        """There is something to be recorded, or deleted."""
        if self._tidy_at_s == math.inf and self.ref is not None:
            self._tidy_at_s = self.clock.monotonic_s()
            try:
                self.ref.tell(None)
            except (MailboxFull, MailboxClosed):
                return  # The writer tidies up after each write, and when it ends.


def _group(offers: Sequence[Offer]) -> list[Offer]:
    """The first of them that are written together: at least one."""
    size_bytes = 0
    for count, offer in enumerate(offers):
        size_bytes += offer.size_bytes
        if count and size_bytes > _GROUP_BYTES_MAX:
            return list(offers[:count])
    return list(offers)
