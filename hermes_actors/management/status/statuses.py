"""How nodes, topics and subscriptions fare, from the nodes' status records; changes nothing."""

from typing import Any

from hermes_actors.management.balancing.placements import Placements
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.status.problems import health_of
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.moments import iso_ms, span
from hermes_actors.model.subscription import SerialPolicy, SubscriptionState
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import in_turns
from hermes_actors.status.fold import GONE_AFTER_S, NodeView, StatusFold
from hermes_actors.status.record import LastUndelivered
from hermes_actors.status.sums import (
    ConsumingNode,
    SubscriptionSum,
    TopicSum,
    ill,
    places,
    subscription_sum,
    topic_sum,
)

UNAVAILABLE = "unavailable"
"""The rate that is shown while no datacentre's status can be read."""

_WORST_FIRST = ("STOPPED", "FAILING", "UNKNOWN", "DELIVERING", "IDLE")
_MAY_BE_WORSE = ("DELIVERING", "IDLE", "ACTIVE", "PENDING")
_LEVELS = ("FULL", "ADAPTING", "SLOW", "HEARTBEAT")
_KNOWN = frozenset(_LEVELS)


class Statuses:
    """The state of the cluster by the status records. All methods are trio coroutines.

    Without `fold` (a node that follows no status) nothing is known and everything is empty.
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

    async def nodes(self) -> dict[str, Any]:
        """All nodes of all datacentres, whether each datacentre's status is known, how many
        different subscriptions are ill on nodes that are there, and what is to be noticed of who
        runs what.
        """
        now_s = self._clock.monotonic_s()
        found = await in_turns(ill(self._fold, now_s))
        return {
            "datacenters": self.datacenters(),
            "stoppedSubscriptions": found.stopped,
            "failingSubscriptions": found.failing,
            "nodes": [self._node(view) for view in self._fold.nodes(now_s)],
            "notices": await in_turns(self._placements.notices_in_steps()),
        }

    def datacenters(self) -> list[dict[str, Any]]:
        """Return of which datacentres the status is known, and why not of the others."""
        return [self._datacenter(dc) for dc in self._fold.readings]

    def may_be_there(self, node: str) -> bool:
        """False when a node of this datacentre has certainly not been heard of lately."""
        dc, now_s = self._metadata.dc, self._clock.monotonic_s()
        reading = self._fold.readings.get(dc)
        if reading is None or reading.trouble or now_s - reading.since_s < GONE_AFTER_S:
            return True
        return any(
            view.is_there
            for view in self._fold.nodes(now_s)
            if (view.header.dc, view.header.node) == (dc, node)
        )

    def last_undelivered(self, name: str) -> tuple[str, LastUndelivered] | None:
        """The message of `group.topic$subscription` that was given up last, and in which
        datacentre, as far as the consumers that are there have told.
        """
        found = [
            (place.view.header.dc, place.status.last_undelivered)
            for place in places(self._fold, name, self._clock.monotonic_s())
            if place.status.last_undelivered is not None
        ]
        return max(found, key=lambda each: (each[1].at_ms, each[0]), default=None)

    async def topic_metrics(self, topic: str) -> dict[str, Any]:
        """A topic's metrics as Hermes shows them, with the latency of its publishes and of which
        datacentres this is known; zeros for one that does not exist.
        """
        found = self._topic_sum(topic)
        live = self._metadata.catalog.topics.get(topic)
        subscriptions = [] if live is None else self._metadata.catalog.subscriptions_of(live.name)
        rates = found.rates
        return {
            "published": found.counts.messages,
            "volume": found.counts.size_bytes,
            "rate": _rate(rates.messages, found.is_known),
            "deliveryRate": _rate(found.delivered_rate, found.is_known),
            "throughput": _rate(rates.size_bytes, found.is_known),
            "subscriptions": len(subscriptions),
            **_latency(found.latency_ms),
            "datacenters": self.datacenters(),
        }

    async def subscription_metrics(self, topic: str, name: str) -> dict[str, Any]:
        """A subscription's metrics as Hermes shows them, with the latency of its pushes and of
        which datacentres this is known. Raises Refused.
        """
        found = self._subscription_sum(topic, name)
        counts, rates, is_known = found.counts, found.rates, found.is_known
        return {
            "delivered": counts.delivered,
            "discarded": counts.discarded,
            "volume": counts.size_bytes,
            "timeouts": _rate(rates.timeouts, is_known),
            "otherErrors": _rate(rates.other_errors, is_known),
            "codes2xx": _rate(rates.codes_2xx, is_known),
            "codes4xx": _rate(rates.codes_4xx, is_known),
            "codes5xx": _rate(rates.codes_5xx, is_known),
            "retries": _rate(rates.retries, is_known),
            "lag": str(found.lag),
            "rate": _rate(rates.delivered, is_known),
            "throughput": _rate(rates.size_bytes, is_known),
            "batchRate": _rate(rates.batches, is_known),
            **_latency(found.latency_ms),
            "datacenters": self.datacenters(),
        }

    async def subscription_counters(self, topic: str, name: str) -> dict[str, Any]:
        """A subscription's counters only. Raises Refused."""
        counts = self._subscription_sum(topic, name).counts
        return {
            "delivered": counts.delivered,
            "discarded": counts.discarded,
            "volume": counts.size_bytes,
        }

    async def health(self, topic: str, name: str) -> dict[str, Any]:
        """HEALTHY, UNHEALTHY with its problems, or NO_DATA. Raises Refused."""
        row = self.summary(self._subscriptions.live(topic, name))
        return {"status": row["health"], "problems": row["problems"]}

    async def why(self, topic: str, name: str) -> dict[str, Any]:
        """Return, for each datacentre and node, why the subscription is not delivered, or that it
        is.

        Raises Refused.
        """
        live = self._subscriptions.live(topic, name)
        now_s = self._clock.monotonic_s()
        found: dict[str, list[ConsumingNode]] = {dc: [] for dc in self._fold.readings}
        for place in places(self._fold, str(live.name), now_s):
            found.setdefault(place.view.header.dc, []).append(place)
        return {
            "topic": topic,
            "subscription": name,
            "state": live.state.value,
            **({"suspensionReason": live.suspension} if live.suspension else {}),
            "datacenters": [
                {
                    **self._datacenter(dc),
                    "isDelivering": any(place.is_delivering for place in found[dc]),
                    "reason": (not found[dc] and self._placements.missing(dc, str(live.name)))
                    or self._reason(dc, found[dc], now_s),
                    "nodes": [
                        {
                            **_place(place),
                            **_rate_max(place, live),
                            **_hint(place, live),
                            **self._placements.takeover(dc, str(live.name), _node(place)),
                        }
                        for place in found[dc]
                    ],
                }
                for dc in sorted(found)
            ],
        }

    def summary(self, live: LiveSubscription) -> dict[str, Any]:
        """How a subscription fares over all datacentres, in one row."""
        now_s, name = self._clock.monotonic_s(), str(live.name)
        found, here = subscription_sum(self._fold, name, now_s), places(self._fold, name, now_s)
        is_suspended = live.state is SubscriptionState.SUSPENDED
        missing = {} if is_suspended else self._placements.all_missing(name)
        topic_rate = topic_sum(self._fold, str(live.name.topic), (), now_s).rates.messages
        health = health_of(live, found, here, topic_rate, missing)
        worst = min(here, key=lambda each: _WORST_FIRST.index(each.state), default=None)
        last = max(here, key=lambda each: each.status.last_failure_at_ms, default=None)
        condition, reason = live.state.value, live.suspension
        if missing:
            condition, reason = "STOPPED", str(health.problems[0]["description"])
        elif worst is not None:
            condition = condition if is_suspended else worst.state
            reason = reason or worst.reason
        if not found.is_whole and condition in _MAY_BE_WORSE:
            condition = "UNKNOWN"
            reason = self._unknown_in() + (f"; elsewhere: {reason}" if reason else "")
        shown = {
            "topicName": str(live.name.topic),
            "name": live.name.name,
            "state": live.state.value,
            "isKnown": found.is_whole,
            "condition": condition,
            "reason": reason,
            "health": health.status,
            "severity": live.subscription.monitoring_details.severity,
            "problems": health.problems,
            "rate": found.rates.delivered / 1_000,
            "lag": found.lag,
            "inflight": sum(each.status.inflight for each in here),
            "waitingRetries": sum(each.status.waiting_retries for each in here),
            "discarded": found.counts.discarded,
            "deadLetters": found.counts.dead_letters,
            "openDeadLetters": found.open_letters,
        }
        levels = [each.status.level for each in here if each.status.level]
        if levels:
            shown["rateLevel"] = max(levels, key=_LEVELS.index) if set(levels) <= _KNOWN else ""
        if last is not None and last.status.last_failure:
            shown["lastFailure"] = last.status.last_failure
            shown["lastFailureAt"] = last.status.last_failure_at_ms / 1_000
        return shown

    def topic_summary(self, topic: str) -> dict[str, Any]:
        """How a topic is published to over all datacentres, in one row; rates a second."""
        # Without its subscriptions, which may be many.
        found = topic_sum(self._fold, topic, (), self._clock.monotonic_s())
        rates = found.rates
        return {
            "topicName": topic,
            "isKnown": found.is_known,
            "rate": rates.messages / 1_000,
            "throughput": rates.size_bytes / 1_000,
            "rejectedRate": rates.rejected / 1_000,
            "failedRate": rates.failed / 1_000,
        }

    def _unknown_in(self) -> str:
        """Where nothing is known of any subscription, in words."""
        unknown = self._fold.unknown
        return f"the status of {', '.join(unknown)} is unknown" if unknown else "nothing is known"

    def hold_up(self, live: LiveSubscription, dc: str) -> str:
        """Return what keeps the subscription from being delivered there; "" if nothing is known."""
        if live.state is SubscriptionState.SUSPENDED:
            return f"the subscription is suspended{live.suspension and f': {live.suspension}'}"
        now_s = self._clock.monotonic_s()
        found = [
            place
            for place in places(self._fold, str(live.name), now_s)
            if place.view.header.dc == dc
        ]
        if not found:
            missing = self._placements.missing(dc, str(live.name))
            return missing or (self._reason(dc, [], now_s) if dc in self._fold.readings else "")
        held = [each for each in found if not each.is_delivering or each.status.held_back]
        return "; ".join(each.reason for each in held)

    def _topic_sum(self, topic: str) -> TopicSum:
        live = self._metadata.catalog.topics.get(topic)
        subscriptions = [] if live is None else self._metadata.catalog.subscriptions_of(live.name)
        names = [str(each.name) for each in subscriptions]
        return topic_sum(self._fold, topic, names, self._clock.monotonic_s())

    def _subscription_sum(self, topic: str, name: str) -> SubscriptionSum:
        live = self._subscriptions.live(topic, name)
        return subscription_sum(self._fold, str(live.name), self._clock.monotonic_s())

    def _datacenter(self, dc: str) -> dict[str, Any]:
        reading = self._fold.readings.get(dc)
        shown: dict[str, Any] = {"datacenter": dc, "isKnown": bool(reading and not reading.trouble)}
        if reading is not None and reading.trouble:
            since = iso_ms(reading.since_ms, "seconds")
            shown["reason"] = f"status unknown since {since}: {reading.trouble}"
        return shown

    def _node(self, view: NodeView) -> dict[str, Any]:
        header = view.header
        return {
            "datacenter": header.dc,
            "node": header.node,
            "state": _state(view),
            "reasons": self._node_reasons(view),
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

    def _node_reasons(self, view: NodeView) -> list[str]:
        header = view.header
        reasons = list(header.reasons)
        if view.is_unknown:
            reasons.append(self._datacenter(header.dc).get("reason", "its status is not followed"))
        elif view.is_gone and not header.is_leaving:
            reasons.append(f"not heard of for {span(view.age_s)}")
        if view.has_rival:
            reasons.append(f"another process reports as {header.node} too; give each its own name")
        if header.left_out:
            reasons.append(f"{header.left_out} entries do not fit into its status records")
        return reasons

    def _reason(self, dc: str, found: list[ConsumingNode], now_s: float) -> str:
        """One sentence for a datacentre."""
        trouble = self._datacenter(dc).get("reason")
        if trouble:
            return str(trouble)
        if found:
            return "; ".join(f"{each.view.header.node}: {each.reason}" for each in found)
        consuming = [
            view
            for view in self._fold.nodes(now_s)
            if view.header.dc == dc and view.is_there and "consumers" in view.header.roles
        ]
        names = ", ".join(view.header.node for view in consuming)
        return (
            f"none of the consuming nodes of {dc} that are there ({names}) runs it: it is about to "
            "start, or they wait for its partitions to become free"
            if consuming
            else f"no node of {dc} with the role consumers is there"
        )


def _state(view: NodeView) -> str:
    if view.header.is_leaving:
        return "LEFT"
    if view.is_unknown:
        return "UNKNOWN"
    if view.is_gone:
        return "GONE"
    return "NOT_READY" if view.header.reasons else "READY"


def _hint(place: ConsumingNode, live: LiveSubscription) -> dict[str, str]:
    """Return what to try after a failure that does not say so itself; empty without advice."""
    kind = place.status.last_failure.partition(":")[0]
    policy = live.subscription.subscription_policy
    if kind == "timeout" and place.state in ("STOPPED", "FAILING"):
        return {
            "hint": f"subscriptionPolicy.requestTimeout gives the endpoint {policy.request_timeout}"
            " ms to answer: raise it, or have the endpoint answer sooner"
        }
    if not live.subscription.http2_enabled or kind not in ("malformed", "reset", "connect"):
        return {}
    return {
        "hint": "http2Enabled is on, and an endpoint that speaks HTTP/1.1 only fails like this: "
        "turn it off, or have the endpoint speak HTTP/2"
    }


def _rate_max(place: ConsumingNode, live: LiveSubscription) -> dict[str, int]:
    """Return what all nodes of a datacentre together may push in a second, beside what this one
    may; empty without a limit, and without a rate level of this one.
    """
    policy = live.subscription.subscription_policy
    rate = policy.rate if isinstance(policy, SerialPolicy) else policy.message_rate
    return {"rateMax": rate} if rate is not None and place.status.level else {}


def _node(place: ConsumingNode) -> str:
    return place.view.header.node


def _place(place: ConsumingNode) -> dict[str, Any]:
    status = place.status
    shown = {
        "node": _node(place),
        "state": place.state,
        "isDelivering": place.is_delivering,
        "reason": place.reason,
        "heardAgoMs": round(1_000 * place.view.age_s),
        "rate": status.rates.delivered / 1_000,
        "lag": status.lag,
        "inflight": status.inflight,
        "waitingRetries": status.waiting_retries,
        "delivered": status.counts.delivered,
        "retries": status.counts.retries,
        "discarded": status.counts.discarded,
        "expired": status.counts.expired,
        "timeouts": status.counts.timeouts,
        "otherErrors": status.counts.other_errors,
        "codes4xx": status.counts.codes_4xx,
        "codes5xx": status.counts.codes_5xx,
        "filtered": status.counts.filtered,
        "deadLetters": status.counts.dead_letters,
    }
    if status.level:
        shown["rateLevel"] = status.level
        shown["rateNow"] = status.rate_now / 1_000
        shown["oldestAgeMs"] = status.oldest_age_ms
    if status.open_letters >= 0:
        shown["openDeadLetters"] = status.open_letters
    if status.latency_p99_ms >= 0:
        shown |= _latency((status.latency_p50_ms, status.latency_p99_ms))
    if status.last_success_at_ms:
        shown["lastSuccessAt"] = status.last_success_at_ms / 1_000
    if status.last_failure:
        shown["lastFailure"] = status.last_failure
        shown["lastFailureAt"] = status.last_failure_at_ms / 1_000
        if status.last_attempts:
            shown["lastFailureAttempt"] = status.last_attempts
    return shown


def _latency(latency_ms: tuple[float, float] | None) -> dict[str, Any]:
    """Return p50 and p99 of the last minute; empty where there was nothing."""
    if latency_ms is None:
        return {}
    p50_ms, p99_ms = latency_ms
    return {"latencyMs": {"p50": p50_ms, "p99": p99_ms}}


def _rate(thousandths: int, is_known: bool) -> str:
    return str(thousandths / 1_000) if is_known else UNAVAILABLE
