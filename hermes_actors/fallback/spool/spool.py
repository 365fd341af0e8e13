"""The spool: a message that it accepted is on the disk, and stays there until a log has it.

One actor writes to the disk. Offers and reads continue while it restarts after a failure. Offers
made during a write form the next write, with one fsync for all.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress

import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox, MailboxClosed, MailboxFull, Ref
from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.format import SpoolEntry, encode_entry, set_aside_line
from hermes_actors.fallback.spool.index import SpoolIndex, Waiting
from hermes_actors.fallback.spool.measures import SpoolMeasures
from hermes_actors.fallback.spool.store import Place, SegmentStore, SpoolUnavailable
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics

_logger = logging.getLogger(__name__)

_QUEUED_OFFERS_MAX = 20_000
_QUEUED_BYTES_MAX = 16 * 1024 * 1024
"""Small enough that a working disk writes it within the time limit."""
_WRITE_TIMEOUT_S = 1.0
_SLOW = f"the spool's disk did not write within {_WRITE_TIMEOUT_S:g} s"
_PROBE_EVERY_S = 1.0
_LATE_ACKNOWLEDGEMENT_S = 10.0
"""How long an append under way may still store a message, which is not sent again meanwhile."""
_TRIED_MIN_S = 60.0
"""Minimum time that a process has to send a message before it is set aside as too old."""
_SEARCH_MAX_S = 5.0
_SEARCHED_AT_ONCE = 100
_CATCH_UP_S = 0.025
_CATCH_UP_POLL_S = 0.002
_NEARLY_CAUGHT_UP_MAX = 1_000

Done = Callable[[SpoolUnavailable | None], None]


class Offer(Struct, eq=False):
    """Entries that are kept together or not at all. `done(None)` is called when they are on the
    disk.
    """

    waiting: list[Waiting]
    encoded: list[bytes]
    done: Done

    @property
    def size_bytes(self) -> int:
        """The size of its entries on the disk."""
        return sum(map(len, self.encoded))


class Spool:
    """One node's spool. `load` it, then `start` it. `changed` is set when there is more to send;
    `trouble` says why the disk takes nothing.
    """

    def __init__(
        self, store: SegmentStore, config: SpoolConfig, clock: Clock, metrics: Metrics
    ) -> None:
        self.index = SpoolIndex()
        self.store = store
        self.clock = clock
        self.config = config
        self.trouble = ""
        self.changed = trio.Event()
        self.measures = SpoolMeasures(metrics)
        self._ref: Ref[Offer | None] | None = None
        self._queued_bytes = 0
        self._loaded_s = -math.inf
        metrics.gauge("spool_entries", lambda: self.index.entries)
        metrics.gauge("spool_disk_bytes", lambda: store.size_bytes)
        metrics.gauge("spool_oldest_age_s", self._oldest_age_s)
        metrics.gauge("spool_is_failing", lambda: float(bool(self.trouble)))

    async def load(self) -> None:
        """Take over the entries of an earlier run. Raises StartupError."""
        entries, damaged = await self.store.load()
        # The wall clock is read only here, for entries of an earlier process, because it may jump.
        self._loaded_s, now_ms = self.clock.monotonic_s(), self.clock.now_ms()
        for place, entry in entries:
            age_s = max(now_ms - entry.spooled_at_ms, 0) / 1_000
            self.index.written(self.index.reserve(entry, self._loaded_s - age_s), place)
        if damaged:
            self._count_damaged(damaged)
        if entries:
            _logger.warning("spool: %d messages of an earlier run wait to be stored", len(entries))

    def start(self, supervisor: Supervisor) -> None:
        """Start the writer under this supervisor."""
        self._ref = supervisor.start(
            "spool writer", lambda: self, mailbox_capacity=_QUEUED_OFFERS_MAX
        )

    # Offering.

    def offer(
        self, entries: Sequence[SpoolEntry], done: Done, *, is_sent: bool = False
    ) -> Offer | None:
        """Offer these entries, all or none; `done` is called once, later. Returns None if they are
        not accepted.

        `is_sent`: an append of them is under way. They are not sent again before `concluded`, or
        before that append must have ended.
        """
        now_s = self.clock.monotonic_s()
        held_until_s = now_s + _LATE_ACKNOWLEDGEMENT_S if is_sent else 0.0
        offer = Offer([], [encode_entry(entry) for entry in entries], done)
        reason = self._reason_against(offer)
        if not reason and self._ref is not None:
            offer.waiting = [self.index.reserve(entry, now_s, held_until_s) for entry in entries]
            try:
                self._ref.tell(offer)
            except (MailboxFull, MailboxClosed) as error:
                reason = "queue" if isinstance(error, MailboxFull) else "closed"
        if reason:
            self._drop(offer, reason)
            return None
        self._queued_bytes += offer.size_bytes
        return offer

    def concluded(self, offer: Offer, are_stored: Sequence[bool]) -> None:
        """Report the end of the append that was under way, and which messages it stored."""
        late: list[Waiting] = []
        for waiting, is_stored in zip(offer.waiting, are_stored, strict=True):
            waiting.held_until_s = 0.0
            if is_stored and not waiting.is_settled:
                late.append(waiting)
        self.measures.late_acknowledgements.add(len(late))
        self.settle(late)
        self._tell_change()

    async def catch_up(self, log_topic: str, is_behind: Callable[[], bool]) -> None:
        """Wait while `is_behind` an entry of this topic, if that takes only milliseconds.

        Otherwise a key with constant traffic would never leave the spool: each message would find
        its predecessor here.
        """
        await trio.lowlevel.checkpoint()
        until_s = self.clock.monotonic_s() + _CATCH_UP_S
        while is_behind() and self.clock.monotonic_s() < until_s:
            queue = self.index.queues.get(log_topic)
            if queue is None or not queue.is_flowing or queue.count > _NEARLY_CAUGHT_UP_MAX:
                return
            await trio.sleep(_CATCH_UP_POLL_S)

    def _reason_against(self, offer: Offer) -> str:
        queued_bytes = self._queued_bytes + offer.size_bytes
        if self._ref is None:
            return "closed"
        if self.trouble:
            return "disk"
        if queued_bytes > _QUEUED_BYTES_MAX:
            return "queue"
        is_full = (
            self.store.size_bytes + queued_bytes > self.config.disk_bytes_max
            or self.index.entries + len(offer.encoded) > self.config.entries_max
        )
        return "full" if is_full else ""

    def _drop(self, offer: Offer, reason: str) -> None:
        for each in offer.waiting:
            self.index.settle(each)
        self.measures.refused[reason].add(len(offer.encoded))

    def _oldest_age_s(self) -> float:
        oldest_s = self.index.oldest_s()
        return 0.0 if oldest_s is None else self.clock.monotonic_s() - oldest_s

    def _tell_change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    # Replaying.

    def has_expired(self, waiting: Waiting, now_s: float) -> bool:
        """True if the entry has waited too long. Only asked about entries that could not be
        sent.
        """
        age_max_s = self.config.age_max_ms / 1_000
        was_tried = now_s - self._loaded_s > min(age_max_s, _TRIED_MIN_S)
        return now_s - waiting.since_s > age_max_s and was_tried

    async def read(self, batch: Sequence[Waiting]) -> list[tuple[Waiting, SpoolEntry]]:
        """Return the entries that are not settled yet. Damaged ones are counted and settled. Raises
        SpoolUnavailable.
        """
        entries = await self.store.read([each.place for each in batch if each.place])
        read = [pair for pair in zip(batch, entries, strict=True) if not pair[0].is_settled]
        damaged = [each for each, entry in read if entry is None]
        if damaged:
            self._count_damaged(len(damaged))
            self.settle(damaged)
        return [(each, entry) for each, entry in read if entry is not None]

    async def find(self, message_id: str) -> tuple[SpoolEntry | None, str]:
        """Return a message's entry, and why the search was incomplete ("" if it was not)."""
        places = self.index.places()
        try:
            with trio.fail_after(_SEARCH_MAX_S):
                for first in range(0, len(places), _SEARCHED_AT_ONCE):
                    for entry in await self.store.read(places[first : first + _SEARCHED_AT_ONCE]):
                        if entry is not None and entry.message.id == message_id:
                            return entry, ""
        except (SpoolUnavailable, trio.TooSlowError) as error:
            return None, f"not all of the spool was read: {str(error) or 'it holds too much'}"
        return None, ""

    def _count_damaged(self, count: int) -> None:
        self.measures.set_aside["damaged"].add(count)
        _logger.error("spool: %d places are damaged, and their messages lost", count)

    def settle(self, batch: Sequence[Waiting]) -> None:
        """Settle these: a log has them, or they have been set aside."""
        for each in batch:
            if self.index.settle(each) and each.place is not None:
                self.store.settle(each.place)
        if batch and self._ref is not None:
            try:
                self._ref.tell(None)
            except (MailboxFull, MailboxClosed):
                return  # The writer tidies up after each write, and when it ends.

    async def set_aside(self, batch: Sequence[Waiting], reason: str) -> None:
        """Move these entries to a file for operators. Raises SpoolUnavailable; then they still
        wait.
        """
        now_ms = self.clock.now_ms()
        read = await self.read(batch)
        if not read:
            return
        await self.store.set_aside(
            b"".join([set_aside_line(reason, now_ms, entry) for _each, entry in read])
        )
        topic = batch[0].queue.topic
        _logger.error("spool: %d messages of %s set aside: %s", len(read), topic, reason)
        self.measures.set_aside[reason].add(len(read))
        self.settle([each for each, _entry in read])

    # Writing: the actor.

    async def run(self, inbox: Inbox[Offer | None]) -> None:
        """Write offers until the inbox ends, including those that are waiting then."""
        await self._tidy()
        while await self._wait(inbox):
            if group := [each for each in inbox.receive_nowait(_QUEUED_OFFERS_MAX) if each]:
                await self._write(group)
            elif self.trouble:
                await self._probe()
            await self._tidy()
            if self.trouble == _SLOW:
                # Perhaps the process stood still, and not the disk.
                await self._probe()
        await self._tidy(at_end=True)

    async def _wait(self, inbox: Inbox[Offer | None]) -> bool:
        with trio.move_on_after(_PROBE_EVERY_S if self.trouble else math.inf):
            return await inbox.wait()
        return True

    async def _write(self, offers: Sequence[Offer]) -> None:
        """Write these offers with one fsync, and call `done` of each."""
        found: list[Place] | SpoolUnavailable = SpoolUnavailable(
            "closed",
            "the spool was stopped while it wrote the message, which may be stored yet",
            may_be_kept=True,
        )
        started_s = self.clock.monotonic_s()
        try:
            found = await self._append([each for offer in offers for each in offer.encoded])
        finally:
            error = found if isinstance(found, SpoolUnavailable) else None
            places = iter(()) if isinstance(found, SpoolUnavailable) else iter(found)
            self._tell_trouble(error.message if error and error.reason != "closed" else "")
            for offer in offers:
                self._queued_bytes -= offer.size_bytes
                if error:
                    self._drop(offer, error.reason)
                else:
                    for each, place in zip(offer.waiting, places, strict=False):
                        if each.is_settled:
                            # An append that was under way has stored it meanwhile.
                            self.store.settle(place)
                        else:
                            self.index.written(each, place)
                    self.measures.written.add(len(offer.waiting))
                offer.done(error)
        self.measures.write.observe(self.clock.monotonic_s() - started_s)
        self._tell_change()

    async def _append(self, encoded: Sequence[bytes]) -> list[Place] | SpoolUnavailable:
        """Return the places of the entries, or why they were not written."""
        with trio.move_on_after(_WRITE_TIMEOUT_S):
            try:
                return await self.store.append(encoded)
            except SpoolUnavailable as error:
                return error
        return SpoolUnavailable("slow", _SLOW, may_be_kept=True)

    async def _probe(self) -> None:
        """Check whether the disk accepts writes again."""
        with suppress(SpoolUnavailable), trio.move_on_after(_WRITE_TIMEOUT_S):
            await self.store.probe()
            self._tell_trouble("")

    async def _tidy(self, *, at_end: bool = False) -> None:
        """Delete unneeded segments, and mark entries that are done. Failures are retried later."""
        try:
            with trio.fail_after(_WRITE_TIMEOUT_S):
                await self.store.tidy(at_end=at_end)
        except (SpoolUnavailable, trio.TooSlowError) as error:
            self._tell_trouble(str(error) or _SLOW)

    def _tell_trouble(self, trouble: str) -> None:
        if trouble and not self.trouble:
            _logger.error("spool: %s; messages that no log takes are refused", trouble)
        self.trouble = trouble
