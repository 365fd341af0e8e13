"""The routes of what there is: groups, topics, schemas, providers of tokens, owners and roles."""

from collections.abc import Awaitable
from functools import partial

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import Answer, empty_answer
from hermes_actors.management.http.openapi import GroupPatch, OAuthProviderPatch, TopicPatch
from hermes_actors.management.routes.route import SUBSCRIPTION, Add
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.topic import Topic

_CHANGE = "Change the fields that the body names"
_GROUP = "/groups/{group:str}"
_OWNERS = "/owners/sources"
_PROVIDERS = "/oauth/providers"
_PROVIDER = _PROVIDERS + "/{provider:str}"
_TOPIC = "/topics/{topic:str}"


def catalog_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/groups, /oauth/providers, /owners and /roles."""
    groups, providers, owners = parts.groups, parts.oauth_providers, parts.owners
    names, create = "Names of all providers of OAuth tokens", "Create a provider of OAuth tokens"
    roles, ask = "The caller's roles", partial(add, is_for_guests=True, has_query=False)
    return [
        add("GET /groups", groups.names, "Names of all groups"),
        add(f"GET {_GROUP}", groups.get, "One group", gives=Group),
        add("POST /groups", groups.create, "Create a group", status=201, takes=Group),
        add(f"PUT {_GROUP}", groups.update, "Change a group", status=204, takes=GroupPatch),
        add(f"DELETE {_GROUP}", groups.delete, "Remove an empty group"),
        add(f"GET {_PROVIDERS}", providers.names, names),
        add(
            f"GET {_PROVIDER}",
            providers.get,
            "One provider, its secret masked",
            gives=OAuthProvider,
        ),
        add(f"POST {_PROVIDERS}", providers.create, create, status=201, takes=OAuthProvider),
        add(f"PUT {_PROVIDER}", providers.update, _CHANGE, takes=OAuthProviderPatch),
        add(f"DELETE {_PROVIDER}", providers.delete, "Remove a provider"),
        add(f"GET {_OWNERS}", owners.sources, "Directories of owners"),
        add(f"GET {_OWNERS}/{{source:str}}", owners.found, "Search a directory for owners"),
        add(f"GET {_OWNERS}/{{source:str}}/{{owner:str}}", owners.one, "One owner"),
        ask("GET /roles", owners.roles, roles),
        ask("GET /roles/topics/{topic:str}", owners.roles, f"{roles} for a topic"),
        ask(f"GET /roles{SUBSCRIPTION}", owners.roles, f"{roles} for a subscription"),
    ]


def topic_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/topics, but for their subscriptions and their messages."""
    topics, schemas = parts.topics, parts.topic_schemas

    async def offline_clients(topic: str) -> None:
        raise Refused(
            f"No source of offline clients is plugged in for topic {topic}",
            ErrorCode.IMPLEMENTATION_ABSENT,
        )

    at, schema = partial(add, below=_TOPIC), partial(add, below=_TOPIC + "/schema")
    tell = partial(schema, answering=_schema_text)
    return [
        add("GET /topics", topics.names, "Names of topics"),
        at("GET", topics.get, "One topic", gives=Topic),
        add("POST /topics", topics.create, "Create a topic", status=201, takes=Topic),
        at("PUT", topics.update, _CHANGE, takes=TopicPatch),
        at("DELETE", topics.delete, "Remove a topic"),
        add(
            "GET /topics/owner/{source:str}/{owner:str}",
            topics.of_owner,
            "All topics of one owner",
            gives=list[Topic],
        ),
        at("GET /clients", topics.clients, "Owners of the topic's subscriptions"),
        at("GET /offline-clients-source", offline_clients, "Not available", needs_metadata=False),
        at(
            "GET /metrics",
            parts.statuses.topic_metrics,
            "Messages published to a topic, and their rates",
        ),
        tell(
            "GET",
            schemas.newest,
            "The schema that a topic's messages must fit; 204 when it has none",
        ),
        tell("GET /versions/{version:int}", schemas.version, "One version of a topic's schema"),
        tell("GET /ids/{schema_id:int}", schemas.by_id, "A topic's schema by its id"),
        schema(
            "POST", schemas.save, "Make the body the newest version of a topic's schema", status=201
        ),
        schema("DELETE", schemas.remove, "Remove all versions of a topic's schema"),
    ]


async def _schema_text(asked: Awaitable[str | None]) -> Answer:
    schema = await asked
    if schema is None:
        return empty_answer(204)
    return Response(schema.encode(), media_type="application/json", status_code=200)
