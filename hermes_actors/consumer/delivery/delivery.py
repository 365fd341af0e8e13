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

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from msgspec import Struct, field

from hermes_actors.consumer.delivery.retry import RetryPolicy, is_refused
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.recipients.resolver_recipients import Recipient
from hermes_actors.consumer.senders.sender import PushRoute, SendOutcome
from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_actors.model.message import Message
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.trace_context import TraceContext

OVERHEAD_BYTES = 512
"""Bytes that a waiting message costs beside its body; counted against the bytes that may wait."""


class Served(Struct, eq=False):
    """The memory of one message over its attempts: who took it, and who refused it for good.

    `last_key` is the recipient of the last attempt, where it goes to one of several. `missed` names
    who did not take it by the end of the last attempt at all of them.
    """

    took: set[str] = field(default_factory=set)
    refused: dict[str, tuple[str, SendOutcome]] = field(default_factory=dict)
    """Named when the message is given up, so with the answer."""
    last_key: str = ""
    missed: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """True when nothing is to be sent to this recipient any more."""
        return key in self.took or key in self.refused

    def note(self, recipient: Recipient, outcome: SendOutcome, policy: RetryPolicy) -> None:
        """Remember a recipient's answer."""
        if outcome.is_success:
            self.took.add(recipient.key)
        elif is_refused(outcome, policy):
            self.refused[recipient.key] = (recipient.name, outcome)


class DeliveryState(Enum):
    """Where a message stands between its reading and its settling."""

    READ = auto()
    """To be sent in its turn: behind others, behind its key, or in a batch not sent yet."""
    WAITING = auto()
    """Between attempts."""
    IN_FLIGHT = auto()
    """Pushed to its recipients, who have not all answered; or their answers wait for the lease."""
    GIVEN_UP = auto()
    """Attempted no more; settled once its dead letter is kept, if it leaves one."""
    SETTLED = auto()
    """Done with: the next commit covers its offset."""
    FORGOTTEN = auto()
    """A retransmission has taken it elsewhere."""


READ, WAITING, IN_FLIGHT = DeliveryState.READ, DeliveryState.WAITING, DeliveryState.IN_FLIGHT
GIVEN_UP, SETTLED, FORGOTTEN = (
    DeliveryState.GIVEN_UP,
    DeliveryState.SETTLED,
    DeliveryState.FORGOTTEN,
)


class PushAttempts(Struct, eq=False, kw_only=True):
    """How the attempts at one push went, of a message alone or of a batch.

    `version` is the version of the subscription that made the last attempt, and `sent_s` when;
    `last` is its outcome, if it failed. `taken_up_s` is when the first one began, or may begin.
    `route` is made for the attempts of a `version`. `served` remembers, where there are several
    recipients, who has it.
    """

    attempts: int = 0
    backoff_ms: int | None = None
    last: SendOutcome | None = None
    taken_up_s: float | None = None
    route: PushRoute | None = None
    served: Served | None = None
    sent_s: float = 0.0
    version: int = -1

    @property
    @abstractmethod
    def is_superseded(self) -> bool:
        """True when a retransmission or another version makes the push anew, or drops it."""

    @property
    @abstractmethod
    def deliveries(self) -> Sequence["Delivery"]:
        """The messages that the push carries."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What is pushed, for people."""

    def failed(self, outcome: SendOutcome) -> None:
        """Count an attempt that was no success."""
        self.attempts += not outcome.is_local
        self.last = outcome


class Delivery(PushAttempts, eq=False):
    """A message that was read and not settled: its record, its state, and how its attempts went.

    `message` is made when it is taken up, or before, by what looks into it; `message_lines` are
    made for its attempts, for the `version` of the subscription. `epoch` is that of the rate
    control at its last attempt, `failed_s` the failure that counted there. `redriven` is the dead
    letter that it was before it is tried again on demand. `trace` goes into its next push, set by a
    listener that records the attempt; of a batch the first message's does.
    """

    record: StoredRecord
    offsets: PartitionOffsets
    message: Message | None = None
    state: DeliveryState = READ
    size_bytes: int = 0
    message_lines: bytes = b""
    epoch: int = 0
    failed_s: float | None = None
    is_retry: bool = False
    holds_key: bool = False
    is_parked: bool = False
    """True when it has had to wait behind its key."""
    redriven: Letter | None = None
    trace: TraceContext | None = None

    def __post_init__(self) -> None:
        record, message = self.record, self.message
        self.size_bytes = len(record.value) + OVERHEAD_BYTES
        if message is not None and message.body is not record.value:
            # Made of the record's, which stays for a dead letter.
            self.size_bytes += len(message.body)

    @property
    def first(self) -> Message:
        """Return its message, which has been made."""
        assert self.message is not None, "taken up before"
        return self.message

    @property
    def is_superseded(self) -> bool:
        """True when a retransmission has taken its partition elsewhere."""
        return self.offsets.is_superseded

    @property
    def deliveries(self) -> Sequence["Delivery"]:
        """Itself alone."""
        return (self,)

    @property
    def label(self) -> str:
        """Its id and its place."""
        message, record = self.message, self.record
        name = "a record" if message is None else message.id or "a record"
        return f"{name} at {record.partition}/{record.offset}"

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


class Batch(PushAttempts, eq=False):
    """One batch and how its attempts went. It never changes: equal ids mean equal bodies.

    `is_superseded`: while it was in flight another version or a retransmission came, and its
    messages are to be put together anew.
    """

    id: str
    deliveries: list[Delivery]
    body: bytes
    due_s: float
    is_superseded: bool = False

    @property
    def first(self) -> Message:
        """Return the message for resolvers that ask for one: the first."""
        return self.deliveries[0].first

    @property
    def label(self) -> str:
        """Its id and its size."""
        return f"batch {self.id} of {len(self.deliveries)} messages"

    def sent(self, now_s: float) -> None:
        """Begin a push of all its messages."""
        if self.taken_up_s is None:
            self.taken_up_s = now_s
        self.sent_s = now_s
        for each in self.deliveries:
            each.sent(now_s)

    def failed(self, outcome: SendOutcome) -> None:
        """Count an attempt that was no success, for each message too: next it may be in another."""
        super().failed(outcome)
        for each in self.deliveries:
            each.failed(outcome)

    def settled(self) -> None:
        """Settle all its messages."""
        for each in self.deliveries:
            each.settled()


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

    def filtered(self, record: StoredRecord, offsets: PartitionOffsets) -> None:
        """The filters do not want this record, which is settled."""

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

    def filtered(self, record: StoredRecord, offsets: PartitionOffsets) -> None:
        """As `Transitions.filtered`."""
        for each in self._listeners:
            each.filtered(record, offsets)

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


class Buffer(ABC):
    """All messages of one consumer that are read and not settled. `inflight` counts those whose
    push has no answer yet, `buffered_bytes` are those of all together, `buried` counts what is
    given up while its dead letter is on its way, and at most `waiting_max` may wait, or come to
    wait, for their next attempt.
    """

    def __init__(self, waiting_max: int) -> None:
        self.waiting_max = waiting_max
        self.inflight = self.buffered_bytes = self.buried = 0

    @property
    @abstractmethod
    def fresh(self) -> int:
        """How many messages have been read and not been taken up."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many messages wait for their next attempt."""

    @property
    def parked(self) -> int:
        """How many messages wait for an earlier one of their key."""
        return 0

    @property
    def is_waiting_full(self) -> bool:
        """True when no fresh message may be taken up: it could have nowhere to wait."""
        return False

    @abstractmethod
    def add(self, delivery: Delivery) -> None:
        """Take in a message that has been read."""

    @abstractmethod
    def drop_superseded(self) -> None:
        """Forget the waiting messages of partitions that a retransmission has moved."""

    # What becomes of a push in flight.

    @abstractmethod
    def wait(self, what: Any, due_s: float) -> None:
        """Let it wait until `due_s` for its next attempt."""

    @abstractmethod
    def remove(self, what: Any) -> None:
        """Drop it: its messages are settled, and need nothing more."""

    @abstractmethod
    def bury(self, what: Any) -> None:
        """Give it up; `forget` follows for each of its messages."""

    @abstractmethod
    def let_go(self, what: Any) -> None:
        """Drop it, as something has superseded it; its messages come again, or not at all."""

    # What becomes of a message that is given up.

    def bury_read(self, delivery: Delivery) -> None:
        """Give up a message that has been read and not been added; `forget` follows."""
        self.buffered_bytes += delivery.size_bytes
        delivery.given_up()
        self.buried += 1

    def forget(self, delivery: Delivery) -> None:
        """Drop a message whose dead letter is kept, or not wanted."""
        self.buried -= 1
        self._drop(delivery)

    def _drop(self, delivery: Delivery) -> None:
        """Free what a message holds that needs nothing more."""
        self.buffered_bytes -= delivery.size_bytes

    @abstractmethod
    def clear(self) -> None:
        """Forget all messages: the consumer has ended, and who still shows it shows nothing."""
