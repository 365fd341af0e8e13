"""The routes of providers of OAuth tokens."""

from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Name


def oauth_routes(gate: Gate, administration: Administration) -> list[HTTPRouteHandler]:
    """/oauth/providers."""
    providers = administration.oauth_providers

    @get("/oauth/providers", summary="Names of all providers of OAuth tokens")
    async def list_providers() -> Answer:
        return json_answer(await gate.read(providers.names))

    @get("/oauth/providers/{provider:str}", summary="One provider, its secret masked")
    async def get_provider(provider: Name) -> Answer:
        return json_answer(await gate.read(providers.get, provider))

    @post("/oauth/providers", summary="Create a provider of OAuth tokens")
    async def create_provider(request: AnyRequest) -> Answer:
        await gate.act(request, providers.create, await object_of(request))
        return empty_answer(201)

    @put("/oauth/providers/{provider:str}", summary="Change the fields that the body names")
    async def update_provider(request: AnyRequest, provider: Name) -> Answer:
        await gate.act(request, providers.update, provider, await object_of(request))
        return empty_answer(200)

    @delete("/oauth/providers/{provider:str}", summary="Remove a provider", status_code=200)
    async def delete_provider(request: AnyRequest, provider: Name) -> Answer:
        await gate.act(request, providers.delete, provider)
        return empty_answer(200)

    return [list_providers, get_provider, create_provider, update_provider, delete_provider]
