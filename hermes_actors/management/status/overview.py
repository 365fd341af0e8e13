"""Overviews of topics and subscriptions, one row each, and the list of unhealthy subscriptions."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import TrackingMode
from hermes_actors.model.topic import Ack, ContentType
from hermes_actors.runtime.turns import each_in_turns

_WORST_FIRST = ("STOPPED", "FAILING", "UNKNOWN", "SUSPENDED", "PENDING")
_ORDER = {condition: at for at, condition in enumerate(_WORST_FIRST)}

_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: (row["topicName"], row["name"]),
    "lag": lambda row: -row["lag"],
    "rate": lambda row: -row["rate"],
    "inflight": lambda row: -row["inflight"],
    "state": lambda row: (not row["problems"], _ORDER.get(row["condition"], len(_ORDER))),
}
SORTS = tuple(_SORTS)

_TOPIC_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["topicName"],
    "lag": lambda row: -row["lag"],
    "rate": lambda row: -row["rate"],
    "inflight": lambda row: -row["inflight"],
    "state": lambda row: (-row["failedRate"], -row["unhealthySubscriptions"], -row["rejectedRate"]),
}


_NO_SUBSCRIPTIONS = {
    "deliveryRate": 0.0,
    "lag": 0,
    "inflight": 0,
    "subscriptions": 0,
    "unhealthySubscriptions": 0,
}


class OverviewQuery(Struct, frozen=True, kw_only=True):
    """The criteria for subscriptions. Empty or None means all."""

    topics: Sequence[str] = ()
    names: Sequence[str] = ()
    owner_source: str | None = None
    owner_id: str | None = None
    is_unhealthy: bool = False
    leaves_out_unimportant: bool = False

    def takes(self, live: LiveSubscription) -> bool:
        """True if the subscription fulfils the criteria. `is_unhealthy` is not checked here."""
        wire = live.subscription
        return (
            (not self.topics or str(live.name.topic) in self.topics)
            and (not self.names or live.name.name in self.names)
            and (self.owner_source is None or wire.owner.source == self.owner_source)
            and (self.owner_id is None or wire.owner.id == self.owner_id)
            and not (
                self.leaves_out_unimportant and wire.monitoring_details.severity == "NON_IMPORTANT"
            )
        )


class Overview:
    """Rows of many topics and subscriptions. All methods are trio coroutines."""

    def __init__(self, metadata: Metadata, statuses: Statuses) -> None:
        self._metadata = metadata
        self._statuses = statuses

    async def rows(
        self, wanted: OverviewQuery, sort: str = "name", limit: int | None = None
    ) -> dict[str, Any]:
        """The rows of the subscriptions that fulfil the criteria, and the datacentres with a known
        status. Sorted by one of SORTS, then by name; at most `limit` rows.
        """
        rows = await self._rows(wanted)
        rows.sort(key=_SORTS[sort])
        return {"subscriptions": rows[:limit], "datacenters": self._statuses.datacenters()}

    async def topics(self, sort: str = "name", limit: int | None = None) -> dict[str, Any]:
        """The rows of all topics, with sums over their subscriptions (an unknown lag counts as 0).
        Sorted by one of SORTS, then by name; at most `limit` rows.
        """
        rows: dict[str, dict[str, Any]] = {}
        async for name in each_in_turns(sorted(self._metadata.catalog.topics)):
            rows[name] = self._statuses.topic_summary(name) | _NO_SUBSCRIPTIONS
        for each in await self._rows(OverviewQuery()):
            # The topic may be new.
            if (row := rows.get(each["topicName"])) is not None:
                row["deliveryRate"] = round(row["deliveryRate"] + each["rate"], 3)
                row["lag"] += max(0, each["lag"])
                row["inflight"] += each["inflight"]
                row["subscriptions"] += 1
                row["unhealthySubscriptions"] += bool(each["problems"])
        listed = sorted(rows.values(), key=_TOPIC_SORTS[sort])[:limit]
        return {"topics": listed, "datacenters": self._statuses.datacenters()}

    async def _rows(self, wanted: OverviewQuery) -> list[dict[str, Any]]:
        """The rows of the subscriptions that fulfil the criteria, sorted by name."""
        catalog = self._metadata.catalog
        rows: list[dict[str, Any]] = []
        async for name in each_in_turns(sorted(catalog.subscriptions)):
            # It may have been removed meanwhile.
            live = catalog.subscriptions.get(name)
            if live is None or not wanted.takes(live):
                continue
            row = self._statuses.summary(live)
            if row["problems"] or not wanted.is_unhealthy:
                rows.append(row)
        return rows

    async def unhealthy(self, wanted: OverviewQuery) -> list[dict[str, Any]]:
        """The subscriptions that fulfil the criteria, in Hermes' format."""
        shown = ("name", "topicName", "severity", "problems")
        return [{field: row[field] for field in shown} for row in await self._rows(wanted)]

    async def stats(self) -> dict[str, Any]:
        """The numbers of topics and subscriptions, by kind."""
        topics = [each.topic for each in self._metadata.catalog.topics.values()]
        subscriptions = [
            each.subscription for each in self._metadata.catalog.subscriptions.values()
        ]
        return {
            "topicStats": {
                "topicCount": len(topics),
                "ackAllTopicCount": sum(each.ack is Ack.ALL for each in topics),
                "trackingEnabledTopicCount": sum(each.tracking_enabled for each in topics),
                "avroTopicCount": sum(each.content_type is ContentType.AVRO for each in topics),
            },
            "subscriptionStats": {
                "subscriptionCount": len(subscriptions),
                "trackingEnabledSubscriptionCount": sum(
                    each.tracking_mode is not TrackingMode.OFF for each in subscriptions
                ),
                "avroSubscriptionCount": sum(
                    each.content_type is ContentType.AVRO for each in subscriptions
                ),
            },
        }
