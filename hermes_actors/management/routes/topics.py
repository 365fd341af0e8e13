"""The routes of topics."""

from typing import Annotated

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.http.answers import Answer, json_answer
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Flag, Name
from hermes_actors.management.routes.resources import resource_routes
from hermes_actors.management.status.statuses import Statuses

_GroupFilter = Annotated[str | None, QueryParameter(name="groupName")]


def topic_routes(gate: Gate, topics: Topics, statuses: Statuses) -> list[HTTPRouteHandler]:
    """/topics, but for their subscriptions and their messages."""

    @get("/topics", summary="Names of topics")
    async def list_topics(group: _GroupFilter = None, tracked: Flag = False) -> Answer:
        async def names() -> list[str]:
            return await topics.names(group, tracked=tracked)

        return json_answer(await gate.read(names))

    about = (
        "One topic",
        "Create a topic",
        "Change the fields that the body names",
        "Remove a topic",
    )

    @get("/topics/owner/{source:str}/{owner:str}", summary="All topics of one owner")
    async def topics_of_owner(source: Name, owner: Name) -> Answer:
        return json_answer(await gate.read(topics.of_owner, source, owner))

    @get("/topics/{topic:str}/clients", summary="Owners of the topic's subscriptions")
    async def topic_clients(topic: Name) -> Answer:
        return json_answer(await gate.read(topics.clients, topic))

    @get("/topics/{topic:str}/offline-clients-source", summary="Not available")
    async def offline_clients(topic: Name) -> Answer:
        raise Refused(
            f"No source of offline clients is plugged in for topic {topic}",
            ErrorCode.IMPLEMENTATION_ABSENT,
        )

    @get("/topics/{topic:str}/metrics", summary="Messages published to a topic, and their rates")
    async def topic_metrics(topic: Name) -> Answer:
        return json_answer(await gate.read(statuses.topic_metrics, topic))

    return [
        list_topics,
        *resource_routes(gate, topics, "/topics", "topic", about),
        topics_of_owner,
        topic_clients,
        offline_clients,
        topic_metrics,
    ]
