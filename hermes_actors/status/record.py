"""The status record: what a node reports about itself, in MessagePack, limited in size.

A record has a header, and an entry for each topic that the node published to and each subscription
that it consumes. If a node has more entries than fit, it spreads them over several records, one a
second: a *round* is one pass over all of them. Fields are only added, at the end, so that nodes of
different versions can read each other: a reader ignores fields that it does not know.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes_actors.log.base import TopicSettings
from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.status.reasons import Reason

STATUS_TOPIC = "_hermes.status"

RECORD_BYTES_MAX = 262_144
"""Maximum size of a record's value."""

RETENTION_MS = 600_000
"""How long the log keeps the records; those older than a minute are not used."""

SETTINGS = TopicSettings(
    partitions=1,
    retention_ms=RETENTION_MS,
    # Additional room for the key and the log's overhead.
    record_bytes_max=RECORD_BYTES_MAX + 16_384,
    log_append_time=True,
)

TEXT_BYTES_MAX = 300
"""Maximum length of a text; longer ones are cut."""

REASONS_MAX = 8


class Published(Struct, frozen=True, array_like=True, gc=False):
    """Publishes to one topic on a node: counters since its start, or rates in thousandths a
    second.
    """

    messages: int = 0
    size_bytes: int = 0
    rejected: int = 0
    """Answered with 4xx."""
    failed: int = 0
    """Answered with 5xx: not stored, or unknown."""


class Flow(Struct, frozen=True, array_like=True, gc=False):
    """The outcomes of one subscription's messages: counters since the node's start, or rates in
    thousandths a second. `timeouts` to `codes_5xx` count attempts, the others messages.
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
    """Delivered batches; their messages are counted in `delivered`."""
    filtered: int = 0
    """Filtered out."""
    dead_letters: int = 0
    """Kept as dead letters; a letter that fails again in a re-drive counts each time."""

    @property
    def attempts(self) -> int:
        """All pushes with an outcome."""
        answered = self.codes_2xx + self.codes_3xx + self.codes_4xx + self.codes_5xx
        return answered + self.timeouts + self.other_errors


class TopicStatus(Struct, frozen=True, array_like=True, gc=False):
    """A node's entry for one topic, `group.topic`. `rates` are in thousandths a second;
    `latency_ms` is p50 and p99 of the publishes in the last minute.
    """

    name: str
    counts: Published = Published()
    rates: Published = Published()
    latency_ms: tuple[float, float] | None = None


class LastUndelivered(Struct, frozen=True, array_like=True, gc=False):
    """The last message of a subscription that was given up: time, place and reason."""

    at_ms: int
    partition: int
    offset: int
    reason: str = ""


class SubscriptionFigures(Struct, frozen=True, array_like=True):
    """A consumer's figures for its subscription. Time 0 of an attempt: there was none."""

    reasons: tuple[Reason, ...] = ()
    """What stops it or slows it down, the most serious first."""
    counts: Flow = Flow()
    inflight: int = 0
    waiting_retries: int = 0
    last_failure: str = ""
    last_failure_kind: str = ""
    """The HTTP status, or what happened instead of an answer (`timeout`, …)."""
    last_failure_at_ms: int = 0
    last_attempts: int = 0
    """How many attempts the message of the last failure has had."""
    last_success_at_ms: int = 0
    level: str = ""
    """The trust in its endpoint; empty string if it is not consumed."""
    rate_now: float = 0.0
    """The maximum sending rate now, in messages a second."""
    oldest_age_ms: int = 0
    """How long ago the oldest message that has been read but not settled was stored."""
    last_undelivered: LastUndelivered | None = None
    latency_ms: tuple[float, float] | None = None
    """p50 and p99 of the pushes in the last minute."""


class SubscriptionStatus(SubscriptionFigures, frozen=True, array_like=True, kw_only=True):
    """A node's entry for one subscription, `group.topic$name`. `rates` are in thousandths a second.
    `state` is STOPPED, FAILING, DELIVERING, IDLE or UNKNOWN, and `reasons` explain it. `lag` is the
    number of unsettled messages in its partitions; -1 if unknown.
    """

    name: str
    state: str = "UNKNOWN"
    rates: Flow = Flow()
    lag: int = -1
    open_letters: int = -1
    """Unsettled dead letters of the whole datacentre; -1 if unknown, or if the node that owns the
    subscription's first partition reports them.
    """


class NodeHeader(Struct, frozen=True, kw_only=True):
    """The part of each record about the node itself.

    `boot_id` identifies a process, `sequence` counts its records. Times are the node's wall clock
    (Unix epoch). `round` is the round of the record's entries. Totals are over all entries,
    including those in other records; rates are in thousandths a second.
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
    """Why the node is not ready; empty if it is."""
    is_leaving: bool = False
    """True if the node stops and this is its last record."""
    missed: int = 0
    """Number of records that the log did not take since the node's start."""
    loop_lag_ms: float = 0.0
    """The loop's maximum delay in the last second or two."""
    round: int = 0
    topics: int = 0
    subscriptions: int = 0
    stopped_subscriptions: int = 0
    failing_subscriptions: int = 0
    published_rate: int = 0
    delivered_rate: int = 0
    notices: tuple[str, ...] = ()
    """Problems for an operator that do not keep the node from working."""
    spooled: int = 0
    """Messages on the node's disk that wait for a log."""
    elsewhere_rate: int = 0
    """Messages sent to another datacentre: hedges, rescues, and those that the own log did not
    take.
    """
    pull: tuple[str, str] = ("", "")
    """Where management nodes of the datacentre fetch messages of pull subscriptions, and the secret
    by which they are known there, new at each start.
    """

    def __repr__(self) -> str:
        return redacted(self, pull=HIDDEN)


class StatusRecord(Struct, frozen=True):
    """A decoded record."""

    header: NodeHeader
    topics: tuple[TopicStatus, ...] = ()
    subscriptions: tuple[SubscriptionStatus, ...] = ()


class UndecodableStatus(Exception):
    """The bytes are not a status record that this version can read."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StatusRecord)


def decode(value: bytes) -> StatusRecord:
    """Decode a record. Raises UndecodableStatus."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodableStatus(str(error)) from error


def clip(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Cut the text to that many bytes of UTF-8 if it is longer."""
    if len(text) * 4 <= bytes_max:
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return text
    return encoded[: bytes_max - 3].decode("utf-8", "ignore") + "…"


def encode_part(part: NodeHeader | TopicStatus | SubscriptionStatus) -> bytes:
    """Encode a header or an entry, for `encode`."""
    return _encoder.encode(part)


def encode(header: bytes, topics: Sequence[bytes], subscriptions: Sequence[bytes]) -> bytes:
    """Encode a record from its encoded parts; adds at most 64 bytes."""
    return _encoder.encode(
        {
            "header": msgspec.Raw(header),
            "topics": list(map(msgspec.Raw, topics)),
            "subscriptions": list(map(msgspec.Raw, subscriptions)),
        }
    )
