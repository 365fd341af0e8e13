"""A new group; the owner of an existing one; its removal."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console
from hermes_actors.management.access.roles import Caller


def group_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/groups/new, and below /console/groups/{group}: edit and remove."""
    groups, sources = console.parts.groups, console.config.management.owner_sources

    async def show(_caller: Caller, given: Mapping[str, str], group: str = "") -> dict[str, Any]:
        if group and "owner.id" not in given:
            owner = (await groups.get(group)).get("owner") or {}
            given = {f"owner.{each}": owner[each] for each in owner}
        return {"group": group, "given": given, "sources": sources}

    async def create(caller: Caller, given: Mapping[str, str]) -> tuple[str, str]:
        name, owner = given.get("groupName", "").strip(), _owner(given)
        await groups.create(caller, {"groupName": name, **({"owner": owner} if owner else {})})
        return f"/console/topics?group={quote(name)}", f"Group {name} is created."

    async def change(caller: Caller, given: Mapping[str, str], group: str) -> tuple[str, str]:
        await groups.update(caller, group, {"owner": _owner(given)})
        return "/console/groups", f"Group {group} is changed."

    async def remove(caller: Caller, _: Mapping[str, str], group: str) -> tuple[str, str]:
        await groups.delete(caller, group)
        return "/console/groups", f"Group {group} is removed."

    return [
        *console.form("/groups/new", "group.html", show, create),
        *console.form("/groups/{group:str}/edit", "group.html", show, change),
        *console.form("/groups/{group:str}/remove", "group_remove.html", show, remove),
    ]


def _owner(given: Mapping[str, str]) -> dict[str, Any] | None:
    """The owner in the form; None if it has none."""
    id_ = given.get("owner.id", "").strip()
    return {"source": given.get("owner.source", ""), "id": id_} if id_ else None
