"""A new group; the owner of an existing one; its removal."""

from typing import Any
from urllib.parse import quote

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.console.console import SEEN, Console, form_of, require_current
from hermes_actors.errors import Refused
from hermes_actors.management.http.answers import Answer, AnyRequest


def group_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/groups/new, and below /console/groups/{group}: edit and remove."""
    groups, sources = console.parts.groups, console.config.management.owner_sources

    async def form_page(
        request: AnyRequest, group: str, given: dict[str, str], error: Refused | None = None
    ) -> Answer:
        return await console.page(
            request, "group.html", error=error, group=group, given=given, sources=sources
        )

    @get("/groups/new")
    async def new(request: AnyRequest) -> Answer:
        return await form_page(request, "", {})

    @post("/groups/new")
    async def create(request: AnyRequest) -> Answer:
        given = await form_of(request)
        name, owner = given.get("groupName", "").strip(), _owner(given)
        body = {"groupName": name, **({"owner": owner} if owner else {})}
        try:
            await console.gate.act(request, groups.create, body)
        except Refused as error:
            return await form_page(request, "", given, error)
        return console.done(f"/console/topics?group={quote(name)}", f"Group {name} is created.")

    @get("/groups/{group:str}/edit")
    async def edit(request: AnyRequest, group: FromPath[str]) -> Answer:
        owner = (await console.gate.read(groups.get, group)).get("owner") or {}
        given = {SEEN: str(owner)} | {f"owner.{each}": owner[each] for each in owner}
        return await form_page(request, group, given)

    @post("/groups/{group:str}/edit")
    async def change(request: AnyRequest, group: FromPath[str]) -> Answer:
        given = await form_of(request)
        try:
            found = await console.gate.read(groups.get, group)
            require_current(given, str(found.get("owner") or {}))
            await console.gate.act(request, groups.update, group, {"owner": _owner(given)})
        except Refused as error:
            return await form_page(request, group, given, error)
        return console.done("/console/groups", f"Group {group} is changed.")

    @get("/groups/{group:str}/remove")
    async def ask(request: AnyRequest, group: FromPath[str]) -> Answer:
        await console.gate.read(groups.get, group)
        return await console.page(request, "group_remove.html", group=group)

    @post("/groups/{group:str}/remove")
    async def remove(request: AnyRequest, group: FromPath[str]) -> Answer:
        await form_of(request)
        try:
            await console.gate.act(request, groups.delete, group)
        except Refused as error:
            return await console.page(request, "group_remove.html", error=error, group=group)
        return console.done("/console/groups", f"Group {group} is removed.")

    return [new, create, edit, change, ask, remove]


def _owner(given: dict[str, str]) -> dict[str, Any] | None:
    """The owner in the form; None if it has none."""
    id_ = given.get("owner.id", "").strip()
    return {"source": given.get("owner.source", ""), "id": id_} if id_ else None
