"""The routes that groups, topics and providers of OAuth tokens have alike."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.catalog.groups import Groups
from hermes_actors.management.catalog.oauth_providers import OAuthProviders
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Name


def group_routes(gate: Gate, groups: Groups) -> list[HTTPRouteHandler]:
    """/groups."""

    @get("/groups", summary="Names of all groups")
    async def list_groups() -> Answer:
        return json_answer(await gate.read(groups.names))

    about = ("One group", "Create a group", "Change a group", "Remove an empty group")
    routes = resource_routes(gate, groups, "/groups", "group", about, changed_status=204)
    return [list_groups, *routes]


def oauth_routes(gate: Gate, providers: OAuthProviders) -> list[HTTPRouteHandler]:
    """/oauth/providers."""

    @get("/oauth/providers", summary="Names of all providers of OAuth tokens")
    async def list_providers() -> Answer:
        return json_answer(await gate.read(providers.names))

    about = (
        "One provider, its secret masked",
        "Create a provider of OAuth tokens",
        "Change the fields that the body names",
        "Remove a provider",
    )
    routes = resource_routes(gate, providers, "/oauth/providers", "provider", about)
    return [list_providers, *routes]


def resource_routes(
    gate: Gate,
    kept: Groups | OAuthProviders | Topics,
    route: str,
    noun: str,
    about: tuple[str, str, str, str],
    changed_status: int = 200,
) -> list[HTTPRouteHandler]:
    """Get, create, change and remove: `about` says so, and `noun` is what OpenAPI calls one."""

    async def get_one(**names: str) -> Answer:
        return json_answer(await gate.read(kept.get, names[noun]))

    async def create_one(request: AnyRequest) -> Answer:
        await gate.act(request, kept.create, await object_of(request))
        return empty_answer(201)

    async def update_one(request: AnyRequest, **names: str) -> Answer | None:
        await gate.act(request, kept.update, names[noun], await object_of(request))
        return None if changed_status == 204 else empty_answer(changed_status)

    async def delete_one(request: AnyRequest, **names: str) -> Answer:
        await gate.act(request, kept.delete, names[noun])
        return empty_answer(200)

    def named(handler: Callable[..., Awaitable[Any]], returned: Any = Answer) -> Any:
        """The handler, as if it had been written for the noun alone: OpenAPI goes by that."""
        given = [*inspect.signature(handler).parameters.values()]
        if given[-1].kind is inspect.Parameter.VAR_KEYWORD:
            given[-1] = inspect.Parameter(noun, inspect.Parameter.KEYWORD_ONLY, annotation=Name)
        handler.__name__ = handler.__name__.replace("one", noun)
        handler.__dict__["__signature__"] = inspect.Signature(given, return_annotation=returned)
        handler.__annotations__ = {each.name: each.annotation for each in given}
        handler.__annotations__["return"] = returned
        return handler

    one, (shown, created, changed, removed) = f"{route}/{{{noun}:str}}", about
    returned = None if changed_status == 204 else Answer
    return [
        get(one, summary=shown)(named(get_one)),
        post(route, summary=created)(named(create_one)),
        put(one, summary=changed, status_code=changed_status)(named(update_one, returned)),
        delete(one, summary=removed, status_code=200)(named(delete_one)),
    ]
