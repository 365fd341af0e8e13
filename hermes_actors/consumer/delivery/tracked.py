"""Records tracking events of one subscription's deliveries."""

from collections.abc import Sequence
from typing import Any

from hermes_actors.consumer.delivery.delivery import Delivery, Settlement, Transitions
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import UndecodableRecord, from_record
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import TrackingMode
from hermes_actors.runtime.clock import Clock
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import (
    REASON_CHARACTERS_MAX,
    EventKind,
    TrackingEvent,
    as_told,
)

_SETTLED = {
    Settlement.DELIVERED: EventKind.DELIVERED,
    Settlement.DEAD_LETTER: EventKind.DEAD,
    Settlement.DROPPED: EventKind.DISCARDED,
}


class TrackedDeliveries(Transitions):
    """Records the attempts and the end of each message, or only the messages that are given up.

    A subscription's tracking mode never changes during a consumer's life.
    """

    def __init__(
        self,
        buffer: TrackingBuffer,
        live: LiveSubscription,
        dc: str,
        clock: Clock,
    ) -> None:
        self._buffer = buffer
        self._live = live
        self._dc = dc
        self._clock = clock
        self._tells_all = live.subscription.tracking_mode is TrackingMode.ALL
        # Of messages given up and not settled yet; the consumer bounds their number.
        self._reasons: dict[Delivery, str] = {}

    def filtered(self, record: StoredRecord, offsets: PartitionOffsets) -> None:
        """Record that a message was filtered out."""
        if self._tells_all:
            self._tell(EventKind.FILTERED, record, _id_of(record), offsets.seek)

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """Record that an attempt begins."""
        if self._tells_all:
            for each in deliveries:
                self._of(EventKind.INFLIGHT, each, each.attempts + 1)

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """Record a failed attempt."""
        if self._tells_all and not outcome.is_success:
            reason = outcome.reason()
            for each in deliveries:
                self._of(EventKind.FAILED, each, each.attempts + 1, outcome.status, reason)

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """Remember the reason until they are settled."""
        for each in deliveries:
            last = "" if each.last is None else f": {each.last.reason()}"
            self._reasons[each] = reason.value + last

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """Record the end of the messages."""
        if settlement is Settlement.DELIVERED and not self._tells_all:
            return
        kind = _SETTLED[settlement]
        for each in deliveries:
            reason = self._reasons.pop(each, "")
            is_delivered = kind is EventKind.DELIVERED
            # Failures before a success have their own events.
            status = 0 if each.last is None or is_delivered else each.last.status
            # `attempts` counts failed ones only, so add the successful one.
            attempt = each.attempts + is_delivered
            self._of(kind, each, attempt, status, reason)

    def _of(
        self, kind: EventKind, delivery: Delivery, attempt: int, status: int = 0, reason: str = ""
    ) -> None:
        record, message, redriven = delivery.record, delivery.message, delivery.redriven
        self._tell(
            kind,
            record,
            _id_of(record) if message is None else message.id,
            # A re-driven dead letter has a second end.
            delivery.offsets.seek if redriven is None else redriven.at_ms,
            attempt=attempt,
            status=status,
            reason=as_told(reason, REASON_CHARACTERS_MAX),
            via="" if message is None else message.via,
        )

    def _tell(
        self, kind: EventKind, record: StoredRecord, message_id: str, epoch: int, **more: Any
    ) -> None:
        event = TrackingEvent(
            kind,
            as_told(message_id),
            str(self._live.name.topic),
            self._clock.now_ms(),
            self._dc,
            self._live.name.name,
            record.partition,
            record.offset,
            epoch=epoch,
            **more,
        )
        self._buffer.add(event)


def _id_of(record: StoredRecord) -> str:
    """The message id of a record, or its place if it holds no readable message."""
    try:
        return from_record(record).id
    except UndecodableRecord:
        return record.place
