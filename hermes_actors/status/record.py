"""The status record: what one node says of itself, in MessagePack, bounded in bytes.

A record has a header and entries, one for each topic that the node published to and each
subscription that it consumes. A node with more entries than fit spreads them over several records,
one a second: a *round* is one pass over all of them. Fields are only ever added, at the end, so
that nodes of different versions read each other: what a reader does not know it leaves out.
"""

from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.log.base import TopicSettings

STATUS_TOPIC = "_hermes.status"

RECORD_BYTES_MAX = 262_144
"""The most that one record's value takes."""

RETENTION_MS = 600_000
"""How long the log keeps the records; what is older than a minute is of no use to anybody."""

SETTINGS = TopicSettings(
    partitions=1,
    retention_ms=RETENTION_MS,
    # Some room above the value for the key and for what a log adds.
    record_bytes_max=RECORD_BYTES_MAX + 16_384,
    log_append_time=True,
)

TEXT_BYTES_MAX = 300
"""The most that one reason or error takes; what is longer is cut."""

REASONS_MAX = 8


class Published(Struct, frozen=True, array_like=True, gc=False):
    """The messages that a node published to one topic: counters since its start, or thousandths a
    second.
    """

    messages: int = 0
    size_bytes: int = 0
    rejected: int = 0
    """Answered with 4xx."""
    failed: int = 0
    """Answered with 5xx: unknown or not stored."""


class Flow(Struct, frozen=True, array_like=True, gc=False):
    """The fates of one subscription's messages: counters since the node's start, or thousandths a
    second. `timeouts` to `codes_5xx` count attempts, the others messages.
    """

    delivered: int = 0
    size_bytes: int = 0
    discarded: int = 0
    expired: int = 0
    """Removed by the log's retention before they were settled."""
    retries: int = 0
    timeouts: int = 0
    other_errors: int = 0
    codes_2xx: int = 0
    codes_3xx: int = 0
    codes_4xx: int = 0
    codes_5xx: int = 0
    batches: int = 0
    """Delivered ones, of a subscription that gets batches; their messages are in `delivered`."""
    filtered: int = 0
    """Not wanted by the subscription's filters."""
    dead_letters: int = 0
    """Kept as dead letters; of one that failed again when it was re-driven, each."""

    @property
    def attempts(self) -> int:
        """All pushes that have an outcome."""
        answered = self.codes_2xx + self.codes_3xx + self.codes_4xx + self.codes_5xx
        return answered + self.timeouts + self.other_errors


class TopicStatus(Struct, frozen=True, array_like=True, gc=False):
    """A node's entry for one topic, `group.topic`. `rates` are thousandths a second."""

    name: str
    counts: Published = Published()
    rates: Published = Published()
    latency_p50_ms: float = -1.0
    """How long half of the publishes of the last minute took at most; -1: there was none."""
    latency_p99_ms: float = -1.0


class LastUndelivered(Struct, frozen=True, array_like=True, gc=False):
    """The message of a subscription that was given up last: when, where it lies, and why."""

    at_ms: int
    partition: int
    offset: int
    reason: str = ""


class SubscriptionStatus(Struct, frozen=True, array_like=True, gc=False):
    """A node's entry for one subscription, `group.topic$name`. `rates` are thousandths a second.

    `why` says what keeps it from being delivered, "" when nothing does. `lag` is how many messages
    of its partitions are not settled, -1 when not known. 0 as time of an attempt: there was none.
    """

    name: str
    why: str = ""
    counts: Flow = Flow()
    rates: Flow = Flow()
    lag: int = -1
    inflight: int = 0
    waiting_retries: int = 0
    last_failure: str = ""
    last_failure_at_ms: int = 0
    last_success_at_ms: int = 0
    level: str = ""
    """The trust in its endpoint; "" where it is not consumed, or by an older version."""
    rate_now: int = 0
    """The most that may be sent to it, in thousandths of a message a second."""
    held_back: str = ""
    oldest_age_ms: int = 0
    last_undelivered: LastUndelivered | None = None
    open_letters: int = -1
    """Dead letters of the whole datacentre that nobody has settled; -1 where it is not known, or
    told by the node that owns the subscription's first part.
    """
    last_attempts: int = 0
    """How many attempts the message has had whose attempt failed last; 0: it is not known."""
    latency_p50_ms: float = -1.0
    """How long half of the pushes of the last minute took at most; -1: there was none."""
    latency_p99_ms: float = -1.0


class NodeHeader(Struct, frozen=True, kw_only=True):
    """The node's own part of each record.

    `boot_id` is one process's life, `sequence` counts its records. Times are the node's own wall
    clock, Unix epoch. `round` is the pass that the record's entries belong to. The totals are over
    all entries, also those of other records; rates are thousandths a second.
    """

    node: str
    dc: str
    boot_id: str
    sequence: int
    roles: tuple[str, ...] = ()
    version: str = ""
    started_at_ms: int = 0
    written_at_ms: int = 0
    reasons: tuple[str, ...] = ()
    """Why the node is not ready; none when it is."""
    is_leaving: bool = False
    """The node stops, and this is its last record."""
    missed: int = 0
    """Records that the log did not take since the node's start."""
    loop_lag_ms: float = 0.0
    """How late the node's loop was at worst in the last second or two."""
    round: int = 0
    left_out: int = 0
    """Entries of this round that do not fit into any record."""
    topics: int = 0
    subscriptions: int = 0
    stopped_subscriptions: int = 0
    """Those of them that something keeps from being delivered."""
    published_rate: int = 0
    delivered_rate: int = 0
    failing_subscriptions: int = 0
    """Those of them whose endpoints take nothing."""
    notices: tuple[str, ...] = ()
    """Notices for an operator: the node can do its work all the same."""
    spooled: int = 0
    """Messages that wait on the node's disk until a log takes them."""
    elsewhere_rate: int = 0
    """Messages sent to another datacentre: hedges, rescues, and what the own log does not take."""


class StatusRecord(Struct, frozen=True):
    """One record as it is read."""

    header: NodeHeader
    topics: tuple[TopicStatus, ...] = ()
    subscriptions: tuple[SubscriptionStatus, ...] = ()


class _EncodedRecord(Struct, frozen=True):
    """One record as it is written: its entries have been encoded one by one, to know their size."""

    header: NodeHeader
    topics: list[msgspec.Raw]
    subscriptions: list[msgspec.Raw]


class UndecodableStatus(Exception):
    """The bytes are no status record that this version can read."""


# Names of the three fields and the heads of the arrays.
_FRAME_BYTES = 64

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StatusRecord)


def decode(value: bytes) -> StatusRecord:
    """Read a record. Raises UndecodableStatus."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodableStatus(str(error)) from error


def clip(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """The text, cut to that many bytes of UTF-8 if it is longer."""
    if len(text) * 4 <= bytes_max:
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return text
    return encoded[: bytes_max - 3].decode("utf-8", "ignore") + "…"


class Page:
    """One record being filled: it never grows above `bytes_max`."""

    def __init__(self, header: NodeHeader, bytes_max: int) -> None:
        self.header = header
        self._topics: list[msgspec.Raw] = []
        self._subscriptions: list[msgspec.Raw] = []
        self._room_bytes = bytes_max - len(_encoder.encode(header)) - _FRAME_BYTES

    @property
    def entries(self) -> int:
        """The number of entries that have been added."""
        return len(self._topics) + len(self._subscriptions)

    def add(self, entry: TopicStatus | SubscriptionStatus) -> bool:
        """Add the entry; False when there is no room for it."""
        encoded = _encoder.encode(entry)
        if len(encoded) > self._room_bytes:
            return False
        self._room_bytes -= len(encoded)
        into = self._topics if isinstance(entry, TopicStatus) else self._subscriptions
        into.append(msgspec.Raw(encoded))
        return True

    def encode(self, **changed: Any) -> bytes:
        """The record's bytes. Only fields of the header that are no texts may be changed."""
        header = msgspec.structs.replace(self.header, **changed) if changed else self.header
        return _encoder.encode(_EncodedRecord(header, self._topics, self._subscriptions))
