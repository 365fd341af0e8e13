"""The state of nodes, topics and subscriptions, from the nodes' status records."""

from typing import Any

from hermes_actors.management.balancing.placements import Placements
from hermes_actors.management.bodies.views import suspension_shown
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.status.problems import health_of
from hermes_actors.management.status.why import camel, explained, latency_shown, node_shown
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.moments import iso_ms, span
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import in_turns
from hermes_actors.status.figures import Figures, figures
from hermes_actors.status.fold import NodeView, StatusFold
from hermes_actors.status.lag import UNKNOWN
from hermes_actors.status.reasons import Code, Reason, because, sentence, suspended
from hermes_actors.status.record import LastUndelivered
from hermes_actors.status.sums import (
    ConsumingNode,
    SubscriptionSum,
    delivered_rate,
    ill,
    places,
    subscription_sum,
    topic_sum,
)

UNAVAILABLE = "unavailable"
"""Shown in place of a rate while no datacentre's status is known."""

_WORST_FIRST = ("STOPPED", "FAILING", "UNKNOWN", "DELIVERING", "IDLE")
_MAY_BE_WORSE = ("DELIVERING", "IDLE", "ACTIVE", "PENDING")
_RATES = ("timeouts", "other_errors", "codes_2xx", "codes_4xx", "codes_5xx", "retries")
_LEVELS = ("FULL", "ADAPTING", "SLOW", "HEARTBEAT")


class Statuses:
    """The state of the cluster, from the status records.

    Without `fold` (this node follows no status records) everything is unknown and empty.
    """

    def __init__(
        self,
        metadata: Metadata,
        subscriptions: Subscriptions,
        fold: StatusFold | None,
        clock: Clock,
        placements: Placements | None = None,
    ) -> None:
        self._metadata = metadata
        self._placements = placements or Placements(metadata)
        self._subscriptions = subscriptions
        self._fold = fold or StatusFold()
        self._clock = clock

    # Nodes and datacentres.

    async def nodes(self) -> dict[str, Any]:
        """All nodes of all datacentres with their state. Also the datacentres with a known status,
        the numbers of stopped and failing subscriptions, and notices about ownership.
        """
        now_s = self._clock.monotonic_s()
        found = ill(self._fold, now_s)
        return {
            "datacenters": self.datacenters(),
            "stoppedSubscriptions": found.stopped,
            "failingSubscriptions": found.failing,
            "nodes": [self._node(view) for view in self._fold.nodes(now_s)],
            "notices": await in_turns(self._placements.notices_in_steps()),
        }

    async def figures(self) -> dict[str, Figures]:
        """The figures of each datacentre."""
        return await in_turns(figures(self._fold, self._clock.monotonic_s()))

    def datacenters(self) -> list[dict[str, Any]]:
        """All datacentres: is their status known, and if not, why."""
        return [self._datacenter(dc) for dc in self._fold.readings]

    def _datacenter(self, dc: str) -> dict[str, Any]:
        trouble = self._trouble(dc)
        if trouble is None:
            return {"datacenter": dc, "isKnown": True}
        return {"datacenter": dc, "isKnown": False, "reason": sentence(trouble)}

    def _trouble(self, dc: str) -> Reason | None:
        """Why the datacentre's status is not known; None if it is known."""
        reading = self._fold.readings.get(dc)
        if reading is None:
            return because(Code.NOT_FOLLOWED)
        if not reading.trouble:
            return None
        return because(Code.DC_UNKNOWN, dc=dc, at_ms=reading.since_ms, detail=reading.trouble)

    def _node(self, view: NodeView) -> dict[str, Any]:
        header = view.header
        reasons = list(header.reasons)
        trouble = self._trouble(header.dc)
        if trouble is not None:
            reasons.append(sentence(trouble))
        elif view.is_gone and not header.is_leaving:
            reasons.append(f"not heard from for {span(view.age_s)}")
        if header.spooled and not view.is_there and trouble is None:
            reasons.append(f"{header.spooled} messages stay in its spool")
        if view.has_rival:
            reasons.append(f"another process reports as {header.node} too; give each its own name")
        return {
            "datacenter": header.dc,
            "node": header.node,
            "state": _state(view),
            "reasons": reasons,
            "notices": header.notices,
            "ageMs": round(1_000 * view.age_s),
            "roles": header.roles,
            "version": header.version,
            "bootId": header.boot_id,
            "startedAt": header.started_at_ms / 1_000,
            "topics": header.topics,
            "publishedRate": header.published_rate / 1_000,
            "subscriptions": header.subscriptions,
            "stoppedSubscriptions": header.stopped_subscriptions,
            "failingSubscriptions": header.failing_subscriptions,
            "deliveredRate": header.delivered_rate / 1_000,
            "loopLagMs": header.loop_lag_ms,
            "spooledMessages": header.spooled,
            "elsewhereRate": header.elsewhere_rate / 1_000,
            "missedRecords": header.missed,
        }

    # Topics.

    async def topic_metrics(self, topic: str) -> dict[str, Any]:
        """A topic's metrics in Hermes' format. Of an unknown topic the rates are unavailable.

        Not in Hermes: the latency of publishing, and `datacenters`.
        """
        now_s = self._clock.monotonic_s()
        found = topic_sum(self._fold, topic, now_s)
        live = self._metadata.catalog.topics.get(topic)
        subscriptions = [] if live is None else self._metadata.catalog.subscriptions_of(live.name)
        delivered = delivered_rate(self._fold, [str(each.name) for each in subscriptions], now_s)
        is_known = found.is_known and live is not None
        return {
            "published": found.counts.messages,
            "volume": found.counts.size_bytes,
            "rate": _rate(found.rates.messages, is_known),
            "deliveryRate": _rate(delivered, is_known),
            "throughput": _rate(found.rates.size_bytes, is_known),
            "subscriptions": len(subscriptions),
            **latency_shown(found.latency_ms),
            "datacenters": self.datacenters(),
        }

    def topic_summary(self, topic: str) -> dict[str, Any]:
        """The rates of publishing to a topic in all datacentres, per second, as one row."""
        found = topic_sum(self._fold, topic, self._clock.monotonic_s())
        rates = found.rates
        return {
            "topicName": topic,
            "isKnown": found.is_known,
            "rate": rates.messages / 1_000,
            "throughput": rates.size_bytes / 1_000,
            "rejectedRate": rates.rejected / 1_000,
            "failedRate": rates.failed / 1_000,
        }

    # Subscriptions.

    async def subscription_metrics(self, topic: str, name: str) -> dict[str, Any]:
        """A subscription's metrics in Hermes' format. Raises Refused.

        Not in Hermes: the latency of pushes, and `datacenters`.
        """
        found = self._sum(topic, name)
        rates, is_known = found.rates, found.is_known
        return {
            **_counters(found),
            **{camel(each): _rate(getattr(rates, each), is_known) for each in _RATES},
            "lag": str(found.lag),
            "rate": _rate(rates.delivered, is_known),
            "throughput": _rate(rates.size_bytes, is_known),
            "batchRate": _rate(rates.batches, is_known),
            **latency_shown(found.latency_ms),
            "datacenters": self.datacenters(),
        }

    async def subscription_counters(self, topic: str, name: str) -> dict[str, Any]:
        """A subscription's counters. Raises Refused."""
        return _counters(self._sum(topic, name))

    def last_undelivered(self, name: str) -> tuple[str, LastUndelivered] | None:
        """The datacentre and the last undelivered message of `group.topic$subscription`, from the
        status of its consumers. None if they report none.
        """
        found = [
            (place.view.header.dc, place.status.last_undelivered)
            for place in places(self._fold, name, self._clock.monotonic_s())
            if place.status.last_undelivered is not None
        ]
        return max(found, key=lambda each: (each[1].at_ms, each[0]), default=None)

    def dead_letters(self, topic: str, name: str) -> dict[str, Any]:
        """The number of open dead letters that consumers report, and the newest with its reason.

        Raises Refused.
        """
        found = self._sum(topic, name)
        answer: dict[str, Any] = {
            "open": max(0, found.open_letters),
            "isComplete": found.is_whole and found.open_letters != UNKNOWN,
        }
        last = found.last_undelivered
        if found.open_letters > 0 and last is not None:
            answer["newest"] = {"discardedAt": iso_ms(last.at_ms), "reason": last.reason}
        return {"deadLetters": answer}

    async def health(self, topic: str, name: str) -> dict[str, Any]:
        """HEALTHY, UNHEALTHY with its problems, or NO_DATA. Raises Refused."""
        row = self.summary(self._subscriptions.live(topic, name))
        return {"status": row["health"], "problems": row["problems"]}

    async def why(self, topic: str, name: str) -> dict[str, Any]:
        """For each datacentre and node: is the subscription delivered there, and if not, why.

        Raises Refused.
        """
        live = self._subscriptions.live(topic, name)
        found: dict[str, list[ConsumingNode]] = {dc: [] for dc in self._fold.readings}
        for place in places(self._fold, str(live.name), self._clock.monotonic_s()):
            found.setdefault(place.view.header.dc, []).append(place)
        return {
            "topic": topic,
            "subscription": name,
            "state": live.state.value,
            **suspension_shown(live.suspension),
            "datacenters": [
                {
                    **self._datacenter(dc),
                    "isDelivering": any(place.is_delivering for place in found[dc]),
                    **(explained(self._reasons(dc, live)) if self._is_unsaid(dc, found) else {}),
                    "nodes": [node_shown(place, live) for place in found[dc]],
                }
                for dc in sorted(found)
            ],
        }

    def _is_unsaid(self, dc: str, found: dict[str, list[ConsumingNode]]) -> bool:
        return not found[dc] or self._trouble(dc) is not None

    def _reasons(self, dc: str, live: LiveSubscription) -> tuple[Reason, ...]:
        """Why no node of the datacentre reports the subscription."""
        if (trouble := self._trouble(dc)) is not None:
            return (trouble,)
        if missing := self._placements.missing(dc, str(live.name)):
            return (because(Code.NO_ROOM, dc=dc, detail=missing),)
        nodes = ", ".join(
            view.header.node
            for view in self._fold.nodes(self._clock.monotonic_s())
            if view.header.dc == dc and view.is_there and "consumers" in view.header.roles
        )
        if not nodes:
            return (because(Code.NO_CONSUMERS, dc=dc),)
        return (because(Code.NOBODY_RUNS, dc=dc, nodes=nodes),)

    def topic_rate(self, topic: str) -> int:
        """The rate of publishing, in thousandths of a message per second."""
        return topic_sum(self._fold, topic, self._clock.monotonic_s()).rates.messages

    def summary(self, live: LiveSubscription, topic_rate: int | None = None) -> dict[str, Any]:
        """The state of a subscription in all datacentres, as one row. `topic_rate`: the result of
        that method, if it is known.
        """
        now_s, name = self._clock.monotonic_s(), str(live.name)
        found, here = subscription_sum(self._fold, name, now_s), places(self._fold, name, now_s)
        missing = {}
        if live.state is not SubscriptionState.SUSPENDED:
            missing = self._placements.all_missing(name)
        if topic_rate is None:
            topic_rate = self.topic_rate(str(live.name.topic))
        health = health_of(live, found, here, topic_rate, missing)
        condition, reasons = self._condition(live, here, missing)
        if not found.is_whole and condition in _MAY_BE_WORSE:
            troubles = [trouble for dc in self._fold.unknown if (trouble := self._trouble(dc))]
            condition, reasons = "UNKNOWN", (*(troubles or [because(Code.NOT_FOLLOWED)]), *reasons)
        shown = {
            "topicName": str(live.name.topic),
            "name": live.name.name,
            "state": live.state.value,
            "isKnown": found.is_whole,
            "condition": condition,
            **suspension_shown(live.suspension),
            **explained(tuple(reasons)),
            "health": health.status,
            "severity": live.subscription.monitoring_details.severity,
            "problems": health.problems,
            "rate": found.rates.delivered / 1_000,
            "lag": found.lag,
            "oldestAgeMs": max((each.status.oldest_age_ms for each in here), default=0),
            "inflight": sum(each.status.inflight for each in here),
            "waitingRetries": sum(each.status.waiting_retries for each in here),
            "discarded": found.counts.discarded,
            "deadLetters": found.counts.dead_letters,
            "openDeadLetters": found.open_letters,
        }
        levels = {each.status.level for each in here} & set(_LEVELS)
        if levels:
            shown["rateLevel"] = max(levels, key=_LEVELS.index)
        last = max(here, key=lambda each: each.status.last_failure_at_ms, default=None)
        if last is not None and last.status.last_failure:
            shown["lastFailure"] = last.status.last_failure
            shown["lastFailureAt"] = last.status.last_failure_at_ms / 1_000
        return shown

    def _condition(
        self, live: LiveSubscription, here: list[ConsumingNode], missing: dict[str, str]
    ) -> tuple[str, tuple[Reason, ...]]:
        """The worst state of its nodes, or its own state if no node reports it; with reasons."""
        if live.state is SubscriptionState.SUSPENDED:
            return "SUSPENDED", (suspended(live.suspension),)
        if missing:
            return "STOPPED", tuple(
                because(Code.NO_ROOM, dc=dc, detail=detail) for dc, detail in missing.items()
            )
        if not here:
            return live.state.value, ()
        worst = min(here, key=lambda each: _WORST_FIRST.index(each.state))
        return worst.state, worst.reasons

    def _sum(self, topic: str, name: str) -> SubscriptionSum:
        live = self._subscriptions.live(topic, name)
        return subscription_sum(self._fold, str(live.name), self._clock.monotonic_s())


def _state(view: NodeView) -> str:
    if view.header.is_leaving:
        return "LEFT"
    if view.is_unknown:
        return "UNKNOWN"
    if view.is_gone:
        return "GONE"
    return "NOT_READY" if view.header.reasons else "READY"


def _counters(found: SubscriptionSum) -> dict[str, Any]:
    counts = found.counts
    return {
        "delivered": counts.delivered,
        "discarded": counts.discarded,
        "volume": counts.size_bytes,
    }


def _rate(thousandths: int, is_known: bool) -> str:
    return str(thousandths / 1_000) if is_known else UNAVAILABLE
