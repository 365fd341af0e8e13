"""The routes of groups, topics, subscriptions and owners: read, hand over, answer."""

from typing import Annotated, Any

from litestar import Response, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.administration import Administration
from hermes_actors.management.answers import (
    AnyRequest,
    body_of,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.decoding import json_value
from hermes_actors.management.gate import Gate
from hermes_actors.management.warnings import HEADER

Answer = Response[bytes]
Name = FromPath[str]
Flag = FromQuery[bool]
GroupFilter = Annotated[str | None, QueryParameter(name="groupName")]

_SUBSCRIPTIONS = "/topics/{topic:str}/subscriptions"
_SUBSCRIPTION = _SUBSCRIPTIONS + "/{name:str}"


def group_routes(gate: Gate, administration: Administration) -> list[HTTPRouteHandler]:
    """/groups."""
    groups = administration.groups

    @get("/groups", summary="Names of all groups")
    async def list_groups() -> Answer:
        return json_answer(await gate.read(groups.names))

    @get("/groups/{group:str}", summary="One group")
    async def get_group(group: Name) -> Answer:
        return json_answer(await gate.read(groups.get, group))

    @post("/groups", summary="Create a group")
    async def create_group(request: AnyRequest) -> Answer:
        await gate.act(request, groups.create, await object_of(request))
        return empty_answer(201)

    @put("/groups/{group:str}", summary="Change a group", status_code=204)
    async def update_group(request: AnyRequest, group: Name) -> None:
        await gate.act(request, groups.update, group, await object_of(request))

    @delete("/groups/{group:str}", summary="Remove an empty group", status_code=200)
    async def delete_group(request: AnyRequest, group: Name) -> Answer:
        await gate.act(request, groups.delete, group)
        return empty_answer(200)

    return [list_groups, get_group, create_group, update_group, delete_group]


def topic_routes(gate: Gate, administration: Administration) -> list[HTTPRouteHandler]:
    """/topics."""
    topics = administration.topics

    @get("/topics", summary="Names of topics")
    async def list_topics(group: GroupFilter = None, tracked: Flag = False) -> Answer:
        async def names() -> list[str]:
            return await topics.names(group, tracked=tracked)

        return json_answer(await gate.read(names))

    @get("/topics/{topic:str}", summary="One topic")
    async def get_topic(topic: Name) -> Answer:
        return json_answer(await gate.read(topics.get, topic))

    @post("/topics", summary="Create a topic")
    async def create_topic(request: AnyRequest) -> Answer:
        await gate.act(request, topics.create, await object_of(request))
        return empty_answer(201)

    @put("/topics/{topic:str}", summary="Change the fields that the body names")
    async def update_topic(request: AnyRequest, topic: Name) -> Answer:
        await gate.act(request, topics.update, topic, await object_of(request))
        return empty_answer(200)

    @delete("/topics/{topic:str}", summary="Remove a topic", status_code=200)
    async def delete_topic(request: AnyRequest, topic: Name) -> Answer:
        await gate.act(request, topics.delete, topic)
        return empty_answer(200)

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

    @get("/topics/{topic:str}/preview", summary="Messages that were published lately")
    async def previews(request: AnyRequest, topic: Name) -> Answer:
        return json_answer(await gate.act(request, administration.previews.of_topic, topic))

    @get("/topics/{topic:str}/preview/{index:int}", summary="One of them, as its bytes")
    async def preview(request: AnyRequest, topic: Name, index: FromPath[int]) -> Answer:
        content = await gate.act(request, administration.previews.one, topic, index)
        return Response(content, media_type="application/octet-stream")

    @get("/topics/{topic:str}/metrics", summary="What is published to a topic, and how fast")
    async def topic_metrics(topic: Name) -> Answer:
        return json_answer(await gate.read(administration.statuses.topic_metrics, topic))

    return [
        list_topics,
        get_topic,
        create_topic,
        update_topic,
        delete_topic,
        topics_of_owner,
        topic_clients,
        offline_clients,
        topic_metrics,
        previews,
        preview,
    ]


def subscription_routes(gate: Gate, administration: Administration) -> list[HTTPRouteHandler]:
    """/topics/{topic}/subscriptions and /subscriptions."""
    subscriptions = administration.subscriptions

    async def warned(answer: Answer, topic: str, name: str) -> Answer:
        warnings = await gate.read(administration.warnings_of, topic, name)
        if warnings:
            text = "; ".join(warnings).encode("ascii", "backslashreplace").decode()
            answer.headers[HEADER] = "".join(c for c in text if c.isprintable())
        return answer

    @get(_SUBSCRIPTIONS, summary="Names of a topic's subscriptions")
    async def list_subscriptions(topic: Name, tracked: Flag = False) -> Answer:
        async def names() -> list[str]:
            return await subscriptions.names(topic, tracked=tracked)

        return json_answer(await gate.read(names))

    @post(_SUBSCRIPTIONS, summary="Create a subscription")
    async def create_subscription(request: AnyRequest, topic: Name) -> Answer:
        body = await object_of(request)
        await gate.act(request, subscriptions.create, topic, body)
        return await warned(empty_answer(201), topic, str(body.get("name")))

    @get(_SUBSCRIPTION, summary="One subscription, its secrets masked")
    async def get_subscription(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(subscriptions.get, topic, name))

    @put(_SUBSCRIPTION, summary="Change the fields that the body names")
    async def update_subscription(request: AnyRequest, topic: Name, name: Name) -> Answer:
        patch = await object_of(request)
        await gate.act(request, subscriptions.update, topic, name, patch)
        return await warned(empty_answer(200), topic, name)

    @delete(_SUBSCRIPTION, summary="Remove a subscription", status_code=200)
    async def delete_subscription(request: AnyRequest, topic: Name, name: Name) -> Answer:
        await gate.act(request, subscriptions.delete, topic, name)
        return empty_answer(200)

    @get(_SUBSCRIPTION + "/state", summary="PENDING, ACTIVE or SUSPENDED")
    async def get_state(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(subscriptions.state, topic, name))

    @put(_SUBSCRIPTION + "/state", summary="Suspend or resume")
    async def set_state(request: AnyRequest, topic: Name, name: Name) -> Answer:
        state = json_value(await body_of(request))
        await gate.act(request, subscriptions.set_state, topic, name, state)
        return empty_answer(200)

    @get("/subscriptions/owner/{source:str}/{owner:str}", summary="All subscriptions of one owner")
    async def subscriptions_of_owner(source: Name, owner: Name) -> Answer:
        return json_answer(await gate.read(subscriptions.of_owner, source, owner))

    return [
        list_subscriptions,
        create_subscription,
        get_subscription,
        update_subscription,
        delete_subscription,
        get_state,
        set_state,
        subscriptions_of_owner,
    ]


def subscription_status_routes(
    gate: Gate, administration: Administration
) -> list[HTTPRouteHandler]:
    """How a subscription fares."""
    statuses = administration.statuses

    @get(_SUBSCRIPTION + "/metrics", summary="What was delivered, how fast, and what failed")
    async def metrics(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(statuses.subscription_metrics, topic, name))

    @get(_SUBSCRIPTION + "/metrics/persistent", summary="A subscription's counters")
    async def counters(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(statuses.subscription_counters, topic, name))

    @get(_SUBSCRIPTION + "/health", summary="HEALTHY, UNHEALTHY with problems, or NO_DATA")
    async def health(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(statuses.health, topic, name))

    @get(_SUBSCRIPTION + "/why", summary="For each node why it does not deliver, or that it does")
    async def why(topic: Name, name: Name) -> Answer:
        async def explained() -> dict[str, Any]:
            found = await statuses.why(topic, name)
            return {**found, **await administration.dead_letters.outlook(topic, name)}

        return json_answer(await gate.read(explained))

    return [metrics, counters, health, why]


def other_routes(gate: Gate, administration: Administration) -> list[HTTPRouteHandler]:
    """/roles, /owners, /stats, /mode, /readiness and /filters."""

    @get("/roles", summary="The caller's roles")
    async def roles(request: AnyRequest) -> Answer:
        return json_answer(await gate.greet(request, administration.roles))

    @get("/roles/topics/{topic:str}", summary="The caller's roles for a topic")
    async def topic_roles(request: AnyRequest, topic: Name) -> Answer:
        return json_answer(await gate.greet(request, administration.roles, topic))

    @get("/roles" + _SUBSCRIPTION, summary="The caller's roles for a subscription")
    async def subscription_roles(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.greet(request, administration.roles, topic, name))

    @get("/owners/sources", summary="Directories of owners")
    async def owner_sources() -> Answer:
        return json_answer(await gate.read(administration.owner_sources))

    @get("/owners/sources/{source:str}", summary="Search a directory for owners")
    async def find_owners(source: Name, search: FromQuery[str] = "") -> Answer:
        return json_answer(await gate.read(administration.owners_found, source, search))

    @get("/owners/sources/{source:str}/{owner:str}", summary="One owner")
    async def get_owner(source: Name, owner: Name) -> Answer:
        return json_answer(await gate.read(administration.owner, source, owner))

    @get("/stats", summary="How many topics and subscriptions there are")
    async def stats() -> Answer:
        return json_answer(await gate.read(administration.stats))

    @get("/mode", summary="readWrite, readOnly or readOnlyAdmin")
    async def get_mode() -> Answer:
        return Response(
            (await gate.look(administration.mode.get)).encode(), media_type="text/plain"
        )

    @post("/mode", summary="Let nobody but administrators change something, or everybody again")
    async def set_mode(request: AnyRequest, mode: FromQuery[str]) -> Answer:
        await gate.act(request, administration.mode.set, mode)
        return empty_answer(200)

    @get("/readiness/datacenters", summary="Which datacentres are ready to be published to")
    async def readiness(request: AnyRequest) -> Answer:
        return json_answer(await gate.act(request, administration.readiness.all))

    @post("/readiness/datacenters/{dc:str}", summary="Mark a datacentre as ready, or not")
    async def set_readiness(request: AnyRequest, dc: Name) -> Answer:
        await gate.act(request, administration.readiness.set, dc, await object_of(request))
        return empty_answer(202)

    @post("/filters/{topic:str}", summary="Whether a message passes filters", status_code=200)
    async def try_filters(request: AnyRequest, topic: Name) -> Answer:
        body = await object_of(request)
        return json_answer(await gate.act(request, administration.try_filters, topic, body))

    return [
        try_filters,
        get_mode,
        set_mode,
        readiness,
        set_readiness,
        roles,
        topic_roles,
        subscription_roles,
        owner_sources,
        find_owners,
        get_owner,
        stats,
    ]
