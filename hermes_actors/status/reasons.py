"""The reasons for a subscription's state: a fixed set of codes, each with one sentence.

A reason is created where its cause occurs, is sent as a code with parameters, and becomes a
sentence here.
"""

from collections.abc import Iterable
from enum import Enum, unique
from typing import Any

from msgspec import Struct

from hermes_actors.metadata.bodies import Suspension
from hermes_actors.model.moments import iso_ms, span


@unique
class Code(Enum):
    """All reasons with their sentences. A parameter `…_s` is a duration, `…_ms` a point in time."""

    # Nothing is delivered.
    STARTING = "it is starting"
    STOPPING = "it is stopping"
    SUSPENDED = "suspended since {at_ms} by {by}"
    SUSPENDED_BY_BROKER = "the broker has suspended it: {detail}"
    NOT_CONSUMABLE = "it cannot be consumed as configured: {detail}"
    CRASHED = "its consumer failed and restarts: {detail}"
    LOG_AWAY = "the log cannot be read: {detail}"
    NO_TOPIC = "the log has no topic {topic}"
    PARTITIONS_AWAY = "partitions {partitions} cannot be read: {detail}"
    RETRIES_FULL = (
        "reading has stopped: {count} messages wait for a retry, for an earlier message of their "
        "key or for their dead letter, the maximum (consumers.waiting_retries_max)"
    )
    BYTES_FULL = (
        "reading has stopped: messages of {bytes} bytes are buffered, the "
        "maximum (consumers.buffered_bytes_max)"
    )
    SPAN_FULL = (
        "reading of partitions {partitions} has stopped: each has an unsettled message {offsets} "
        "offsets back, the maximum (consumers.unsettled_span_max)"
    )
    PARTITIONS_NEW = "partitions {partitions} were added to the topic and are not read yet"
    LETTERS_WAIT = "{count} dead letters wait for {topic}: {detail}"
    NO_ROOM = "{dc}: no node runs it: {detail}"
    NOBODY_RUNS = (
        "none of the consuming nodes of {dc} ({nodes}) runs it: it is about to start, or they wait "
        "for its partitions to become free"
    )
    NO_CONSUMERS = "no node of {dc} with the role consumers is there"

    # Less is delivered than possible.
    PAUSED = (
        "paused: this node has not seen its own heartbeat in the coordination log for 2 s, and "
        "other nodes may have taken its place"
    )
    UNAUTHORIZED = "{detail}"
    RATE_LOWERED = "the rate is down to {rate} of {rate_max} messages a second for {for_s}"
    ONE_A_SECOND = "one message a second until one succeeds, for {for_s}"
    ONE_A_MINUTE = (
        "one message a minute until one succeeds, for {for_s}, and one as soon as the endpoint "
        "takes a connection"
    )
    ALL_REQUESTS_OPEN = "all {count} of its concurrent requests are open (inflightSize)"
    ALL_OUT = "clients have {count} unacknowledged messages, the maximum (inflightSize)"
    NO_CLIENT = "messages wait, and no client has pulled for {for_s}"
    RATE_ELSEWHERE = "another node uses its share of the rate for some seconds yet"
    RATE_USED = "its rate of {rate} messages a second is used up"
    SHARE_USED = "its share of the rate, {rate} of {rate_max} messages a second, is used up"
    KEYS_WAIT = "{count} messages wait for an earlier one of their key"
    BATCH_FILLS = "{count} of {size} messages of a batch are there; it is sent within {wait_s}"
    BATCH_WAITS = "a batch of {count} messages waits for attempt {attempt}, due in {wait_s}"
    REDRIVE_WAITS = "its re-drive waits: {detail}"
    FILTERS_FAILED = "left out because a filter failed: {count}, the last at {at_ms}: {detail}"
    FILTERS_SLOW = "given up because filters took too long: {count}, the last at {at_ms}: {detail}"
    AVRO_UNREADABLE = "given up as unreadable Avro: {count}, the last at {at_ms}: {detail}"
    AVRO_WAITS = "put off while their Avro cannot be read: {count}, the last at {at_ms}: {detail}"

    # From its figures.
    FAILS = "pushes fail: {failure}"
    DELIVERS = "{rate} messages a second are delivered"
    DELIVERS_FEW = "less than 0.1 messages a second are delivered"
    SOME_FAIL = "{rate} attempts a second fail: {failure}"
    UNSETTLED = "{inflight} in flight, {waiting} waiting for a retry, the oldest {oldest_s} old"
    IDLE = "there is nothing to deliver"
    QUIET = "nothing is under way"
    LAG_UNKNOWN = "nothing is under way; how many messages wait is not known"
    FILTERED_OUT = (
        "its filters let nothing pass: about {per_minute} messages a minute are filtered out, "
        "{count} since the node's start"
    )
    ALL_FILTERED = "all {count} messages since the node's start were filtered out"

    # Unknown states.
    LAST_KNOWN = "its last known status is {age_s} old"
    SILENT = "its node has not been heard from for {age_s}"
    DC_UNKNOWN = "status of {dc} unknown since {at_ms}: {detail}"
    NOT_FOLLOWED = "no node's status is followed"

    # Details.
    SHARE = "this node may send {rate} of the subscription's {rate_max} messages a second"
    FILTERED = "its filters have left out {count} messages"
    LATENCY = "last minute's pushes: median {p50} ms, 99th percentile {p99} ms"
    LAST_FAILURE = "last failure {at_ms}, at attempt {attempt} of its message: {failure}"
    LAST_SUCCESS = "last success {at_ms}"
    NO_SUCCESS = "no success on this node"
    RAISE_TIMEOUT = (
        "subscriptionPolicy.requestTimeout gives the endpoint {timeout} ms to answer: raise it, or "
        "have the endpoint answer sooner"
    )
    NO_HTTP2 = (
        "http2Enabled is on, and an endpoint that speaks HTTP/1.1 only fails like this: turn it "
        "off, or have the endpoint speak HTTP/2"
    )

    # Problems that Hermes does not report.
    WAITS = "messages that wait: {count}"
    LAGS = "{count} messages wait, more than {limit} s of the topic's {rate} messages a second"
    TOO_MANY_FAIL = "{rate} of {attempts} attempts a second end with {outcome}"
    LETTERS_OPEN = "dead letters to re-drive or expire ('hermes dlq'): {count}"
    LETTER_CAUSE = "the last message was given up for {detail}"


_STOPS = frozenset(
    code.name
    for code in (
        Code.STARTING,
        Code.STOPPING,
        Code.SUSPENDED,
        Code.SUSPENDED_BY_BROKER,
        Code.NOT_CONSUMABLE,
        Code.CRASHED,
        Code.LOG_AWAY,
        Code.NO_TOPIC,
        Code.PARTITIONS_AWAY,
        Code.RETRIES_FULL,
        Code.BYTES_FULL,
        Code.SPAN_FULL,
        Code.LETTERS_WAIT,
    )
)


class Reason(Struct, frozen=True, array_like=True):
    """A code of Code, or of a newer version, and its parameters."""

    code: str
    params: dict[str, str | int | float] = {}

    @property
    def is_stop(self) -> bool:
        """True if nothing is delivered on the node because of it."""
        return self.code in _STOPS


def because(code: Code, **params: str | float) -> Reason:
    """Make a reason."""
    return Reason(code.name, params)


def suspended(found: Suspension | None) -> Reason:
    """The reason of a subscription that is suspended. None: it is not known since when."""
    if found is None:
        return because(Code.SUSPENDED)
    if found.reason:
        return because(Code.SUSPENDED_BY_BROKER, detail=found.reason)
    return because(Code.SUSPENDED, at_ms=found.at_ms, by=found.by)


class _Shown(dict[str, str]):
    def __missing__(self, _name: str) -> str:
        return "?"


def sentence(reason: Reason) -> str:
    """The reason in plain English; the code itself if it is unknown here."""
    code = Code.__members__.get(reason.code)
    if code is None:
        return f"{reason.code} {reason.params or ''}".strip()
    return code.value.format_map(_Shown({k: _shown(k, v) for k, v in reason.params.items()}))


def sentences(reasons: Iterable[Reason]) -> str:
    """All reasons in one line."""
    return "; ".join(map(sentence, reasons))


def as_json(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    """Each reason as management shows it: code, parameters and sentence."""
    return [{"code": each.code, "params": each.params, "text": sentence(each)} for each in reasons]


def _shown(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    if name.endswith("_s"):
        return span(value)
    if name.endswith("_ms"):
        return iso_ms(int(value), "seconds")
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < value < 1 else f"{value:.1f}"
    return str(value)
