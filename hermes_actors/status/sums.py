"""Sums over the nodes of all datacentres, for one topic or subscription. Pure."""

from collections.abc import Generator, Iterable, Sequence

import msgspec
from msgspec import Struct

from hermes_actors.model.moments import span
from hermes_actors.status.fold import NodeView, StatusFold
from hermes_actors.status.lag import UNKNOWN
from hermes_actors.status.record import Flow, Published, SubscriptionStatus, TopicStatus

_FAILING_SHARE = 0.1
"""The endpoint takes nothing if it takes at most this share: a rate falls slowly."""

_RECENT_MS = 60_000
"""A failure that is older explains nothing any more."""

_LATELY_MS = 10_000
"""As far back as rates look: what did not come for so long does not come now."""

_JUST_NOW_MS = 3_000
"""A failure of an endpoint that delivers is told of for so long; then it may have recovered."""

_RATE_MIN = 50
"""In thousandths a second: what is lower would be shown as 0.0."""


_IN_A_TURN = 200
"""Entries that are judged between two turns of others."""

_HALF_OPEN = ("SLOW", "HEARTBEAT")
"""The levels at which an endpoint gets single messages, until one succeeds."""


class TopicSum(Struct, frozen=True):
    """A topic over all nodes. `counts` since the nodes' starts, `rates` in thousandths a second.

    `is_known` is False while no datacentre's status can be read. `latency_ms`, p50 and p99 of a
    minute, is that of the slowest node; None when there was no publish.
    """

    is_known: bool
    counts: Published
    rates: Published
    delivered_rate: int
    latency_ms: tuple[float, float] | None


class SubscriptionSum(Struct, frozen=True):
    """A subscription over all nodes; `nodes` how many of those that are there consume it.

    `is_whole` is False while some datacentre's status cannot be read: then there may be more of
    everything. `lag` -1: not known for one of them, or nobody consumes it; `lag_min` is what is
    known of it. `open_letters` are those of all datacentres of which they are known, -1 where that
    is none. `last_undelivered` says why the last message was given up, "" where nobody knows.
    `latency_ms`, p50 and p99 of a minute's pushes, is that of the slowest node; None without any.
    """

    is_known: bool
    is_whole: bool
    counts: Flow
    rates: Flow
    lag: int
    lag_min: int
    nodes: int
    open_letters: int
    last_undelivered: str
    latency_ms: tuple[float, float] | None


class Ill(Struct, frozen=True):
    """The numbers of subscriptions that are not well; one that is so on several nodes counts once,
    and one that is stopped on one of them and fails on another is stopped.
    """

    stopped: int
    failing: int


class ConsumingNode(Struct, frozen=True):
    """One node that consumes a subscription, and how it fares there."""

    view: NodeView
    status: SubscriptionStatus
    state: str
    """DELIVERING, IDLE, FAILING, STOPPED or UNKNOWN."""
    reason: str
    """A sentence for people."""

    @property
    def is_delivering(self) -> bool:
        """True when nothing keeps it from being delivered there."""
        return self.state in ("DELIVERING", "IDLE")


def topic_sum(fold: StatusFold, topic: str, subscriptions: Iterable[str], now_s: float) -> TopicSum:
    """A topic's sum; `subscriptions` are the full names of its subscriptions."""
    entries = list(fold.topic(topic, now_s))
    delivered_rate = sum(
        entry.rates.delivered
        for name in subscriptions
        for view, entry in fold.subscription(name, now_s)
        if view.is_there
    )
    return TopicSum(
        is_known=_is_known(fold),
        counts=_published([entry.counts for _, entry in entries]),
        rates=_published([entry.rates for view, entry in entries if view.is_there]),
        delivered_rate=delivered_rate,
        latency_ms=_slowest([entry for view, entry in entries if view.is_there]),
    )


def subscription_sum(fold: StatusFold, name: str, now_s: float) -> SubscriptionSum:
    """A subscription's sum, by its full name (`group.topic$name`)."""
    entries = list(fold.subscription(name, now_s))
    there = [entry for view, entry in entries if view.is_there]
    lags = [entry.lag for entry in there]
    is_whole = bool(fold.readings) and not fold.unknown
    undelivered = [each.last_undelivered for each in there if each.last_undelivered is not None]
    return SubscriptionSum(
        is_known=_is_known(fold),
        is_whole=is_whole,
        counts=_flow([entry.counts for _, entry in entries]),
        rates=_flow([entry.rates for entry in there]),
        lag=UNKNOWN if not is_whole or not lags or UNKNOWN in lags else sum(lags),
        lag_min=sum(lag for lag in lags if lag != UNKNOWN),
        nodes=len(there),
        open_letters=_open_letters(entries),
        last_undelivered=max(undelivered, key=lambda each: each.at_ms).reason
        if undelivered
        else "",
        latency_ms=_slowest(there),
    )


def _slowest(
    entries: Sequence[TopicStatus] | Sequence[SubscriptionStatus],
) -> tuple[float, float] | None:
    """The highest of each quantile: those of several nodes have no sum."""
    p50_ms = max((each.latency_p50_ms for each in entries), default=-1.0)
    p99_ms = max((each.latency_p99_ms for each in entries), default=-1.0)
    return None if p99_ms < 0 else (p50_ms, p99_ms)


def _open_letters(entries: Sequence[tuple[NodeView, SubscriptionStatus]]) -> int:
    """Sum the open letters of the datacentres, UNKNOWN if none tells: each is told by one node; by
    two for a moment, when it moves.
    """
    by_dc: dict[str, int] = {}
    for view, entry in entries:
        if view.is_there and entry.open_letters >= 0:
            dc = view.header.dc
            by_dc[dc] = max(by_dc.get(dc, 0), entry.open_letters)
    return sum(by_dc.values()) if by_dc else UNKNOWN


def ill(fold: StatusFold, now_s: float) -> Generator[None, None, Ill]:
    """The ill ones over all nodes that are there. It yields each few milliseconds."""
    names: dict[str, set[str]] = {"STOPPED": set(), "FAILING": set()}
    for view in fold.nodes(now_s):
        header = view.header
        if not view.is_there or not (header.stopped_subscriptions or header.failing_subscriptions):
            continue
        for at, entry in enumerate(fold.subscriptions_of(view), 1):
            state, _ = judged(entry, header.written_at_ms)
            if state in names:
                names[state].add(entry.name)
            if at % _IN_A_TURN == 0:
                yield
        yield
    return Ill(len(names["STOPPED"]), len(names["FAILING"] - names["STOPPED"]))


def places(fold: StatusFold, name: str, now_s: float) -> list[ConsumingNode]:
    """Give the nodes that consume a subscription and how it fares there, without gone nodes."""
    return [
        ConsumingNode(view, entry, *_state(view, entry))
        for view, entry in fold.subscription(name, now_s)
        if not view.is_gone and not view.header.is_leaving
    ]


def _state(view: NodeView, entry: SubscriptionStatus) -> tuple[str, str]:
    if view.is_unknown:
        return "UNKNOWN", f"its status of {span(view.age_s)} ago is the last that is known"
    return judged(entry, view.header.written_at_ms)


def judged(entry: SubscriptionStatus, now_ms: int) -> tuple[str, str]:
    """STOPPED, FAILING, DELIVERING, UNKNOWN or IDLE as of `now_ms`, and a sentence on it.

    Where it fails the sentence begins with the failure.
    """
    if entry.why:
        return "STOPPED", entry.why
    if entry.level in _HALF_OPEN:
        return "FAILING", _cause_first(f"{_once(entry.held_back)}{_oldest(entry)}", entry)
    state, reason = _judged(entry, now_ms)
    reason = _once(f"{reason}; {entry.held_back}") if entry.held_back else reason
    return state, _cause_first(reason, entry) if state == "FAILING" else reason


def _cause_first(reason: str, entry: SubscriptionStatus) -> str:
    failure = entry.last_failure
    if not failure:
        return reason
    for form in (f" ({failure})", f": {failure}", f"; {failure}"):
        reason = reason.replace(form, "")
    return f"{failure}; {reason}" if reason and reason != failure else failure


def _once(text: str) -> str:
    """The parts of a sentence, without those that another one tells of already."""
    kept: list[str] = []
    for part in text.split("; "):
        if not any(part in each for each in kept):
            kept = [each for each in kept if each not in part]
            kept.append(part)
    return "; ".join(kept)


def _oldest(entry: SubscriptionStatus) -> str:
    """How long the oldest message waits, where that is worth a word."""
    seconds = entry.oldest_age_ms / 1_000
    return f"; the oldest message that waits is {span(seconds)} old" if seconds >= 1 else ""


def _judged(entry: SubscriptionStatus, now_ms: int) -> tuple[str, str]:
    """How the subscription fares by its figures alone."""
    rates, failure = entry.rates, entry.last_failure
    fails = _fails(entry, now_ms)
    if fails and rates.attempts and _takes_nothing(entry, now_ms):
        return "FAILING", f"the endpoint takes nothing: {failure or 'every attempt fails'}"
    if rates.delivered >= _RATE_MIN:
        failing = rates.attempts - rates.codes_2xx
        has_failed = fails or now_ms - entry.last_failure_at_ms < _JUST_NOW_MS
        is_told = has_failed and failure and failing >= _RATE_MIN
        also = f", and {_per_second(failing)} attempts a second fail: {failure}" if is_told else ""
        return "DELIVERING", f"{_per_second(rates.delivered)} messages a second{also}"
    if entry.waiting_retries or entry.inflight:
        waits = f"{entry.waiting_retries} wait for their time, {entry.inflight} are in flight"
        return ("FAILING", f"{waits}; {failure}") if fails else ("DELIVERING", waits)
    if rates.delivered and entry.lag > 0:
        return "DELIVERING", f"less than {_per_second(2 * _RATE_MIN)} messages a second"
    if entry.lag == UNKNOWN:
        return "UNKNOWN", "nothing is under way; how many messages wait is not known"
    return "IDLE", _idle(entry)


def _idle(entry: SubscriptionStatus) -> str:
    """Say whether nothing is to deliver or nothing passes the filters: that looks alike from
    outside.
    """
    counts, rates = entry.counts, entry.rates
    if rates.filtered and not rates.delivered:
        # A rate looks back over seconds; people ask about minutes.
        a_minute = max(1, round(60 * rates.filtered / 1_000))
        return (
            f"its filters let nothing pass: about {a_minute} messages a minute are filtered out "
            f"now, {counts.filtered} since the node's start"
        )
    nothing = "there is nothing to deliver" if entry.lag == 0 else "nothing is under way"
    if counts.filtered and not counts.delivered and not counts.discarded:
        return f"{nothing}; all {counts.filtered} messages since the node's start were filtered out"
    return nothing


def _fails(entry: SubscriptionStatus, now_ms: int) -> bool:
    """True when there is a failure that no success has followed, or that others still wait after.

    Rates do not say so: they fall for most of a minute after an endpoint has recovered.
    """
    age_ms = now_ms - entry.last_failure_at_ms
    if entry.last_failure_at_ms > entry.last_success_at_ms:
        # The pauses between the retries of what waits may be longer than a failure is recent.
        return entry.waiting_retries > 0 or age_ms < _RECENT_MS
    return entry.waiting_retries > 0 and age_ms < _LATELY_MS


def _takes_nothing(entry: SubscriptionStatus, now_ms: int) -> bool:
    rates, last_ms = entry.rates, entry.last_success_at_ms
    if rates.codes_2xx <= _FAILING_SHARE * rates.attempts:
        return True
    # What it took before it died weighs in the rates for long. 0: an older version does not say.
    return last_ms > 0 and now_ms - last_ms >= _LATELY_MS


def _per_second(thousandths: int) -> str:
    return f"{thousandths / 1_000:.1f}"


def _is_known(fold: StatusFold) -> bool:
    return any(not reading.trouble for reading in fold.readings.values())


def _published(parts: Sequence[Published]) -> Published:
    return Published(*map(sum, zip(*map(msgspec.structs.astuple, parts), strict=True)))


def _flow(parts: Sequence[Flow]) -> Flow:
    return Flow(*map(sum, zip(*map(msgspec.structs.astuple, parts), strict=True)))
