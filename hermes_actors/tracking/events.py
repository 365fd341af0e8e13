"""Tracking events and the batches that carry them: values, their bytes, and what they sum to."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.log.base import TopicSettings

TRACKING_TOPIC = "_hermes.tracking"

RECORD_BYTES_MAX = 1_048_576
"""The most that one batch takes in the log."""

RETENTION_MS = 3 * 86_400_000

SETTINGS = TopicSettings(
    partitions=1,
    retention_ms=RETENTION_MS,
    record_bytes_max=RECORD_BYTES_MAX,
    log_append_time=True,
)

ID_CHARACTERS_MAX = 1_024
"""Ids that others have written may be of any length; what is longer is cut."""

REASON_CHARACTERS_MAX = 200


class EventKind(StrEnum):
    """The steps of a message's life that are told; the values are the wire's."""

    PUBLISHED = "PUBLISHED"
    HEDGED = "HEDGED"
    SPOOLED = "SPOOLED"
    INFLIGHT = "INFLIGHT"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    """An attempt that did not succeed: of a delivery, or without a subscription of an append."""
    DISCARDED = "DISCARDED"
    DEAD = "DEAD"
    FILTERED = "FILTERED"


_RANKS = {
    EventKind.DELIVERED: 3,
    EventKind.DEAD: 2,
    EventKind.DISCARDED: 1,
    EventKind.FILTERED: 0,
}


class TrackingEvent(Struct, frozen=True, array_like=True, gc=False):
    """One step of one message. `dc` is that of the log which the step is about, `at_ms` the node's
    wall clock. -1 is a partition or an offset that is not known, 0 an attempt or a status that
    there is none of. `epoch` tells a retransmission, or a dead letter that is delivered again, from
    the first delivery, which has 0.
    """

    kind: EventKind
    message_id: str
    topic: str
    at_ms: int
    dc: str
    subscription: str = ""
    partition: int = -1
    offset: int = -1
    attempt: int = 0
    status: int = 0
    reason: str = ""
    via: str = ""
    epoch: int = 0

    @property
    def is_terminal(self) -> bool:
        """True when the subscription is done with the message."""
        return self.kind in _RANKS

    @property
    def size_bytes(self) -> int:
        """At least what the event takes in a batch."""
        texts = (self.message_id, self.topic, self.subscription, self.reason)
        return 120 + sum(len(each) * (1 if each.isascii() else 4) for each in texts)


class TrackingBatch(Struct, frozen=True):
    """Events that one life of a node tells one datacentre's log at a time.

    `sequence` counts the batches of that life in that log from 0, `dropped` the events for which it
    has had no room so far.
    """

    dc: str
    node: str
    boot: str
    sequence: int
    dropped: int
    events: tuple[TrackingEvent, ...]


class UndecodableTracking(Exception):
    """The bytes are no batch that this version can read."""


_decoder = msgspec.msgpack.Decoder(TrackingBatch)


def encode(batch: TrackingBatch) -> bytes:
    """The bytes of a batch. Text that is no Unicode is replaced where it is not."""
    try:
        return msgspec.msgpack.encode(batch)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(
            replace(batch, events=tuple([_cleaned(each) for each in batch.events]))
        )


def decode(value: bytes) -> TrackingBatch:
    """Read a batch. Raises UndecodableTracking."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodableTracking(str(error)) from error


def _cleaned(event: TrackingEvent) -> TrackingEvent:
    return replace(event, message_id=as_unicode(event.message_id), reason=as_unicode(event.reason))


def as_unicode(text: str) -> str:
    """The text with `?` where it holds half a surrogate pair: as it is written and looked up."""
    return text.encode("utf-8", "replace").decode()


def terminal_of(events: Iterable[TrackingEvent]) -> dict[tuple[str, str, int], TrackingEvent]:
    """The one terminal event of each (message id, subscription, epoch), by rank and then by time.

    A message that was taken up again after a crash may have several: delivered once is delivered.
    """
    found: dict[tuple[str, str, int], TrackingEvent] = {}
    for event in events:
        if event.is_terminal:
            key = event.message_id, f"{event.topic}${event.subscription}", event.epoch
            held = found.get(key)
            if held is None or _order(event) > _order(held):
                found[key] = event
    return found


def _order(event: TrackingEvent) -> tuple[int, int]:
    # Of equal ones the first in time.
    return _RANKS[event.kind], -event.at_ms
