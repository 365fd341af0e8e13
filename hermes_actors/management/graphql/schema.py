"""The GraphQL schema: each field calls the same function as its REST route."""

from collections.abc import Callable, Iterable
from functools import cache
from operator import itemgetter
from typing import Annotated, Any

import strawberry
from strawberry.scalars import JSON
from strawberry.schema.config import StrawberryConfig

from hermes_actors.errors import Refused
from hermes_actors.management.bodies.decoding import decode_base64
from hermes_actors.management.graphql import kinds
from hermes_actors.management.graphql.fields import Operation, field
from hermes_actors.management.graphql.limits import ITEMS, ITEMS_MAX, Limits
from hermes_actors.management.http.gate import credentials_of
from hermes_actors.management.http.openapi import WholeSubscription, WholeTopic
from hermes_actors.management.offsets.retransmission import Retransmission
from hermes_actors.model.group import Group
from hermes_actors.model.subscription import Header
from hermes_actors.model.topic import Topic

Row = dict[str, Any]
Rows = list[Any]
_ALL = "/topics/{topic}/subscriptions"
_AT = _ALL + "/{name}"
_PUBLISH = "POST /console/topics/{topic}/publish"
_NEW = kinds.kind_of(WholeSubscription, "SubscriptionInput")
_HEADERS = kinds.list_of(kinds.kind_of(Header, "HeaderInput")) | None
_FROM = Annotated[str, strawberry.argument(name="from")]
_TARGET = kinds.kind_of(Retransmission, "RetransmissionInput")


def _page(rows: Iterable[Any], name_of: Callable[[Any], str], limit: int, after: str) -> Rows:
    if not 1 <= limit <= ITEMS_MAX:
        raise Refused(f"limit must be from 1 to {ITEMS_MAX}")
    return [row for row in rows if name_of(row) > after][:limit]


class _OfSubscription(Operation):
    @field(f"GET {_AT}/lag", kinds.ANSWERS["Lag"], "topicName", "name")
    async def lag(self, topic: str, name: str) -> Row:
        """The position, end and lag of each partition in each datacentre."""
        return await self.parts.standings.lag(topic, name)

    @field(f"GET {_AT}/why", kinds.ANSWERS["Why"], "topicName", "name")
    async def why(self, topic: str, name: str) -> Row:
        """For each node: does it deliver, and if not, why."""
        return await self.parts.statuses.why(topic, name)

    @field(f"GET {_AT}/metrics", JSON, "topicName", "name")
    async def metrics(self, topic: str, name: str) -> Row:
        """Its metrics in Hermes' format."""
        return await self.parts.statuses.subscription_metrics(topic, name)

    @field(f"GET {_AT}/dead-letters", kinds.ANSWERS["DeadLetters"], "topicName", "name")
    async def dead_letters(
        self, topic: str, name: str, limit: int = ITEMS, before: str | None = None
    ) -> Row:
        """Its open dead letters, newest first. The `next` of an answer continues as `before`."""
        letters = self.parts.dead_letters
        found = await letters.page(self.caller, topic, name, limit=limit, before=before)
        return {**found, "letters": found["deadLetters"]}


SUBSCRIPTION = kinds.kind_of(WholeSubscription, "TopicSubscription", _OfSubscription)


class _OfTopic(Operation):
    @field(f"GET {_AT}", kinds.list_of(SUBSCRIPTION), "name")
    async def subscriptions(self, topic: str, limit: int = ITEMS, after: str = "") -> Rows:
        """Its subscriptions by name. The last name continues as `after`."""
        known = self.parts.subscriptions
        names = _page(await known.names(topic), str, limit, after)
        return [await known.get(self.caller, topic, each) for each in names]

    @field("GET /topics/{topic}/schema", str, "name")
    async def schema(self, topic: str) -> str | None:
        """Its newest schema."""
        return await self.parts.topic_schemas.newest(topic)

    @field("GET /topics/{topic}/metrics", JSON, "name")
    async def metrics(self, topic: str) -> Row:
        """Its metrics in Hermes' format."""
        return await self.parts.statuses.topic_metrics(topic)


TOPIC = kinds.kind_of(Topic, "Topic", _OfTopic)
GROUP = kinds.kind_of(Group, "Group")


class _Query(Operation):
    @field("POST /query/groups", kinds.list_of(GROUP))
    async def groups(self, query: JSON | None = None, limit: int = ITEMS, after: str = "") -> Rows:
        """Groups by name. The last name continues as `after`."""
        rows = await self.parts.queries.groups({"query": query or {}})
        return _page(rows, itemgetter("groupName"), limit, after)

    @field("GET /groups/{group}", GROUP)
    async def group(self, name: str) -> Row:
        """One group."""
        return await self.parts.groups.get(name)

    @field("POST /query/topics", kinds.list_of(TOPIC))
    async def topics(self, query: JSON | None = None, limit: int = ITEMS, after: str = "") -> Rows:
        """Topics by name. The last name continues as `after`."""
        rows = await self.parts.queries.topics({"query": query or {}})
        return _page(rows, itemgetter("name"), limit, after)

    @field("GET /topics/{topic}", TOPIC)
    async def topic(self, name: str) -> Row:
        """One topic."""
        return await self.parts.topics.get(name)

    @field("POST /query/subscriptions", kinds.list_of(SUBSCRIPTION))
    async def subscriptions(
        self, query: JSON | None = None, limit: int = ITEMS, after: str = ""
    ) -> Rows:
        """Subscriptions by name. The last one continues as `after`: topic$name."""
        rows = await self.parts.queries.subscriptions(self.caller, {"query": query or {}})
        return _page(rows, lambda e: f"{e['topicName']}${e['name']}", limit, after)

    @field(f"GET {_AT}", SUBSCRIPTION)
    async def subscription(self, topic: str, name: str) -> Row:
        """One subscription."""
        return await self.parts.subscriptions.get(self.caller, topic, name)

    @field("GET /dead-letters", kinds.ANSWERS["DeadLetters"])
    async def dead_letters(self, topic: str | None = None, limit: int = ITEMS) -> Row:
        """The newest open dead letters of all subscriptions that the caller manages."""
        found = await self.parts.dead_letters.all(self.caller, topic_name=topic, limit=limit)
        return {**found, "letters": found["deadLetters"]}


class _Mutation(Operation):
    @field("POST /groups", GROUP, group=kinds.kind_of(Group, "GroupInput"))
    async def create_group(self, group: Any) -> Row:
        """Create a group."""
        body = kinds.as_body(group)
        await self.parts.groups.create(self.caller, body)
        return await self.parts.groups.get(body["groupName"])

    @field("POST /topics", TOPIC, topic=kinds.kind_of(WholeTopic, "TopicInput"))
    async def create_topic(self, topic: Any) -> Row:
        """Create a topic, with its schema if given."""
        body = kinds.as_body(topic)
        await self.parts.topics.create(self.caller, body)
        return await self.parts.topics.get(body["name"])

    @field(f"POST {_ALL}", SUBSCRIPTION, subscription=_NEW)
    async def create_subscription(self, subscription: Any) -> Row:
        """Create a subscription."""
        body, known = kinds.as_body(subscription), self.parts.subscriptions
        await known.create(self.caller, body["topicName"], body)
        return await known.get(self.caller, body["topicName"], body["name"])

    @field(f"PUT {_AT}/state", SUBSCRIPTION)
    async def suspend(self, topic: str, name: str) -> Row:
        """Suspend a subscription."""
        await self.parts.subscriptions.set_state(self.caller, topic, name, "SUSPENDED")
        return await self.parts.subscriptions.get(self.caller, topic, name)

    @field(f"PUT {_AT}/state", SUBSCRIPTION)
    async def activate(self, topic: str, name: str) -> Row:
        """Activate a suspended subscription."""
        await self.parts.subscriptions.set_state(self.caller, topic, name, "ACTIVE")
        return await self.parts.subscriptions.get(self.caller, topic, name)

    @field(f"PUT {_AT}/retransmission", kinds.list_of(kinds.ANSWERS["NewOffset"]), target=_TARGET)
    async def retransmit(self, topic: str, name: str, target: Any, dry_run: bool = False) -> Rows:
        """Move a subscription in its topic. The target has one of the three fields."""
        move, body = self.parts.retransmissions.move, kinds.as_body(target)
        moved = await move(self.caller, topic, name, body, dry_run)
        return [{**each, "cluster": cluster} for cluster, some in moved.items() for each in some]

    @field(_PUBLISH, kinds.ANSWERS["Published"], headers=_HEADERS)
    async def publish(
        self,
        topic: str,
        body: str | None = None,
        body_base64: str | None = None,
        key: str | None = None,
        headers: Any = None,
    ) -> Row:
        """Publish a message, with all checks of publishers' messages."""
        if (body is None) == (body_base64 is None):
            raise Refused("publish needs one of body and bodyBase64")
        content = decode_base64(body_base64 or "", "bodyBase64") if body is None else body.encode()
        given = [(each.name, each.value) for each in headers or ()]
        given += [("Partition-Key", key)] if key else []
        make, credentials = self.parts.publish_trials.make, credentials_of(self.request)
        id_, status = await make(self.caller, topic, given, content, credentials)
        return {"id": id_, "isSpooled": status == 202}


class _Subscription(Operation):
    @field("GET /topics/{topic}/messages", kinds.ANSWERS["Message"], start=_FROM)
    async def messages(
        self,
        topic: str,
        start: str = "end",
        follow: bool = True,
        limit: int | None = None,
        last: int | None = None,
        partition: int | None = None,
    ) -> Row | None:
        """A topic's messages from `beginning`, `end` or a time. Without `follow` it ends at the
        present end.
        """
        if self.message is None:
            args = topic, start, follow, limit, last, partition
            self.tail = await self.parts.tails.open(self.caller, *args)
        return self.message


def _value(row: Row, name: str) -> Any:
    return row.get(name, kinds.LEFT_OUT.get(name))


class _Schema(strawberry.Schema):
    def process_errors(self, errors: Any, execution_context: Any = None) -> None:
        """Log nothing: most errors are the caller's, and the endpoint logs the others."""


@cache
def schema() -> strawberry.Schema:
    """The schema, built at the first call."""
    roots = {"query": _Query, "mutation": _Mutation, "subscription": _Subscription}
    types: dict[str, Any] = {k: kinds.object_of(k.title(), {}, of) for k, of in roots.items()}
    long = strawberry.scalar(name="Long", serialize=int, parse_value=int)
    config = StrawberryConfig(default_resolver=_value, scalar_map={kinds.LONG: long})
    return _Schema(**types, extensions=[Limits], config=config)
