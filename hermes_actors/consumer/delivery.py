"""A message between its reading and its settling: what it is, what may become of it, and the one
seam by which counters, spans and tracking hear of that.

    read ┬ filtered                                        its filters leave it out: it is settled
         ├ given up ───────────────────────┐               undecodable, poison, too costly, too old
         └ sent ── answered ┬──────────────│──────────────→ settled DELIVERED
             ↑              ├ given up ────┴→ its letter ─→ settled DEAD_LETTER or DROPPED
             └── it waits ──┘

What an answer leads to is decided in `retry.py` and carried out in `dispatching.py`. A message that
a retransmission takes elsewhere is forgotten wherever it is, and read again from there or not at
all; one whose consumer ends is read again by the next.
"""

from collections.abc import Sequence
from enum import Enum

from hermes_actors.consumer.reading.offsets import PartitionOffsets
from hermes_actors.consumer.recipients.broadcast import Served
from hermes_actors.consumer.retry import Discard, Gone
from hermes_actors.consumer.senders.sender import Route, SendOutcome
from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.message import Message
from hermes_actors.model.record import StoredRecord

OVERHEAD_BYTES = 512
"""Bytes that a waiting message costs beside its body; counted against the bytes that may wait."""

Ending = tuple[Discard | Gone, SendOutcome]
"""The meaning of an answer for the messages that were pushed, and that answer."""


class Delivery:
    """A message that was read and not settled: its record, and how its attempts went so far.

    `message` is made when it is taken up, or before, by what looks into it; `route` and
    `message_lines` are made for its attempts, for the `version` of the subscription. `epoch` is
    that of the ladder at its last attempt, `failed_s` the failure that counted there, `last` the
    last attempt's outcome. `redriven` is
    the dead letter that it was before it is tried again on demand. `served` remembers, where there
    are several recipients, who has it. `ending` is what the last attempt's answer means for it, if
    that has to wait for the lease.
    """

    __slots__ = (
        "attempts",
        "backoff_ms",
        "ending",
        "epoch",
        "failed_s",
        "holds_key",
        "is_given_up",
        "is_parked",
        "is_retry",
        "last",
        "message",
        "message_lines",
        "offsets",
        "record",
        "redriven",
        "route",
        "sent_s",
        "served",
        "size_bytes",
        "taken_up_s",
        "version",
    )

    def __init__(
        self, record: StoredRecord, offsets: PartitionOffsets, message: Message | None = None
    ) -> None:
        self.record = record
        self.offsets = offsets
        self.size_bytes = len(record.value) + OVERHEAD_BYTES
        self.message = message
        self.message_lines = b""
        self.route: Route | None = None
        self.version = -1
        self.attempts = 0
        self.backoff_ms: int | None = None
        self.taken_up_s: float | None = None
        self.sent_s = 0.0
        self.served: Served | None = None
        self.epoch = 0
        self.failed_s: float | None = None
        self.last: SendOutcome | None = None
        self.is_retry = False
        self.holds_key = False
        self.is_given_up = False
        # It has had to wait behind its key.
        self.is_parked = False
        self.redriven: Letter | None = None
        self.ending: Ending | None = None

    @property
    def is_superseded(self) -> bool:
        """True when a retransmission has taken its partition elsewhere."""
        return self.offsets.is_superseded


class Settlement(Enum):
    """How a message that was attempted or given up ended."""

    DELIVERED = "delivered"
    DEAD_LETTER = "dead letter"
    """Given up, and kept as a dead letter."""
    DROPPED = "dropped"
    """Given up where no dead letter is kept of it, or could be."""


class Transitions:
    """Hears of every transition of one subscription's messages, of all that take it together at
    once; one that pushes batches has the same transitions. As it is, it does nothing.

    The words are those of `publisher.pending.Transitions` where they mean the same. The calls come
    on the sending path: they do not wait, do not raise, and keep no sequence.
    """

    def read(self, records: Sequence[StoredRecord]) -> None:
        """These came from the log. A reading that is broken off brings some of them again."""

    def filtered(self, records: Sequence[StoredRecord]) -> None:
        """These are not wanted, and settled."""

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """A push of these messages begins; a dead letter that is delivered again begins here."""

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """A push of these has this outcome; of one to several recipients each is told of."""

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """These are attempted no more: they wait to be settled."""

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """These need nothing more, and are committed next."""


class ToEach(Transitions):
    """Passes every transition on to several listeners, in their order."""

    def __init__(self, listeners: Sequence[Transitions]) -> None:
        self._listeners = tuple(listeners)

    def read(self, records: Sequence[StoredRecord]) -> None:
        """As `Transitions.read`."""
        for each in self._listeners:
            each.read(records)

    def filtered(self, records: Sequence[StoredRecord]) -> None:
        """As `Transitions.filtered`."""
        for each in self._listeners:
            each.filtered(records)

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """As `Transitions.sent`."""
        for each in self._listeners:
            each.sent(deliveries, is_retry=is_retry)

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """As `Transitions.answered`."""
        for each in self._listeners:
            each.answered(deliveries, outcome, took_s)

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """As `Transitions.given_up`."""
        for each in self._listeners:
            each.given_up(deliveries, reason)

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """As `Transitions.settled`."""
        for each in self._listeners:
            each.settled(deliveries, settlement)
