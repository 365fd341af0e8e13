"""The status record: what one node says of itself, in MessagePack, bounded in bytes.

A record has a header and entries, one for each topic that the node published to and each
subscription that it consumes. A node with more entries than fit spreads them over several records,
one a second: a *round* is one pass over all of them. Fields are only ever added, at the end, so
that nodes of different versions read each other: what a reader does not know it leaves out.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes_actors.log.base import TopicSettings
from hermes_actors.status.reasons import Reason

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
"""The most that one text takes; what is longer is cut."""

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
    """A node's entry for one topic, `group.topic`. `rates` are thousandths a second, `latency_ms`
    is p50 and p99 of the publishes of the last minute.
    """

    name: str
    counts: Published = Published()
    rates: Published = Published()
    latency_ms: tuple[float, float] | None = None


class LastUndelivered(Struct, frozen=True, array_like=True, gc=False):
    """The message of a subscription that was given up last: when, where it lies, and why."""

    at_ms: int
    partition: int
    offset: int
    reason: str = ""


class SubscriptionFigures(Struct, frozen=True, array_like=True):
    """What a consumer tells of its subscription. 0 as time of an attempt: there was none."""

    reasons: tuple[Reason, ...] = ()
    """What stops it or slows it down, the gravest first."""
    counts: Flow = Flow()
    inflight: int = 0
    waiting_retries: int = 0
    last_failure: str = ""
    last_failure_kind: str = ""
    """Its status, or what it ended with in place of an answer (`timeout`, …)."""
    last_failure_at_ms: int = 0
    last_attempts: int = 0
    """How many attempts the message has had whose attempt failed last."""
    last_success_at_ms: int = 0
    level: str = ""
    """The trust in its endpoint; "" where it is not consumed."""
    rate_now: float = 0.0
    """The most that may be sent to it, in messages a second."""
    oldest_age_ms: int = 0
    """How long ago the oldest message that is read and not settled was stored."""
    last_undelivered: LastUndelivered | None = None
    latency_ms: tuple[float, float] | None = None
    """p50 and p99 of the pushes of the last minute."""


class SubscriptionStatus(SubscriptionFigures, frozen=True, array_like=True, kw_only=True):
    """A node's entry for one subscription, `group.topic$name`. `rates` are thousandths a second.

    `state` is STOPPED, FAILING, DELIVERING, IDLE or UNKNOWN, and `reasons` say why. `lag` is how
    many messages of its partitions are not settled, -1 when not known.
    """

    name: str
    state: str = "UNKNOWN"
    rates: Flow = Flow()
    lag: int = -1
    open_letters: int = -1
    """Dead letters of the whole datacentre that nobody has settled; -1 where it is not known, or
    told by the node that owns the subscription's first part.
    """


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
    topics: int = 0
    subscriptions: int = 0
    stopped_subscriptions: int = 0
    failing_subscriptions: int = 0
    published_rate: int = 0
    delivered_rate: int = 0
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


class UndecodableStatus(Exception):
    """The bytes are no status record that this version can read."""


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


def encode_part(part: NodeHeader | TopicStatus | SubscriptionStatus) -> bytes:
    """The bytes of a header or an entry, as `encode` puts them together."""
    return _encoder.encode(part)


def encode(header: bytes, topics: Sequence[bytes], subscriptions: Sequence[bytes]) -> bytes:
    """The bytes of a record: at most 64 more than its parts have."""
    return _encoder.encode(
        {
            "header": msgspec.Raw(header),
            "topics": list(map(msgspec.Raw, topics)),
            "subscriptions": list(map(msgspec.Raw, subscriptions)),
        }
    )
