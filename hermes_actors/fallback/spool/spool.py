"""The spool: what it has said yes to is on the disk, and stays there until a log has it.

`Spool` outlives its actors: offers are made to it and read from it while `SpoolWriter`, the one
that waits for the disk, restarts. What is offered while a write is under way is the next write, one
fsync for all of it.
"""

import logging
import math
from collections.abc import Callable, Hashable, Sequence

import msgspec
import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull, Ref
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.measures import SpoolMeasures
from hermes_actors.fallback.spool.format import (
    FRAME_OVERHEAD_BYTES,
    SpoolEntry,
    decode_entry,
    encode_entry,
)
from hermes_actors.fallback.spool.index import Place, SpoolIndex, Waiting
from hermes_actors.fallback.spool.store import SegmentStore, SpoolUnavailable
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics

_logger = logging.getLogger(__name__)

_TRIED_MIN_S = 60.0
_CATCH_UP_S = 0.025
_CATCH_UP_POLL_S = 0.002
_NEARLY_CAUGHT_UP_MAX = 1_000

Done = Callable[[SpoolUnavailable | None], None]


class Offer(Struct, eq=False):
    """Entries that are kept together or not at all; `done(None)` when they are on the disk."""

    waiting: list[Waiting]
    payloads: list[bytes]
    size_bytes: int
    done: Done


class Spool:
    """One node's spool. `load` it, and start a `SpoolWriter` with `ref` as its mailbox's end."""

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
        # What the writer knows, and its next life must.
        self.done: list[Place] = []
        self.failing_until_s = -math.inf
        self.tidy_at_s = math.inf
        self.measures = SpoolMeasures(metrics)
        self.measures.watch(self.index, store, self._oldest_age_s, lambda: self.trouble)

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
            measures.set_aside(reason).add(count)
        if index.entries:
            _logger.warning("spool: %d messages of an earlier run wait to be stored", index.entries)

    # Offering.

    def offer(
        self,
        entries: Sequence[SpoolEntry],
        done: Done,
        *,
        sent_as: Hashable = None,
        now_s: float,
    ) -> bool:
        """Keep these together; `done` is called once, later, if this is True.

        `sent_as` is what their append is known by, if one is under way: nothing of it is replayed
        before `concluded`, or before the configured wait is over.
        """
        ref = self.ref
        if ref is None or not self.is_open:
            return self._refuse(len(entries), "closed")
        if self.lost or now_s < self.failing_until_s:
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
        waiting: list[Waiting] = []
        for number, (entry, payload) in enumerate(zip(entries, payloads, strict=True), 1):
            each = self.index.reserve(
                entry.topic,
                entry.log_topic,
                entry.incarnation,
                entry.message.key,
                sequence=self._sequence + number,
                since_s=now_s,
                size_bytes=len(payload) + FRAME_OVERHEAD_BYTES,
                held_until_s=held_until_s,
            )
            each.held_by = sent_as
            waiting.append(each)
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

    def holds(self, log_topic: str, key: bytes) -> bool:
        """True while a message of this key waits here, or is being written."""
        return self.index.holds(log_topic, key)

    def has(self, topic: str) -> bool:
        """True while any message of this `group.topic` waits here, or is being written."""
        return self.index.has(topic)

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
        self.measures.refused(reason).add(count)
        return False

    def _oldest_age_s(self) -> float:
        oldest_s = self.index.oldest_s()
        return 0.0 if oldest_s is None else self.clock.monotonic_s() - oldest_s

    # Replaying.

    def has_expired(self, waiting: Waiting, now_s: float) -> bool:
        """True for what has waited too long to be sent. Called when its turn comes.

        Here nobody asks the wall clock, which may jump. For how long an earlier process's entry has
        waited there is nothing else; so that one is tried for a while before that is believed.
        """
        if waiting.tried_s is None:
            waiting.tried_s = now_s
        age_max_s = self.config.age_max_ms / 1_000
        if now_s - waiting.since_s <= age_max_s:
            return False
        if waiting.since_s >= self._loaded_s:
            return True
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
            if each.held_by is not None:
                self._held.pop(each.held_by, None)
            if self.index.settle(each) and each.place is not None:
                self.done.append(each.place)
        self.tidy_soon()

    async def set_aside(self, batch: Sequence[Waiting], reason: str) -> None:
        """Put these where people can find them. Raises SpoolUnavailable; then they still wait."""
        now_ms = self.clock.now_ms()
        lines = []
        read = await self.read(batch)
        for each, entry in read:
            if entry is not None:
                lines.append(_set_aside_line(reason, now_ms, entry))
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
        self.measures.set_aside(reason).add(len(read))
        self.settle([each for each, _entry in read])

    # For the writer.

    def written(self, offer: Offer, places: Sequence[Place]) -> None:
        """The disk has an offer's entries."""
        for each, place in zip(offer.waiting, places, strict=True):
            self.index.written(each, place)
        self.measures.written.add(len(offer.waiting))
        offer.done(None)
        self.settle([each for each in offer.waiting if each.is_stored])
        self.changed.set()

    def refuse(self, offer: Offer, error: SpoolUnavailable) -> None:
        """An offer could not be written."""
        for each in offer.waiting:
            if each.held_by is not None:
                self._held.pop(each.held_by, None)
            self.index.release(each)
        self.measures.refused(error.reason).add(len(offer.waiting))
        offer.done(error)

    def tidy_soon(self) -> None:
        """There is something to be recorded, or deleted."""
        if self.tidy_at_s == math.inf and self.ref is not None:
            self.tidy_at_s = self.clock.monotonic_s()
            try:
                self.ref.tell(None)
            except (MailboxFull, MailboxClosed):
                return  # The writer tidies up after each write, and when it ends.


def _set_aside_line(reason: str, at_ms: int, entry: SpoolEntry) -> bytes:
    """An entry as a line of JSON; key and body in Base64."""
    line = {
        "reason": reason,
        "setAsideAt": at_ms,
        "topic": entry.topic,
        "logTopic": entry.log_topic,
        "spooledAt": entry.spooled_at_ms,
        "message": entry.message,
    }
    return msgspec.json.encode(line) + b"\n"
