"""Tracking of publishing: the events of messages of topics with trackingEnabled."""

from collections.abc import Mapping, Sequence
from itertools import islice

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.log.base import Outcome, Stored
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.message import Message, Via
from hermes_actors.publisher.pending import Pending, Transitions
from hermes_actors.runtime.clock import Clock
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import (
    REASON_CHARACTERS_MAX,
    EventKind,
    TrackingEvent,
    as_told,
)


class TrackedPublishes(Transitions):
    """Records tracking events of publishes to tracked topics; what a log has stored is recorded in
    that log.

    If a batch was answered already (it was the slower of two hedged appends), only its number of
    messages is known; they are counted as dropped.
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
        """Record the messages that are hedged to another datacentre."""
        if via == Via.HEDGE.value:
            # In that datacentre's log, because the own one is slow.
            for pending in pendings:
                for message in pending.messages:
                    self._tell(EventKind.HEDGED, dc, pending.route.name, message.id, via)

    def answered(
        self,
        pendings: Sequence[Pending],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """Record which messages a log has stored, and which not."""
        via = Via.LOCAL.value if dc == self._dc else Via.FALLBACK.value
        rest = iter(outcomes)
        for pending in pendings:
            messages, topic = pending.messages, pending.route.name
            some = list(islice(rest, pending.count))
            if not messages and pending.count > 1:
                self._buffers[dc].drop(len(some))
                continue
            for place, outcome in enumerate(some):
                message_id = messages[place].id if messages else pending.id
                self._appended(topic, message_id, dc, partition, outcome, via)

    def kept(self, pending: Pending, messages: Sequence[Message]) -> None:
        """Record the messages that the spool has accepted."""
        for message in messages:
            name = pending.route.name
            self._tell(EventKind.SPOOLED, self._dc, name, message.id, Via.SPOOL.value)

    def replayed(
        self,
        entries: Sequence[SpoolEntry],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """Record the messages that a log has stored from the spool."""
        topics, via = self._metadata.catalog.topics, Via.SPOOL.value
        for entry, outcome in zip(entries, outcomes, strict=True):
            live = topics.get(entry.topic)
            if live is not None and live.topic.tracking_enabled and isinstance(outcome, Stored):
                self._appended(entry.topic, entry.message.id, dc, partition, outcome, via)

    def _appended(
        self, topic: str, message_id: str, dc: str, partition: int, outcome: Outcome, via: str
    ) -> None:
        if isinstance(outcome, Stored):
            self._tell(EventKind.PUBLISHED, dc, topic, message_id, via, partition, outcome.offset)
        else:
            # In the own log: the other one may be unavailable.
            reason = as_told(outcome.reason, REASON_CHARACTERS_MAX)
            self._tell(
                EventKind.FAILED, dc, topic, message_id, via, partition, -1, reason, to=self._dc
            )

    def _tell(
        self,
        kind: EventKind,
        dc: str,
        topic: str,
        message_id: str,
        via: str,
        partition: int = -1,
        offset: int = -1,
        reason: str = "",
        to: str = "",
    ) -> None:
        event = TrackingEvent(
            kind,
            as_told(message_id),
            topic,
            self._clock.now_ms(),
            dc,
            partition=partition,
            offset=offset,
            reason=reason,
            via=via,
        )
        self._buffers[to or dc].add(event)
