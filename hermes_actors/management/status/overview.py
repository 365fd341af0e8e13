"""Overviews of topics and subscriptions, one row each, and the list of unhealthy subscriptions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.management.bodies.endpoint import mask_endpoint
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
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
    text: str = ""
    """Contained in the name, the owner or the endpoint, ignoring case."""
    is_unhealthy: bool = False
    leaves_out_unimportant: bool = False

    def takes(self, live: LiveSubscription) -> bool:
        """True if the subscription fulfils the criteria. `is_unhealthy` is not checked here."""
        wire = live.subscription
        return (
            (not self.topics or str(live.name.topic) in self.topics)
            and (not self.names or live.name.name in self.names)
            and self._contains_text(live)
            and (self.owner_source is None or wire.owner.source == self.owner_source)
            and (self.owner_id is None or wire.owner.id == self.owner_id)
            and not (
                self.leaves_out_unimportant and wire.monitoring_details.severity == "NON_IMPORTANT"
            )
        )

    def _contains_text(self, live: LiveSubscription) -> bool:
        wire = live.subscription
        return not self.text or contains(
            self.text, str(live.name), wire.owner.id, mask_endpoint(wire.endpoint)
        )


def contains(text: str, *within: str) -> bool:
    """True if one of these contains the text, ignoring case."""
    return any(text.lower() in each.lower() for each in within)


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
        rows, _ = await self.some_rows(wanted, sort, limit)
        return {"subscriptions": rows, "datacenters": self._statuses.datacenters()}

    async def some_rows(
        self, wanted: OverviewQuery, sort: str, limit: int | None, skipped: int = 0
    ) -> tuple[list[dict[str, Any]], int]:
        """As `rows`, without the first `skipped` ones; also how many subscriptions fulfil the
        criteria. Fast if sorted by name.
        """
        these = slice(skipped, None if limit is None else skipped + limit)
        if sort == "name" and not wanted.is_unhealthy:
            return await self._rows(wanted, these)
        rows, count = await self._rows(wanted)
        rows.sort(key=_SORTS[sort])
        return rows[these], count

    async def topics(self, sort: str = "name", limit: int | None = None) -> dict[str, Any]:
        """The rows of all topics, with sums over their subscriptions (an unknown lag counts as 0).
        Sorted by one of SORTS, then by name; at most `limit` rows.
        """
        rows, _ = await self.some_topics(sort, limit)
        return {"topics": rows, "datacenters": self._statuses.datacenters()}

    async def some_topics(
        self, sort: str, limit: int | None, skipped: int = 0, *, text: str = "", group: str = ""
    ) -> tuple[list[dict[str, Any]], int]:
        """As `topics`, without the first `skipped` ones, but only those of the group whose name or
        owner contains the text; also how many these are. Fast if sorted by name.
        """
        these = slice(skipped, None if limit is None else skipped + limit)
        topics = self._metadata.catalog.topics
        names = [
            name
            async for name in each_in_turns(sorted(topics))
            if (live := topics.get(name)) is not None
            and group in ("", live.name.group)
            and contains(text, name, live.topic.owner.id)
        ]
        rows: dict[str, dict[str, Any]] = {}
        chosen = names[these] if sort == "name" else names
        async for topic, subscription in each_in_turns(self._with_subscriptions(chosen)):
            name = topic.topic.name
            if subscription is None:
                owner = {"owner": msgspec.to_builtins(topic.topic.owner)}
                if topic.topic.is_in_memory:
                    owner["durability"] = topic.topic.durability.value
                rows[name] = self._statuses.topic_summary(name) | owner | _NO_SUBSCRIPTIONS
                continue
            row = rows[name]
            each = self._statuses.summary(subscription, round(1_000 * row["rate"]))
            row["deliveryRate"] = round(row["deliveryRate"] + each["rate"], 3)
            row["lag"] += max(0, each["lag"])
            row["inflight"] += each["inflight"]
            row["subscriptions"] += 1
            row["unhealthySubscriptions"] += bool(each["problems"])
        found = sorted(rows.values(), key=_TOPIC_SORTS[sort])
        return found if sort == "name" else found[these], len(names)

    def _with_subscriptions(
        self, names: Sequence[str]
    ) -> Iterator[tuple[LiveTopic, LiveSubscription | None]]:
        """Each topic with None, and then with each of its subscriptions."""
        catalog = self._metadata.catalog
        for name in names:
            # It may have been removed meanwhile.
            if (topic := catalog.topics.get(name)) is not None:
                yield topic, None
                for live in catalog.subscriptions_of(topic.name):
                    yield topic, live

    async def _rows(
        self, wanted: OverviewQuery, these: slice = slice(None)
    ) -> tuple[list[dict[str, Any]], int]:
        """The rows of `these` of the subscriptions that fulfil the criteria, sorted by name; and
        how many fulfil them.
        """
        catalog = self._metadata.catalog
        rows: list[dict[str, Any]] = []
        rates: dict[str, int] = {}
        count = 0
        async for name in each_in_turns(sorted(catalog.subscriptions)):
            # It may have been removed meanwhile.
            live = catalog.subscriptions.get(name)
            if live is None or not wanted.takes(live):
                continue
            count += 1
            if count <= (these.start or 0) or count > (these.stop or count):
                continue
            topic = str(live.name.topic)
            if topic not in rates:
                rates[topic] = self._statuses.topic_rate(topic)
            row = self._statuses.summary(live, rates[topic])
            if row["problems"] or not wanted.is_unhealthy:
                rows.append(row)
        return rows, len(rows) if wanted.is_unhealthy else count

    async def unhealthy(self, wanted: OverviewQuery) -> list[dict[str, Any]]:
        """The subscriptions that fulfil the criteria, in Hermes' format."""
        shown = ("name", "topicName", "severity", "problems")
        rows, _ = await self._rows(wanted)
        return [{field: row[field] for field in shown} for row in rows]

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
