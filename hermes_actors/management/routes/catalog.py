"""The routes of groups, topics, topics' schemas, OAuth providers, owners and roles."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import Answer, empty_answer
from hermes_actors.management.http.openapi import (
    Configuration,
    GroupPatch,
    OAuthProviderPatch,
    TopicPatch,
    WholeTopic,
)
from hermes_actors.management.routes.route import SUBSCRIPTION, Add
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider

_GROUP = "/groups/{group:str}"
_OWNERS = "/owners/sources"
_PROVIDERS = "/oauth/providers"
_PROVIDER = _PROVIDERS + "/{provider:str}"
_TOPIC = "/topics/{topic:str}"


def catalog_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/groups, /oauth/providers, /owners, /apply and /roles."""
    groups, providers, owners = parts.groups, parts.oauth_providers, parts.owners
    roles = partial(add, call=owners.roles, has_query=False)
    return [
        add("GET /groups", groups.names),
        add(f"GET {_GROUP}", groups.get, gives=Group),
        add("POST /groups", groups.create, status=201, takes=Group),
        add(f"PUT {_GROUP}", groups.update, status=204, takes=GroupPatch),
        add(f"DELETE {_GROUP}", groups.delete),
        add(f"GET {_PROVIDERS}", providers.names),
        add(f"GET {_PROVIDER}", providers.get, gives=OAuthProvider),
        add(f"POST {_PROVIDERS}", providers.create, status=201, takes=OAuthProvider),
        add(f"PUT {_PROVIDER}", providers.update, takes=OAuthProviderPatch),
        add(f"DELETE {_PROVIDER}", providers.delete),
        add(f"GET {_OWNERS}", owners.sources),
        add(f"GET {_OWNERS}/{{source:str}}", owners.found),
        add(f"GET {_OWNERS}/{{source:str}}/{{owner:str}}", owners.one),
        add("POST /apply", parts.apply.run, takes=Configuration),
        roles("GET /roles"),
        roles("GET /roles/topics/{topic:str}"),
        roles(f"GET /roles{SUBSCRIPTION}"),
    ]


def topic_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/topics, without their subscriptions and messages."""
    topics, schemas = parts.topics, parts.topic_schemas
    at, schema = partial(add, below=_TOPIC), partial(add, below=_TOPIC + "/schema")
    tell = partial(schema, answering=_schema_text, or_status=204, gives=dict[str, Any])

    async def offline_clients(topic: str) -> None:
        """Not available."""
        raise Refused(
            f"No source of offline clients is plugged in for topic {topic}",
            ErrorCode.IMPLEMENTATION_ABSENT,
        )

    return [
        add("GET /topics", topics.names),
        at("GET", topics.get, gives=WholeTopic),
        add("POST /topics", topics.create, status=201, takes=WholeTopic),
        at("PUT", topics.update, takes=TopicPatch),
        at("DELETE", topics.delete),
        add("GET /topics/owner/{source:str}/{owner:str}", topics.of_owner, gives=list[WholeTopic]),
        at("GET /clients", topics.clients),
        at("GET /offline-clients-source", offline_clients, needs_metadata=False),
        at("GET /metrics", parts.statuses.topic_metrics),
        tell("GET", schemas.newest),
        tell("GET /versions/{version:int}", schemas.version),
        tell("GET /ids/{schema_id:int}", schemas.by_id),
        schema("POST", schemas.save, status=201),
        schema("DELETE", schemas.remove),
    ]


async def _schema_text(asked: Awaitable[str | None]) -> Answer:
    schema = await asked
    if schema is None:
        return empty_answer(204)
    return Response(schema.encode(), media_type="application/json", status_code=200)
