"""Finds groups, topics and subscriptions by their fields or metrics, or by a text."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import trio

from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.endpoint import mask_endpoint
from hermes_actors.management.bodies.views import topic_view
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.queries.conditions import Query
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.metadata.registry import Metadata
from hermes_actors.runtime.turns import in_turns

Objects = list[dict[str, Any]]


class Queries:
    """Queries of one datacentre's metadata. All methods are trio coroutines.

    A query's body is `{"query": {…}}` (see `conditions`); if it is malformed, they raise Refused
    with FORMAT_ERROR.
    """

    def __init__(
        self,
        metadata: Metadata,
        topics: Topics,
        subscriptions: Subscriptions,
        statuses: Statuses,
        cpu_s: Callable[[], float],
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._subscriptions = subscriptions
        self._statuses = statuses
        self._cpu_s = cpu_s

    async def groups(self, body: Mapping[str, Any]) -> Objects:
        """The groups that fulfil a query."""
        query, groups = self._query(body), self._metadata.catalog.groups
        lives = [groups[name] for name in sorted(groups)]
        return await _taken(query, (msgspec.to_builtins(each.group) for each in lives))

    async def topics(self, body: Mapping[str, Any]) -> Objects:
        """The topics that fulfil a query, without their schemas."""
        query = self._query(body)
        return await _taken(query, (topic_view(each.topic) for each in self._topics_now()))

    async def subscriptions(self, caller: Caller, body: Mapping[str, Any]) -> Objects:
        """The subscriptions that fulfil a query, their secrets masked."""
        query, view = self._query(body), self._subscriptions.view
        return await _taken(query, (view(caller, each) for each in self._subscriptions_now()))

    async def topic_metrics(self, body: Mapping[str, Any]) -> Objects:
        """The names and metrics of the topics whose metrics fulfil a query."""
        query, found = self._query(body), []
        for live in self._topics_now():
            name = str(live.name)
            row = {"name": name, **await self._statuses.topic_metrics(name)}
            if query.takes(row):
                found.append(row)
            await trio.lowlevel.checkpoint()
        return found

    async def subscription_metrics(self, body: Mapping[str, Any]) -> Objects:
        """The names and metrics of the subscriptions whose metrics fulfil a query."""
        query, found = self._query(body), []
        for live in self._subscriptions_now():
            topic, name = str(live.name.topic), live.name.name
            metrics = await self._statuses.subscription_metrics(topic, name)
            row = {"name": name, "topicName": topic, **metrics}
            if query.takes(row):
                found.append(row)
            await trio.lowlevel.checkpoint()
        return found

    async def topic_names(
        self, body: Mapping[str, Any], *, group_name: str | None = None
    ) -> list[str]:
        """The names of all topics, or of one group's, that fulfil a query."""
        query, names = self._query(body), await self._topics.names(group_name)
        topics = self._metadata.catalog.topics
        views = (topic_view(topics[name].topic) for name in names if name in topics)
        return [each["name"] for each in await _taken(query, views)]

    async def subscription_names(
        self, caller: Caller, topic: str, body: Mapping[str, Any]
    ) -> list[str]:
        """The names of a topic's subscriptions that fulfil a query. Also raises Refused with
        TOPIC_NOT_EXISTS.
        """
        query, view = self._query(body), self._subscriptions.view
        lives = self._metadata.catalog.subscriptions_of(self._topics.live(topic).name)
        return [each["name"] for each in await _taken(query, (view(caller, e) for e in lives))]

    async def search(self, *, q: str = "") -> dict[str, Any]:
        """The topics whose name or owner, and the subscriptions whose name, owner or endpoint
        contain the text `q`, ignoring case. Nothing if the text is blank.
        """
        word = q.strip().lower()
        results = await in_turns(self._containing(word)) if word else []
        return {"results": results, "totalCount": len(results)}

    def _containing(self, word: str) -> Generator[None, None, Objects]:
        found: Objects = []
        for live in self._topics_now():
            if _contains(word, live.topic.name, live.topic.owner.id):
                found.append(_found_topic(live))
            yield
        for each in self._subscriptions_now():
            wire = each.subscription
            endpoint = mask_endpoint(wire.endpoint)
            if _contains(word, wire.name, wire.owner.id, endpoint):
                found.append(_found_subscription(each, endpoint))
            yield
        return found

    def _query(self, body: Mapping[str, Any]) -> Query:
        return Query(body, self._cpu_s)

    def _topics_now(self) -> Iterator[LiveTopic]:
        topics = self._metadata.catalog.topics
        return (topics[name] for name in sorted(topics) if name in topics)

    def _subscriptions_now(self) -> Iterator[LiveSubscription]:
        known = self._metadata.catalog.subscriptions
        return (known[name] for name in sorted(known) if name in known)


async def _taken(query: Query, views: Iterable[dict[str, Any]]) -> Objects:
    return await in_turns(_matching(query, views))


def _matching(query: Query, views: Iterable[dict[str, Any]]) -> Generator[None, None, Objects]:
    found: Objects = []
    for view in views:
        if query.takes(view):
            found.append(view)
        yield
    return found


def _contains(word: str, *texts: str) -> bool:
    return any(word in text.lower() for text in texts)


def _found_topic(live: LiveTopic) -> dict[str, Any]:
    owner = {"id": live.topic.owner.id}
    topic = {"groupName": live.name.group, "owner": owner}
    return {"type": "TOPIC", "name": str(live.name), "topic": topic}


def _found_subscription(live: LiveSubscription, endpoint: str) -> dict[str, Any]:
    name = live.name.topic
    topic = {"name": name.name, "qualifiedName": str(name), "groupName": name.group}
    subscription = {"endpoint": endpoint, "topic": topic}
    return {"type": "SUBSCRIPTION", "name": live.name.name, "subscription": subscription}
