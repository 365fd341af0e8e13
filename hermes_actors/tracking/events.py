"""Tracking events, the batches that contain them, and the final event of a message."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct

from hermes_actors.log.base import TopicSettings

TRACKING_TOPIC = "_hermes.tracking"

RECORD_BYTES_MAX = 1_048_576
"""Maximum size of a batch in the log."""

RETENTION_MS = 3 * 86_400_000

SETTINGS = TopicSettings(
    partitions=1,
    retention_ms=RETENTION_MS,
    record_bytes_max=RECORD_BYTES_MAX,
    log_append_time=True,
)

ID_CHARACTERS_MAX = 1_024
"""Ids from other programs may have any length; longer ones are cut."""

REASON_CHARACTERS_MAX = 200


class EventKind(StrEnum):
    """The steps of a message's life; the values are part of the wire format."""

    PUBLISHED = "PUBLISHED"
    HEDGED = "HEDGED"
    SPOOLED = "SPOOLED"
    INFLIGHT = "INFLIGHT"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    """A failed attempt to deliver; without a subscription, a failed append."""
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
    """One step of one message. `dc` is the datacentre of the log concerned, `at_ms` the node's wall
    clock. Partition or offset -1 is unknown; attempt or status 0 means none. `epoch` is 0 for the
    first delivery, and different for a retransmission and for a re-driven dead letter.
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
        """True if the subscription is done with the message."""
        return self.kind in _RANKS

    @property
    def size_bytes(self) -> int:
        """A lower bound of the event's size in a batch."""
        texts = (self.message_id, self.topic, self.subscription, self.reason)
        return 120 + sum(len(each) * (1 if each.isascii() else 4) for each in texts)


class TrackingBatch(Struct, frozen=True):
    """Events of one life of a node (`boot`), for one datacentre's log.

    `sequence` counts the batches of that life in that log, from 0. `dropped` counts the events
    dropped so far.
    """

    dc: str
    node: str
    boot: str
    sequence: int
    dropped: int
    events: tuple[TrackingEvent, ...]


class UndecodableTracking(Exception):
    """The bytes are not a batch that this version can read."""


_decoder = msgspec.msgpack.Decoder(TrackingBatch)


def encode(batch: TrackingBatch) -> bytes:
    """Encode a batch."""
    return msgspec.msgpack.encode(batch)


def decode(value: bytes) -> TrackingBatch:
    """Decode a batch. Raises UndecodableTracking."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodableTracking(str(error)) from error


def as_told(text: str, characters_max: int = ID_CHARACTERS_MAX) -> str:
    """The text as it is stored and looked up: cut, and with `?` for an unpaired surrogate."""
    cut = text[:characters_max]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def terminal_of(events: Iterable[TrackingEvent]) -> dict[tuple[str, str, int], TrackingEvent]:
    """Return the decisive terminal event of each (message id, subscription, epoch), by rank and
    then by time.

    A message that was delivered again after a crash may have several: if it was delivered once, it
    counts as delivered.
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
    # Among equals, the earliest.
    return _RANKS[event.kind], -event.at_ms
