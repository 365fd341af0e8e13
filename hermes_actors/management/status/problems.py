"""Whether a subscription is healthy, and its problems under Hermes' codes. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import Subscription, SubscriptionState
from hermes_actors.status.sums import ConsumingNode, SubscriptionSum

_LAG_MAX_S = 600
_RATE_MIN = 2_000
"""In thousandths a second: below this a share of failures says nothing."""

_NAMED_MAX = 3
_FIGURES = re.compile(r"[0-9.]+ ?(?:s|min|h|d)?\b")

_CODES = (
    ("HTTP 5", "MALFUNCTIONING"),
    ("HTTP 4", "RECEIVING_MALFORMED_MESSAGES"),
    ("timeout", "TIMING_OUT"),
    ("idle", "TIMING_OUT"),
)


class SubscriptionHealth(Struct, frozen=True):
    """HEALTHY, UNHEALTHY with its problems, each a code of Hermes' and a description, or NO_DATA
    where nobody can tell.
    """

    status: str
    problems: Sequence[dict[str, Any]] = ()


def health_of(
    live: LiveSubscription,
    found: SubscriptionSum,
    where: Sequence[ConsumingNode],
    topic_rate: int,
    missing: Mapping[str, str],
) -> SubscriptionHealth:
    """Judge a subscription by what all datacentres tell of it.

    `topic_rate` is what is published, in thousandths of a message a second; `missing` says of
    datacentres where no node is to have it why not. What somebody has suspended is healthy, what
    the broker has suspended is not. Any problem outweighs what is not known; without one, a
    datacentre that cannot be read, and a subscription that nobody tells of, is NO_DATA.
    """
    is_suspended = live.state is SubscriptionState.SUSPENDED
    if is_suspended and not live.suspension:
        return SubscriptionHealth("HEALTHY")
    problems: list[dict[str, Any]] = []
    if live.suspension:
        problems.append({"code": "UNREACHABLE", "description": live.suspension})
    if not is_suspended:
        problems += [
            {"code": "LAGGING", "description": f"{dc}: nobody runs it: {reason}"}
            for dc, reason in missing.items()
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
    """Hermes' indicators with its limits; shares are of the attempts, not of the successes.

    `topic_rate` is what is published, in thousandths of a message a second. Where none of them
    speaks, a subscription that is stopped or whose endpoint takes nothing has a problem all the
    same, however few attempts a second are made of it; nodes that tell the same have one together.
    Dead letters that nobody has settled are one more.
    """
    problems = _by_hermes_limits(found, topic_rate, subscription) or _by_state(where)
    return problems + _of_letters(found)


def _of_letters(found: SubscriptionSum) -> list[dict[str, Any]]:
    count = found.open_letters
    if count <= 0:
        return []
    # Of those of an earlier life of the node only the letters themselves say why.
    last = found.last_undelivered
    why = f", the last one for {last}" if last else ""
    are = "1 dead letter is" if count == 1 else f"{count} dead letters are"
    # Hermes has no code for it; this is what its consoles know that is nearest.
    return [
        {
            "code": "RECEIVING_MALFORMED_MESSAGES",
            "description": f"{are} open{why}: re-drive or expire them ('hermes dlq')",
        }
    ]


def _by_state(where: Sequence[ConsumingNode]) -> list[dict[str, Any]]:
    alike: dict[tuple[str, str, str], list[ConsumingNode]] = {}
    for place in where:
        if place.state in ("STOPPED", "FAILING"):
            # What differs in figures alone is one problem.
            failure = place.status.last_failure
            kind = _FIGURES.sub("#", place.reason.replace(failure, ""))
            alike.setdefault((place.state, failure, kind), []).append(place)
    return [
        {"code": _code(state, failure), "description": f"{places[0].reason} (on {_on(places)})"}
        for (state, failure, _), places in alike.items()
    ]


def _on(places: Sequence[ConsumingNode]) -> str:
    """The nodes, each with its datacentre; of many the first ones."""
    names = [f"{place.view.header.dc} {place.view.header.node}" for place in places]
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _code(state: str, failure: str) -> str:
    """The code of Hermes' that says most nearly the same."""
    if state == "STOPPED":
        return "LAGGING"
    for start, code in _CODES:
        if failure.startswith(start):
            return code
    return "UNREACHABLE"


def _by_hermes_limits(
    found: SubscriptionSum, topic_rate: int, subscription: Subscription
) -> list[dict[str, Any]]:
    rates, attempts = found.rates, found.rates.attempts
    problems = []

    def add(code: str, description: str) -> None:
        problems.append({"code": code, "description": description})

    topic_rate = max(topic_rate, _RATE_MIN)
    if found.lag_min * 1_000 > _LAG_MAX_S * topic_rate:
        add(
            "LAGGING",
            f"{found.lag_min} messages wait, more than {_LAG_MAX_S} s of the topic's "
            f"{topic_rate / 1_000:.1f} messages a second",
        )
    if attempts < _RATE_MIN:
        return problems
    policy = subscription.subscription_policy
    retries_client_errors = policy.retry_client_errors
    for code, rate, share_max, what in (
        ("UNREACHABLE", rates.other_errors, 0.5, "get no answer"),
        ("TIMING_OUT", rates.timeouts, 0.1, "time out"),
        ("MALFUNCTIONING", rates.codes_5xx, 0.1, "are answered with 5xx"),
        (
            "RECEIVING_MALFORMED_MESSAGES",
            rates.codes_4xx if retries_client_errors else 0,
            0.1,
            "are answered with 4xx",
        ),
    ):
        if rate > share_max * attempts:
            add(
                code,
                f"{rate / 1_000:.1f} of {attempts / 1_000:.1f} attempts a second {what}",
            )
    return problems
