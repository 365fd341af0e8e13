"""The health of a subscription, and its problems with Hermes' codes. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import Subscription, SubscriptionState
from hermes_actors.status.reasons import Code, Reason, because, sentences, suspended
from hermes_actors.status.sums import ConsumingNode, SubscriptionSum

_LAG_MAX_S = 600
_RATE_MIN = 2_000
"""In thousandths of a message per second. Below this rate, shares of failures are not judged."""

_NAMED_MAX = 3

_CODES = {
    "5": "MALFUNCTIONING",
    "4": "RECEIVING_MALFORMED_MESSAGES",
    "timeout": "TIMING_OUT",
    "idle": "TIMING_OUT",
}
"""Hermes' codes by the first digit of the failure's status, or its kind if there was no answer."""


class SubscriptionHealth(Struct, frozen=True):
    """HEALTHY, UNHEALTHY or NO_DATA. Each problem has one of Hermes' codes and a description."""

    status: str
    problems: Sequence[dict[str, Any]] = ()


def health_of(
    live: LiveSubscription,
    found: SubscriptionSum,
    where: Sequence[ConsumingNode],
    topic_rate: int,
    missing: Mapping[str, str],
) -> SubscriptionHealth:
    """Judge a subscription by its status in all datacentres.

    `topic_rate`: the rate of publishing, in thousandths of a message per second. `missing`: the
    reason for each datacentre where no node can own it.

    A subscription that a person has suspended is healthy until messages wait; one that the broker
    has suspended is unhealthy. With any problem it is UNHEALTHY. Otherwise it is NO_DATA if a
    datacentre's status is unknown, or if no node reports it.
    """
    problems: list[dict[str, Any]] = []
    if live.state is SubscriptionState.SUSPENDED:
        is_by_broker = live.suspension is not None and bool(live.suspension.reason)
        waits = [because(Code.WAITS, count=found.lag_min)] if found.lag_min > 0 else []
        if is_by_broker or waits:
            code = "UNREACHABLE" if is_by_broker else "LAGGING"
            problems.append(_problem(code, suspended(live.suspension), *waits))
        problems += _open_letters(found)
        return SubscriptionHealth("UNHEALTHY" if problems else "HEALTHY", problems)
    problems += [
        _problem("LAGGING", because(Code.NO_ROOM, dc=dc, detail=detail))
        for dc, detail in missing.items()
    ]
    problems += problems_of(found, where, topic_rate, live.subscription)
    if problems:
        return SubscriptionHealth("UNHEALTHY", problems)
    return SubscriptionHealth("HEALTHY" if found.is_whole and found.nodes else "NO_DATA")


def problems_of(
    found: SubscriptionSum,
    where: Sequence[ConsumingNode],
    topic_rate: int,
    subscription: Subscription,
) -> list[dict[str, Any]]:
    """The problems by Hermes' indicators and limits; but failures are a share of all attempts, not
    of the successes.

    `topic_rate`: the rate of publishing, in thousandths of a message per second. Without such a
    problem, nodes where the subscription is stopped or failing are the problem. Open dead letters
    are a further problem.
    """
    failing = [place.status for place in where if place.status.last_failure]
    last = max(failing, key=lambda each: each.last_failure_at_ms, default=None)
    cause = [] if last is None else [because(Code.FAILS, failure=last.last_failure)]
    problems = _by_hermes_limits(found, topic_rate, subscription, cause) or _by_state(where)
    return problems + _open_letters(found)


def _open_letters(found: SubscriptionSum) -> list[dict[str, Any]]:
    if found.open_letters <= 0:
        return []
    said = [because(Code.LETTERS_OPEN, count=found.open_letters)]
    if found.last_undelivered is not None:
        said.append(because(Code.LETTER_CAUSE, detail=found.last_undelivered.reason))
    # Hermes has no code for dead letters; this is the nearest one that its console knows.
    return [_problem("RECEIVING_MALFORMED_MESSAGES", *said)]


def _problem(code: str, *reasons: Reason, where: str = "") -> dict[str, Any]:
    return {"code": code, "description": sentences(reasons) + where}


def _by_state(where: Sequence[ConsumingNode]) -> list[dict[str, Any]]:
    """A problem for each cause, with the nodes that have it."""
    alike: dict[tuple[str, ...], list[ConsumingNode]] = {}
    for place in where:
        if place.state in ("STOPPED", "FAILING"):
            codes = [each.code for each in place.reasons]
            key = (place.state, place.status.last_failure_kind, *codes)
            alike.setdefault(key, []).append(place)
    return [
        _problem(_code(state, kind), *places[0].reasons, where=f" (on {_on(places)})")
        for (state, kind, *_), places in alike.items()
    ]


def _on(places: Sequence[ConsumingNode]) -> str:
    """The nodes with their datacentres, at most _NAMED_MAX by name."""
    names = [f"{place.view.header.dc} {place.view.header.node}" for place in places]
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _code(state: str, kind: str) -> str:
    """The nearest of Hermes' codes."""
    if state == "STOPPED":
        return "LAGGING"
    return _CODES.get(kind[:1] if kind.isdecimal() else kind, "UNREACHABLE")


def _by_hermes_limits(
    found: SubscriptionSum, topic_rate: int, subscription: Subscription, cause: list[Reason]
) -> list[dict[str, Any]]:
    rates, attempts = found.rates, found.rates.attempts
    problems = []
    topic_rate = max(topic_rate, _RATE_MIN)
    if found.lag_min * 1_000 > _LAG_MAX_S * topic_rate:
        lags = because(Code.LAGS, count=found.lag_min, limit=_LAG_MAX_S, rate=topic_rate / 1_000)
        problems.append(_problem("LAGGING", lags))
    if attempts < _RATE_MIN:
        return problems
    codes_4xx = rates.codes_4xx if subscription.subscription_policy.retry_client_errors else 0
    for code, rate, share_max, outcome in (
        ("UNREACHABLE", rates.other_errors, 0.5, "no answer"),
        ("TIMING_OUT", rates.timeouts, 0.1, "a time-out"),
        ("MALFUNCTIONING", rates.codes_5xx, 0.1, "5xx"),
        ("RECEIVING_MALFORMED_MESSAGES", codes_4xx, 0.1, "4xx"),
    ):
        if rate > share_max * attempts:
            share = because(
                Code.TOO_MANY_FAIL, rate=rate / 1_000, attempts=attempts / 1_000, outcome=outcome
            )
            problems.append(_problem(code, share, *cause))
    return problems
