"""The JSON of one node that consumes a subscription: state, reasons, figures and hints. Pure."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict

from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import DeliveryType, SerialPolicy
from hermes_actors.status.judging import unsettled_of
from hermes_actors.status.reasons import Code, Reason, as_json, because, sentences
from hermes_actors.status.sums import ConsumingNode

_NO_HTTP2 = ("malformed", "connect")
"""The kinds of failure of a push to an endpoint without HTTP/2."""


def explained(reasons: tuple[Reason, ...]) -> dict[str, Any]:
    """Reasons as JSON fields: `reason` in one line for people, `reasons` for programs."""
    return {"reason": sentences(reasons), "reasons": as_json(reasons)}


def node_shown(place: ConsumingNode, live: LiveSubscription) -> dict[str, Any]:
    """The node's JSON object: state, reasons, details and figures."""
    status = place.status
    shown = {
        "node": place.view.header.node,
        "state": place.state,
        "isDelivering": place.is_delivering,
        **explained(place.reasons),
        "details": as_json(details(place, live)),
        "heardAgoMs": round(1_000 * place.view.age_s),
        "rate": status.rates.delivered / 1_000,
        "lag": status.lag,
        "oldestAgeMs": status.oldest_age_ms,
        "inflight": status.inflight,
        "waitingRetries": status.waiting_retries,
        **{camel(name): count for name, count in asdict(status.counts).items()},
        **latency_shown(status.latency_ms),
    }
    if status.level:
        shown |= {
            "rateLevel": status.level,
            "rateNow": status.rate_now,
        }
        if (rate_max := _rate_max(live)) is not None:
            shown["rateMax"] = rate_max
    if status.open_letters >= 0:
        shown["openDeadLetters"] = status.open_letters
    if status.last_success_at_ms:
        shown["lastSuccessAt"] = status.last_success_at_ms / 1_000
    if status.last_failure:
        shown |= {
            "lastFailure": status.last_failure,
            "lastFailureAt": status.last_failure_at_ms / 1_000,
            "lastFailureAttempt": status.last_attempts,
        }
    return shown


def details(place: ConsumingNode, live: LiveSubscription) -> Iterator[Reason]:
    """Yield further facts about the node, and hints if it fails."""
    status, told = place.status, {each.code for each in place.reasons}
    rate_max, rate = _rate_max(live), status.rate_now
    if status.level == "FULL" and rate_max is not None and rate < 0.995 * rate_max:
        yield because(Code.SHARE, rate=rate, rate_max=rate_max)
    if Code.UNSETTLED.name not in told:
        yield from unsettled_of(status)
    if status.counts.filtered and not {Code.FILTERED_OUT.name, Code.ALL_FILTERED.name} & told:
        yield because(Code.FILTERED, count=status.counts.filtered)
    if status.latency_ms is not None:
        p50_ms, p99_ms = status.latency_ms
        yield because(Code.LATENCY, p50=p50_ms, p99=p99_ms)
    if status.last_failure:
        yield because(
            Code.LAST_FAILURE,
            at_ms=status.last_failure_at_ms,
            attempt=status.last_attempts,
            failure=status.last_failure,
        )
        if status.last_success_at_ms:
            yield because(Code.LAST_SUCCESS, at_ms=status.last_success_at_ms)
        else:
            yield because(Code.NO_SUCCESS)
    if not place.is_delivering:
        yield from _hint(status.last_failure_kind, live)


def camel(name: str) -> str:
    """The name of a field in JSON: snake_case becomes camelCase."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def latency_shown(latency_ms: tuple[float, float] | None) -> dict[str, Any]:
    """The p50 and p99 latency of the last minute. Empty without data."""
    if latency_ms is None:
        return {}
    p50_ms, p99_ms = latency_ms
    return {"latencyMs": {"p50": p50_ms, "p99": p99_ms}}


def _hint(failure: str, live: LiveSubscription) -> Iterator[Reason]:
    if failure == "timeout" and live.subscription.delivery_type is not DeliveryType.PULL:
        policy = live.subscription.subscription_policy
        yield because(Code.RAISE_TIMEOUT, timeout=policy.request_timeout)
    if live.subscription.http2_enabled and failure in _NO_HTTP2:
        yield because(Code.NO_HTTP2)


def _rate_max(live: LiveSubscription) -> int | None:
    """The maximum pushes per second of all nodes in a datacentre together; None if unlimited."""
    policy = live.subscription.subscription_policy
    if live.subscription.delivery_type is DeliveryType.PULL:
        return None
    return policy.rate if isinstance(policy, SerialPolicy) else policy.message_rate
