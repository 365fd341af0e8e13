"""The metrics of a node's subscriptions, from its status record."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from hermes_actors.metadata.catalog import Catalog, LiveSubscription
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.status.collector import Collector
from hermes_actors.status.record import SubscriptionStatus
from hermes_actors.telemetry.metrics import Metrics, meanings

STATUS = meanings(
    "hermes_consumers",
    max_rate_calculated_rate=("messages per second", "subscription_rate_limit under Hermes' name"),
    max_rate_actual_rate=("pushes per second", "Push attempts, over about ten seconds"),
    subscription_lag_messages=(
        "messages",
        "Unsettled messages in this node's partitions and in new ones without an owner",
    ),
    subscription_oldest_age_seconds=(
        "seconds",
        "Age of the oldest message that is read but not settled, or waits during a suspension",
    ),
    subscription_info=("1", "Its owner, and the severity of alerts about it"),
    subscription_suspended_timestamp_seconds=(
        "seconds since the epoch",
        "When it was suspended; only while it is",
    ),
    subscription_rate_level=(
        "0 to 3",
        "Trust in the endpoint: 0 full rate, 1 adapting, 2 one a second, 3 one a minute",
    ),
    subscription_rate_limit=(
        "messages per second",
        "The current maximum rate of this node's pushes",
    ),
    subscription_open_dead_letters=("messages", "Open dead letters of the datacentre"),
)

_LEVELS = {"FULL": 0.0, "ADAPTING": 1.0, "SLOW": 2.0, "HEARTBEAT": 3.0}


def subscription_metrics(collector: Collector, catalog: Callable[[], Catalog]) -> Metrics:
    """Return the metrics of the node's own subscriptions; `catalog` says whose they are."""
    metrics = Metrics("hermes_consumers", meanings=STATUS)

    def shown(
        value: Callable[[SubscriptionStatus], float | None],
    ) -> Iterator[tuple[Mapping[str, str], float]]:
        for full_name, status in list(collector.newest.items()):
            number = value(status)
            if number is not None:
                yield labels_of(SubscriptionName.parse(full_name)), number

    def owned() -> list[LiveSubscription]:
        subscriptions = catalog().subscriptions
        return [subscriptions[each] for each in list(collector.newest) if each in subscriptions]

    for name, value in _FIGURES.items():
        metrics.gauges(name, partial(shown, value))
    metrics.gauges("subscription_info", lambda: [_info(each) for each in owned()])
    metrics.gauges(
        "subscription_suspended_timestamp_seconds",
        lambda: [
            (labels_of(each.name), _suspended_s(each))
            for each in owned()
            if each.state is SubscriptionState.SUSPENDED
        ],
    )
    return metrics


def labels_of(name: SubscriptionName) -> dict[str, str]:
    """Return the labels of all metrics of a subscription."""
    return {"group": name.topic.group, "topic": name.topic.name, "subscription": name.name}


def _info(live: LiveSubscription) -> tuple[dict[str, str], float]:
    wire = live.subscription
    severity = "critical" if wire.monitoring_details.severity == "CRITICAL" else "warning"
    return labels_of(live.name) | {"owner": wire.owner.id, "severity": severity}, 1.0


def _suspended_s(live: LiveSubscription) -> float:
    # Where that is not known, it was before its last change.
    suspension = live.suspension
    return live.subscription.modified_at if suspension is None else suspension.at_ms / 1_000


def _limit(status: SubscriptionStatus) -> float | None:
    return status.rate_now if status.level else None


_FIGURES: Mapping[str, Callable[[SubscriptionStatus], float | None]] = {
    "subscription_lag_messages": lambda status: None if status.lag < 0 else status.lag,
    "subscription_oldest_age_seconds": lambda status: status.oldest_age_ms / 1_000,
    "subscription_rate_level": lambda status: _LEVELS.get(status.level),
    "subscription_rate_limit": _limit,
    "subscription_open_dead_letters": lambda status: (
        None if status.open_letters < 0 else status.open_letters
    ),
    "max_rate_calculated_rate": _limit,
    "max_rate_actual_rate": lambda status: status.rates.attempts / 1_000,
}
