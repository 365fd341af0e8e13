"""A new group."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console
from hermes_actors.management.access.roles import Caller


def group_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/groups/new."""

    async def show(_: Caller, given: Mapping[str, str]) -> dict[str, Any]:
        return {"given": given, "sources": console.config.management.owner_sources}

    async def create(caller: Caller, given: Mapping[str, str]) -> tuple[str, str]:
        name, owner = given.get("groupName", "").strip(), given.get("owner.id", "").strip()
        group: dict[str, Any] = {"groupName": name}
        if owner:
            group["owner"] = {"source": given.get("owner.source", ""), "id": owner}
        await console.parts.groups.create(caller, group)
        return f"/console/topics?group={quote(name)}", f"Group {name} is created."

    return console.form("/groups/new", "group.html", show, create)
