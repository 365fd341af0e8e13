"""The state of all datacentres now, and what is wrong, worst first."""

from typing import Any

from litestar import get
from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console
from hermes_actors.management.http.answers import Answer, AnyRequest


def overview_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/overview, and its figures for htmx."""
    parts = console.parts

    async def gathered() -> dict[str, Any]:
        return {"nodes": await parts.statuses.nodes()}

    @get("/overview")
    async def overview(request: AnyRequest) -> Answer:
        shown = await console.gate.read(gathered, needs_metadata=False)
        return await console.page(request, "overview.html", **shown)

    @get("/overview/live")
    async def live() -> Answer:
        shown = await console.gate.read(gathered, needs_metadata=False)
        return await console.fragment("overview_live.html", **shown)

    return [overview, live]
