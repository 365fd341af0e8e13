"""Who changed what, when and why: everything, and one topic with all that belongs to it."""

from typing import Annotated, Any

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from hermes_actors.console.console import Console
from hermes_actors.console.pages.topic import about
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest

STEP = 50
"""How many changes a page shows."""

_Text = Annotated[str, QueryParameter(max_length=500)]


def audit_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/audit, and /console/topics/{topic}/audit."""
    parts, gate = console.parts, console.gate

    async def searched(caller: Caller, chosen: dict[str, str], before: str) -> dict[str, Any]:
        return await parts.audit.changes(caller, **chosen, limit=STEP, before=before)

    @get("/audit")
    async def page(request: AnyRequest) -> Answer:
        asked = request.query_params
        chosen = {each: asked.get(each, "").strip() for each in ("resource", "by", "since")}
        found: dict[str, Any] = {"changes": [], "next": None, "isComplete": True}
        error = None
        try:
            found = await gate.act(request, searched, chosen, asked.get("before", ""))
        except Refused as refused:
            error = refused
        return await console.page(request, "audit.html", error=error, chosen=chosen, **found)

    async def of_topic(caller: Caller, topic: str, before: str) -> dict[str, Any]:
        shown = about(parts, caller, topic)
        resource = f"topics/{topic}"
        return shown | await parts.audit.changes(caller, resource, limit=STEP, before=before)

    @get("/topics/{topic:str}/audit")
    async def topic_page(request: AnyRequest, topic: FromPath[str], before: _Text = "") -> Answer:
        found = await gate.act(request, of_topic, topic, before)
        return await console.page(request, "topic_audit.html", **found)

    return [page, topic_page]
