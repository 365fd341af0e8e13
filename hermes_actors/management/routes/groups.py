"""The routes of groups."""

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
