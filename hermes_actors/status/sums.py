"""Sums over the nodes of all datacentres, for one topic or subscription. Pure."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from hermes_actors.status.fold import NodeView, StatusFold
from hermes_actors.status.lag import UNKNOWN
from hermes_actors.status.reasons import Code, Reason, because
from hermes_actors.status.record import (
    Flow,
    LastUndelivered,
    Published,
    SubscriptionStatus,
    TopicStatus,
)

T = TypeVar("T", Flow, Published)

_SILENT_S = 3.0
"""A node reports each second; after three seconds of silence it may be slow, or dead."""


class TopicSum(Struct, frozen=True):
    """A topic over all nodes. `counts` are since the nodes' starts, `rates` in thousandths a
    second.

    `is_known` is False while no datacentre's status can be read. `latency_ms` is p50 and p99 of the
    last minute on the slowest node; None if there was no publish.
    """

    is_known: bool
    counts: Published
    rates: Published
    latency_ms: tuple[float, float] | None


class SubscriptionSum(Struct, frozen=True):
    """A subscription over all nodes; `nodes` is how many present nodes consume it.

    `is_whole` is False while some datacentre's status cannot be read: all numbers may be too low
    then. `lag` is -1 if it is unknown for a node, or no node consumes the subscription; `lag_min`
    is the known part. `open_letters` is the sum over the datacentres where it is known; -1 if none.
    `latency_ms` is p50 and p99 of the last minute's pushes on the slowest node.
    """

    is_known: bool
    is_whole: bool
    counts: Flow
    rates: Flow
    lag: int
    lag_min: int
    nodes: int
    open_letters: int
    last_undelivered: LastUndelivered | None
    latency_ms: tuple[float, float] | None


class Ill(Struct, frozen=True):
    """The numbers of unhealthy subscriptions. One that is unhealthy on several nodes counts once,
    as stopped if it is stopped on any of them.
    """

    stopped: int
    failing: int


class ConsumingNode(Struct, frozen=True):
    """A node that consumes a subscription, with the state of the subscription there."""

    view: NodeView
    status: SubscriptionStatus

    @property
    def state(self) -> str:
        """DELIVERING, IDLE, FAILING, STOPPED or UNKNOWN."""
        return "UNKNOWN" if self.view.is_unknown else self.status.state

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons for this state, the cause first."""
        if self.view.is_unknown:
            return (because(Code.LAST_KNOWN, age_s=self.view.age_s),)
        if self.view.age_s >= _SILENT_S:
            return because(Code.SILENT, age_s=self.view.age_s), *self.status.reasons
        return self.status.reasons

    @property
    def is_delivering(self) -> bool:
        """True if nothing prevents delivery there."""
        return self.state in ("DELIVERING", "IDLE")


def topic_sum(fold: StatusFold, topic: str, now_s: float) -> TopicSum:
    """The sum of a topic, without its subscriptions."""
    entries = list(fold.topic(topic, now_s))
    there = [entry for view, entry in entries if view.is_there]
    return TopicSum(
        is_known=_is_known(fold),
        counts=_added(Published(), [entry.counts for _, entry in entries]),
        rates=_added(Published(), [entry.rates for entry in there]),
        latency_ms=_slowest(there),
    )


def delivered_rate(fold: StatusFold, subscriptions: Iterable[str], now_s: float) -> int:
    """The delivery rate of these subscriptions (full names), in thousandths of a message a
    second.
    """
    return sum(
        entry.rates.delivered
        for name in subscriptions
        for view, entry in fold.subscription(name, now_s)
        if view.is_there
    )


def subscription_sum(fold: StatusFold, name: str, now_s: float) -> SubscriptionSum:
    """The sum of a subscription, by full name (`group.topic$name`)."""
    entries = list(fold.subscription(name, now_s))
    there = [entry for view, entry in entries if view.is_there]
    lags = [entry.lag for entry in there]
    is_whole = bool(fold.readings) and not fold.unknown
    undelivered = [each.last_undelivered for each in there if each.last_undelivered is not None]
    return SubscriptionSum(
        is_known=_is_known(fold),
        is_whole=is_whole,
        counts=_added(Flow(), [entry.counts for _, entry in entries]),
        rates=_added(Flow(), [entry.rates for entry in there]),
        lag=UNKNOWN if not is_whole or not lags or UNKNOWN in lags else sum(lags),
        lag_min=sum(lag for lag in lags if lag != UNKNOWN),
        nodes=len(there),
        open_letters=_open_letters(entries),
        last_undelivered=max(undelivered, key=lambda each: each.at_ms, default=None),
        latency_ms=_slowest(there),
    )


def ill(fold: StatusFold, now_s: float) -> Ill:
    """Count the unhealthy subscriptions over all present nodes."""
    names: dict[str, set[str]] = {"STOPPED": set(), "FAILING": set()}
    for view in fold.nodes(now_s):
        header = view.header
        if view.is_there and (header.stopped_subscriptions or header.failing_subscriptions):
            for entry in fold.subscriptions_of(view):
                if entry.state in names:
                    names[entry.state].add(entry.name)
    return Ill(len(names["STOPPED"]), len(names["FAILING"] - names["STOPPED"]))


def places(fold: StatusFold, name: str, now_s: float) -> list[ConsumingNode]:
    """The nodes that consume a subscription and its state there, without nodes that are gone."""
    return [
        ConsumingNode(view, entry)
        for view, entry in fold.subscription(name, now_s)
        if not view.is_gone and not view.header.is_leaving
    ]


def _slowest(
    entries: Sequence[TopicStatus] | Sequence[SubscriptionStatus],
) -> tuple[float, float] | None:
    """The maximum of each quantile; quantiles of several nodes cannot be added."""
    known = [each.latency_ms for each in entries if each.latency_ms is not None]
    if not known:
        return None
    return max(p50_ms for p50_ms, _ in known), max(p99_ms for _, p99_ms in known)


def _open_letters(entries: Sequence[tuple[NodeView, SubscriptionStatus]]) -> int:
    """The open letters of all datacentres; UNKNOWN if none is known. One node reports those of each
    datacentre, or two for a moment when the subscription moves.
    """
    by_dc: dict[str, int] = {}
    for view, entry in entries:
        if view.is_there and entry.open_letters >= 0:
            dc = view.header.dc
            by_dc[dc] = max(by_dc.get(dc, 0), entry.open_letters)
    return sum(by_dc.values()) if by_dc else UNKNOWN


def _is_known(fold: StatusFold) -> bool:
    return any(not reading.trouble for reading in fold.readings.values())


def _added(nothing: T, parts: Sequence[T]) -> T:
    rows = [astuple(nothing), *(astuple(each) for each in parts)]
    return type(nothing)(*map(sum, zip(*rows, strict=True)))
