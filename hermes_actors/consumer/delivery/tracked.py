"""Tracking of delivery: what becomes of the messages of one subscription that is tracked."""

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
    """Tells the attempts and the end of each message, or only of those that are given up.

    A subscription's tracking mode does not change in the life of a consumer.
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
        # Of those that are given up and not settled yet, which the consumer bounds.
        self._reasons: dict[Delivery, str] = {}

    def filtered(self, record: StoredRecord, offsets: PartitionOffsets) -> None:
        """Tell what is not wanted."""
        if self._tells_all:
            self._tell(EventKind.FILTERED, record, _id_of(record), offsets.seek)

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """Tell that an attempt begins."""
        if self._tells_all:
            for each in deliveries:
                self._of(EventKind.INFLIGHT, each, each.attempts + 1)

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """Tell that an attempt failed."""
        if self._tells_all and not outcome.is_success:
            reason = outcome.reason()
            for each in deliveries:
                self._of(EventKind.FAILED, each, each.attempts + 1, outcome.status, reason)

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """Remember why, for when they are settled."""
        for each in deliveries:
            last = "" if each.last is None else f": {each.last.reason()}"
            self._reasons[each] = reason.value + last

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """Tell the end of them."""
        if settlement is Settlement.DELIVERED and not self._tells_all:
            return
        kind = _SETTLED[settlement]
        for each in deliveries:
            reason = self._reasons.pop(each, "")
            is_delivered = kind is EventKind.DELIVERED
            # Of the failures before a success their own events tell.
            status = 0 if each.last is None or is_delivered else each.last.status
            # The attempt that succeeds is not counted as one that has failed.
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
            # A dead letter that is delivered again has another end beside its first one.
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
    """The message id of a record; its place where it holds no message."""
    try:
        return from_record(record).id
    except UndecodableRecord:
        return record.place
