"""A message between reading and settling: its states, its transitions, and the one seam through
which counters, spans and tracking observe them.

    READ ─ sent ─→ IN_FLIGHT ──────── settled ──────→ SETTLED     delivered
     │ ↑           │  ↑   │                             ↑
     │ │         wait sent  └ given_up ┐                │
     │ │           ↓  │                ↓                │
     │ └ returned ─ WAITING ─────→ GIVEN_UP ─ settled ──┘         its dead letter is kept, or none
     └─── given_up ────────────────────┘

Single messages and messages of a batch follow the same path; `returned` is for messages of a batch
that is reassembled. A filtered message is settled when it is read and never becomes a delivery.
From READ, WAITING and IN_FLIGHT a message is `forgotten` if a retransmission has moved its
partition: it is read again, or not at all. If its consumer ends, it stays as it is, and the next
consumer reads it again. `retry.py` decides what follows from an answer, and `dispatching.py`
carries it out.
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
"""Bytes that a buffered message costs besides its body; counted against the buffer's limit."""


class Served(Struct, eq=False):
    """Which recipients took a message and which refused it for good, over all attempts.

    `last_key` is the recipient of the last attempt, if each attempt goes to one of several.
    `missed` names the recipients that had not taken it at the end of the last broadcast.
    """

    took: set[str] = field(default_factory=set)
    refused: dict[str, tuple[str, SendOutcome]] = field(default_factory=dict)
    """By key: the name and the answer, for the detail when the message is given up."""
    last_key: str = ""
    missed: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """True if nothing more is to be sent to this recipient."""
        return key in self.took or key in self.refused

    def note(self, recipient: Recipient, outcome: SendOutcome, policy: RetryPolicy) -> None:
        """Remember a recipient's answer."""
        if outcome.is_success:
            self.took.add(recipient.key)
        elif is_refused(outcome, policy):
            self.refused[recipient.key] = (recipient.name, outcome)


class DeliveryState(Enum):
    """Where a message is between reading and settling."""

    READ = auto()
    """Not sent yet: queued behind others, parked behind its key, or in an unsent batch."""
    WAITING = auto()
    """Waits for its next attempt."""
    IN_FLIGHT = auto()
    """Pushed, and not all recipients have answered; or their answers wait for the lease."""
    GIVEN_UP = auto()
    """No further attempts. Settled once its dead letter is kept, or at once without one."""
    SETTLED = auto()
    """Done; the next commit covers its offset."""
    FORGOTTEN = auto()
    """Dropped, because a retransmission moved its partition."""


READ, WAITING, IN_FLIGHT = DeliveryState.READ, DeliveryState.WAITING, DeliveryState.IN_FLIGHT
GIVEN_UP, SETTLED, FORGOTTEN = (
    DeliveryState.GIVEN_UP,
    DeliveryState.SETTLED,
    DeliveryState.FORGOTTEN,
)


class PushAttempts(Struct, eq=False, kw_only=True):
    """The attempts at one push, of a message or of a batch.

    `version` is the subscription's version at the last attempt, `sent_s` its time, `last` its
    outcome if it failed. `taken_up_s` is when the first attempt began, or may begin. `route` is
    valid for attempts of `version`. `served` remembers which of several recipients have it.
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
        """True if a retransmission or a new version requires dropping or rebuilding the push."""

    @property
    @abstractmethod
    def deliveries(self) -> Sequence["Delivery"]:
        """The messages in the push."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A description for people."""

    def failed(self, outcome: SendOutcome) -> None:
        """Count a failed attempt."""
        self.attempts += not outcome.is_local
        self.last = outcome


class Delivery(PushAttempts, eq=False):
    """A message that was read and is not settled: its record, state and attempts.

    `message` is decoded when the message is dispatched, or earlier by filters. `message_lines` are
    the header lines for attempts of one `version`. `epoch` is the rate control's at the last
    attempt, and `failed_s` the time of the failure counted there. `redriven` is the dead letter
    that is delivered again. `trace` goes into the next push; a listener sets it. For a batch, the
    first message's counts.
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
    """True after it has been parked behind its key."""
    redriven: Letter | None = None
    trace: TraceContext | None = None

    def __post_init__(self) -> None:
        record, message = self.record, self.message
        self.size_bytes = len(record.value) + OVERHEAD_BYTES
        if message is not None and message.body is not record.value:
            # The body was converted; the original stays for a dead letter.
            self.size_bytes += len(message.body)

    @property
    def first(self) -> Message:
        """The message, which must have been decoded."""
        assert self.message is not None, "taken up before"
        return self.message

    @property
    def is_superseded(self) -> bool:
        """True if a retransmission has moved its partition."""
        return self.offsets.is_superseded

    @property
    def deliveries(self) -> Sequence["Delivery"]:
        """Only this message."""
        return (self,)

    @property
    def label(self) -> str:
        """Its id, partition and offset."""
        message, record = self.message, self.record
        name = "a record" if message is None else message.id or "a record"
        return f"{name} at {record.partition}/{record.offset}"

    # The transitions. The caller also moves the message between queues and tells the listeners.

    def sent(self, now_s: float) -> None:
        """Enter IN_FLIGHT: a push begins."""
        assert self.state is READ or self.state is WAITING, "it is pushed once at a time"
        self.state = IN_FLIGHT
        self.sent_s = now_s

    def wait(self) -> None:
        """Enter WAITING, until the next attempt or until it is given up."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "what is given up is not tried again"
        self.state = WAITING

    def returned(self) -> None:
        """Enter READ again: its batch is reassembled."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "what is given up is not tried again"
        self.state = READ

    def given_up(self) -> None:
        """Enter GIVEN_UP. It is settled when its dead letter is kept, or at once without one."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "it is given up once"
        self.state = GIVEN_UP

    def settled(self) -> None:
        """Enter SETTLED, whether delivered or given up, and settle the offset."""
        assert self.state is IN_FLIGHT or self.state is GIVEN_UP, "it has been pushed or given up"
        self.offsets.settle(self.record.offset)
        self.state = SETTLED

    def forgotten(self) -> None:
        """Enter FORGOTTEN: a retransmission has moved its partition."""
        assert self.state in (IN_FLIGHT, READ, WAITING), "what is given up ends with its letter"
        self.state = FORGOTTEN


class Batch(PushAttempts, eq=False):
    """A batch and its attempts. It is immutable: equal ids mean equal bodies.

    `is_superseded`: a new version or a retransmission came while it was in flight, so its messages
    are reassembled.
    """

    id: str
    deliveries: list[Delivery]
    body: bytes
    due_s: float
    is_superseded: bool = False

    @property
    def first(self) -> Message:
        """The first message, for resolvers that ask for one."""
        return self.deliveries[0].first

    @property
    def label(self) -> str:
        """Its id and its size."""
        return f"batch {self.id} of {len(self.deliveries)} messages"

    def sent(self, now_s: float) -> None:
        """Begin a push of all messages."""
        if self.taken_up_s is None:
            self.taken_up_s = now_s
        self.sent_s = now_s
        for each in self.deliveries:
            each.sent(now_s)

    def failed(self, outcome: SendOutcome) -> None:
        """Count a failed attempt, also for each message: it may be in another batch next time."""
        super().failed(outcome)
        for each in self.deliveries:
            each.failed(outcome)

    def settled(self) -> None:
        """Settle all messages."""
        for each in self.deliveries:
            each.settled()


class Settlement(Enum):
    """The end of a message that was attempted or given up."""

    DELIVERED = "delivered"
    DEAD_LETTER = "dead letter"
    """Given up, and kept as a dead letter."""
    DROPPED = "dropped"
    """Given up without a dead letter."""


class Transitions:
    """A listener to all transitions of one subscription's messages. This base class ignores them.

    Messages that change together are reported in one call; batches cause the same transitions as
    single messages. The names agree with `publisher.pending.Transitions` where they mean the same.
    The calls are on the sending path: they must not wait, raise, or keep the sequence.
    """

    def read(self, records: Sequence[StoredRecord]) -> None:
        """Records came from the log. If reading is interrupted, some of them come again."""

    def filtered(self, record: StoredRecord, offsets: PartitionOffsets) -> None:
        """The filters rejected this record, and it is settled."""

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """A push of these messages begins. For a dead letter that is re-driven, this is the first
        call.
        """

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """A push of these messages has this outcome. In a broadcast, called for each recipient."""

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """These messages are not attempted again, and wait to be settled."""

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """These messages are settled; the next commit covers them."""


class ToEach(Transitions):
    """Forwards every transition to several listeners, in order."""

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
    """All messages of one consumer that are read and not settled.

    `inflight` counts messages whose push has no answer yet, `buffered_bytes` the bytes of all
    messages, `buried` the given-up messages whose dead letters are on their way. At most
    `waiting_max` messages may wait, or come to wait, for their next attempt.
    """

    def __init__(self, waiting_max: int) -> None:
        self.waiting_max = waiting_max
        self.inflight = self.buffered_bytes = self.buried = 0

    @property
    @abstractmethod
    def fresh(self) -> int:
        """The number of messages read and not dispatched."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """The number of messages waiting for their next attempt."""

    @property
    def parked(self) -> int:
        """The number of messages parked behind an earlier one of their key."""
        return 0

    @property
    def is_waiting_full(self) -> bool:
        """True if no fresh message may be dispatched, as there would be no room for its retry."""
        return False

    @abstractmethod
    def add(self, delivery: Delivery) -> None:
        """Add a message that was just read."""

    @abstractmethod
    def drop_superseded(self) -> None:
        """Drop the unsent and waiting messages of partitions that a retransmission has moved."""

    # The end of a push in flight.

    @abstractmethod
    def wait(self, what: Any, due_s: float) -> None:
        """Queue it for its next attempt at `due_s`."""

    @abstractmethod
    def remove(self, what: Any) -> None:
        """Drop it: its messages are settled."""

    @abstractmethod
    def bury(self, what: Any) -> None:
        """Give it up; `forget` follows for each of its messages."""

    @abstractmethod
    def let_go(self, what: Any) -> None:
        """Drop it because it was superseded. Its messages are read again, or not at all."""

    # Messages that are given up.

    def bury_read(self, delivery: Delivery) -> None:
        """Give up a message that was read and never added; `forget` follows."""
        self.buffered_bytes += delivery.size_bytes
        delivery.given_up()
        self.buried += 1

    def forget(self, delivery: Delivery) -> None:
        """Drop a message whose dead letter is kept or not wanted."""
        self.buried -= 1
        self._drop(delivery)

    def _drop(self, delivery: Delivery) -> None:
        """Free the memory of a finished message."""
        self.buffered_bytes -= delivery.size_bytes

    @abstractmethod
    def clear(self) -> None:
        """Drop all messages, because the consumer has ended; its gauges then show zero."""
