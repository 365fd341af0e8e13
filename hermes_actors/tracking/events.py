"""Tracking events, the batches that carry them, and how a message ended."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct

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
    """The steps of a message's life; the values are the wire's."""

    PUBLISHED = "PUBLISHED"
    HEDGED = "HEDGED"
    SPOOLED = "SPOOLED"
    INFLIGHT = "INFLIGHT"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    """A failed attempt to deliver; without a subscription, a failed append to a log."""
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
    """One step of one message. `dc` is the datacentre of the log that the step is about, `at_ms`
    the node's wall clock. -1 is an unknown partition or offset, 0 no attempt or no status. `epoch`
    is 0 for the first delivery; a retransmission and a re-driven dead letter have another one.
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
    """Events of one life of a node (`boot`), for one datacentre's log.

    `sequence` counts the batches of that life in that log from 0, `dropped` the events that it had
    no room for so far.
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
    """The bytes of a batch."""
    return msgspec.msgpack.encode(batch)


def decode(value: bytes) -> TrackingBatch:
    """Read a batch. Raises UndecodableTracking."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodableTracking(str(error)) from error


def as_told(text: str, characters_max: int = ID_CHARACTERS_MAX) -> str:
    """The text as it is stored and looked up: cut, and with `?` for half a surrogate pair."""
    cut = text[:characters_max]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


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
