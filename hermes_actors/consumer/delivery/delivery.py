"""A message between its reading and its settling: its states, the transitions between them, and
the one seam by which counters, spans and tracking hear of those.

    READ ─ sent ─→ IN_FLIGHT ──────── settled ──────→ SETTLED     delivered
     │ ↑           │  ↑   │                             ↑
     │ │         wait sent  └ given_up ┐                │
     │ │           ↓  │                ↓                │
     │ └ returned ─ WAITING ─────→ GIVEN_UP ─ settled ──┘         its dead letter is kept, or none
     └─── given_up ────────────────────┘

A message alone and one of a batch go the same way; `returned` is for those of a batch that is put
together anew. What a filter leaves out is settled as it is read, and never is a delivery. From
READ, WAITING and IN_FLIGHT a message is `forgotten` when a retransmission has taken its partition
elsewhere: it is read again from there, or not at all. One whose consumer ends stays as it is, and
is read again by the next. What an answer leads to is decided in `retry.py` and carried out in
`dispatching.py`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum, auto

from hermes_actors.consumer.delivery.retry import Discard, Gone, RetryPolicy, is_refused
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.rates.control import IN_AN_EARLIER_LIFE_S
from hermes_actors.consumer.recipients.resolver_recipients import Recipient
from hermes_actors.consumer.senders.sender import Route, SendOutcome
from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.message import Message
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.trace_context import TraceContext

OVERHEAD_BYTES = 512
"""Bytes that a waiting message costs beside its body; counted against the bytes that may wait."""

Ending = tuple[Discard | Gone, SendOutcome]
"""The meaning of an answer for the messages that were pushed, and that answer."""


class Served:
    """The memory of one message over its attempts: who took it, and who refused it for good.

    `last_key` is the recipient of the last attempt, where it goes to one of several. `missed` names
    who did not take it by the end of the last attempt at all of them.
    """

    __slots__ = ("last_key", "missed", "refused", "took")

    def __init__(self) -> None:
        self.took: set[str] = set()
        # Named when the message is given up, so with the answer.
        self.refused: dict[str, tuple[str, SendOutcome]] = {}
        self.last_key = ""
        self.missed: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """True when nothing is to be sent to this recipient any more."""
        return key in self.took or key in self.refused

    def note(self, recipient: Recipient, outcome: SendOutcome, policy: RetryPolicy) -> None:
        """Remember a recipient's answer."""
        if outcome.is_success:
            self.took.add(recipient.key)
        elif is_refused(outcome, policy):
            self.refused[recipient.key] = (recipient.name, outcome)


class State(Enum):
    """Where a message stands between its reading and its settling."""

    READ = auto()
    """To be sent in its turn: behind others, behind its key, or in a batch not sent yet."""
    WAITING = auto()
    """Between attempts; or answered while the lease was closed, and to be ended later."""
    IN_FLIGHT = auto()
    """Pushed to its recipients, who have not all answered."""
    GIVEN_UP = auto()
    """Attempted no more; settled once its dead letter is kept, if it leaves one."""
    SETTLED = auto()
    """Done with: the next commit covers its offset."""
    FORGOTTEN = auto()
    """A retransmission has taken it elsewhere."""


READ, WAITING, IN_FLIGHT = State.READ, State.WAITING, State.IN_FLIGHT
GIVEN_UP, SETTLED, FORGOTTEN = State.GIVEN_UP, State.SETTLED, State.FORGOTTEN


class PushAttempts:
    """How the attempts at one push went, of a message alone or of a batch.

    `version` is the version of the subscription that made the last attempt, and `sent_s` when.
    `ending` is what the last attempt's answer means, if that has to wait for the lease.
    """

    __slots__ = ("attempts", "backoff_ms", "ending", "sent_s", "version")

    def __init__(self) -> None:
        self.attempts = 0
        self.backoff_ms: int | None = None
        self.ending: Ending | None = None
        self.sent_s = 0.0
        self.version = -1

    @property
    @abstractmethod
    def is_superseded(self) -> bool:
        """True when a retransmission or another version makes the push anew, or drops it."""


class Delivery(PushAttempts):
    """A message that was read and not settled: its record, its state, and how its attempts went.

    `message` is made when it is taken up, or before, by what looks into it; `route` and
    `message_lines` are made for its attempts, for the `version` of the subscription. `epoch` is
    that of the rate control at its last attempt, `failed_s` the failure that counted there, `last`
    the last attempt's outcome. `redriven` is the dead letter that it was before it is tried again
    on demand. `served` remembers, where there are several recipients, who has it. `trace` goes into
    its next push, set by a listener that records the attempt; of a batch the first message's does.
    """

    __slots__ = (
        "epoch",
        "failed_s",
        "holds_key",
        "is_parked",
        "is_retry",
        "last",
        "message",
        "message_lines",
        "offsets",
        "record",
        "redriven",
        "route",
        "served",
        "size_bytes",
        "state",
        "taken_up_s",
        "trace",
    )

    def __init__(
        self, record: StoredRecord, offsets: PartitionOffsets, message: Message | None = None
    ) -> None:
        super().__init__()
        self.state = READ
        self.record = record
        self.offsets = offsets
        self.size_bytes = len(record.value) + OVERHEAD_BYTES
        if message is not None and message.body is not record.value:
            # Made of the record's, which stays for a dead letter.
            self.size_bytes += len(message.body)
        self.message = message
        self.message_lines = b""
        self.route: Route | None = None
        self.taken_up_s: float | None = None
        self.served: Served | None = None
        self.epoch = 0
        is_tried_before = record.offset < offsets.recovered_end
        self.failed_s: float | None = IN_AN_EARLIER_LIFE_S if is_tried_before else None
        self.last: SendOutcome | None = None
        self.is_retry = False
        self.holds_key = False
        # It has had to wait behind its key.
        self.is_parked = False
        self.redriven: Letter | None = None
        self.trace: TraceContext | None = None

    @property
    def is_superseded(self) -> bool:
        """True when a retransmission has taken its partition elsewhere."""
        return self.offsets.is_superseded

    # The transitions. Who makes one also moves the message in the queues, and tells the listeners.

    def sent(self, now_s: float) -> None:
        """Enter IN_FLIGHT: a push of it begins."""
        assert self.state is READ or self.state is WAITING, "it is pushed once at a time"
        self.state = IN_FLIGHT
        self.sent_s = now_s

    def wait(self) -> None:
        """Enter WAITING, for the time of an attempt or of its ending."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "what is given up is not tried again"
        self.state = WAITING

    def returned(self) -> None:
        """Enter READ again: its batch is put together anew."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "what is given up is not tried again"
        self.state = READ

    def given_up(self) -> None:
        """Enter GIVEN_UP: it is settled when its dead letter is kept, or none is wanted."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "it is given up once"
        self.state = GIVEN_UP

    def settled(self) -> None:
        """Enter SETTLED, delivered or given up, and settle its offset."""
        assert self.state is IN_FLIGHT or self.state is GIVEN_UP, "it has been pushed or given up"
        self.offsets.settle(self.record.offset)
        self.state = SETTLED

    def forgotten(self) -> None:
        """Enter FORGOTTEN: a retransmission has taken its partition elsewhere."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "what is given up ends with its letter"
        self.state = FORGOTTEN


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
