"""Tracking of publishing: what becomes of the messages of topics with trackingEnabled."""

from collections.abc import Mapping, Sequence

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.log.base import Outcome, Stored
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.message import Message, Via
from hermes_actors.publisher.pending import Pending, Transitions
from hermes_actors.runtime.clock import Clock
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import (
    ID_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    EventKind,
    TrackingEvent,
)


class TrackedPublishes(Transitions):
    """Tells what became of publishes to tracked topics: what a log has taken, to that datacentre's
    log.

    Of messages of a batch that is answered already (the slower of two hedged appends) only the
    number is known: they are counted as dropped.
    """

    def __init__(
        self, buffers: Mapping[str, TrackingBuffer], dc: str, metadata: Metadata, clock: Clock
    ) -> None:
        self._buffers = buffers
        self._dc = dc
        self._metadata = metadata
        self._clock = clock

    def sent(
        self,
        pendings: Sequence[Pending],
        dc: str,
        via: str,
    ) -> None:
        """Tell what is sent to another datacentre because the own one is slow."""
        if via == Via.HEDGE.value:
            # Told there: the own log is slow.
            for pending in pendings:
                self._tell(EventKind.HEDGED, dc, pending.route.name, pending.messages, via)

    def answered(
        self,
        pendings: Sequence[Pending],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """Tell what a log has taken, and what it has not."""
        at = 0
        for pending in pendings:
            following = at + pending.count
            self._answered(pending, dc, partition, outcomes[at:following])
            at = following

    def kept(self, pending: Pending, messages: Sequence[Message]) -> None:
        """Tell what the spool has taken."""
        topic = pending.route.name
        self._tell(EventKind.SPOOLED, self._dc, topic, messages, Via.SPOOL.value)

    def replayed(
        self,
        entries: Sequence[SpoolEntry],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """Tell what a log has taken from the spool."""
        topics, now_ms = self._metadata.catalog.topics, self._clock.now_ms()
        for entry, outcome in zip(entries, outcomes, strict=True):
            live = topics.get(entry.topic)
            if live is not None and live.topic.tracking_enabled and isinstance(outcome, Stored):
                self._buffers[dc].add(
                    TrackingEvent(
                        EventKind.PUBLISHED,
                        entry.message.id[:ID_CHARACTERS_MAX],
                        entry.topic,
                        now_ms,
                        dc,
                        partition=partition,
                        offset=outcome.offset,
                        via=Via.SPOOL.value,
                    )
                )

    def _answered(
        self,
        pending: Pending,
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
    ) -> None:
        messages = pending.messages
        if not messages and pending.count > 1:
            buffer = self._buffers[dc]
            buffer.drop(len(outcomes))
            return
        now_ms = self._clock.now_ms()
        for place, outcome in enumerate(outcomes):
            is_stored = isinstance(outcome, Stored)
            # What was not taken is told at home: the other log may be away.
            buffer = self._buffers[dc if is_stored else self._dc]
            if not buffer.has_room:
                buffer.drop(1)
                continue
            message_id = messages[place].id if messages else pending.id
            buffer.add(
                TrackingEvent(
                    EventKind.PUBLISHED if is_stored else EventKind.FAILED,
                    message_id[:ID_CHARACTERS_MAX],
                    pending.route.name,
                    now_ms,
                    dc,
                    partition=partition,
                    offset=outcome.offset if isinstance(outcome, Stored) else -1,
                    reason="" if isinstance(outcome, Stored) else _cut(outcome.reason),
                    via=Via.LOCAL.value if dc == self._dc else Via.FALLBACK.value,
                )
            )

    def _tell(
        self, kind: EventKind, dc: str, topic: str, messages: Sequence[Message], via: str
    ) -> None:
        buffer, now_ms = self._buffers[dc], self._clock.now_ms()
        for message in messages:
            if buffer.has_room:
                message_id = message.id[:ID_CHARACTERS_MAX]
                buffer.add(TrackingEvent(kind, message_id, topic, now_ms, dc, via=via))
            else:
                buffer.drop(1)


def _cut(reason: str) -> str:
    return reason[:REASON_CHARACTERS_MAX]
