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
    """/console/audit, and /console/topics/{topic}/changes."""
    parts, gate = console.parts, console.gate

    @get("/audit")
    async def page(
        request: AnyRequest,
        resource: _Text = "",
        by: _Text = "",
        since: _Text = "",
        before: _Text = "",
    ) -> Answer:
        asked = resource.strip(), by.strip(), since.strip()
        chosen = dict(zip(("resource", "by", "since"), asked, strict=True))
        found: dict[str, Any] = {"changes": [], "next": None, "isComplete": True}
        error = None
        try:
            found = await gate.act(request, parts.audit.changes, *asked, "", STEP, before)
        except Refused as refused:
            error = refused
        return await console.page(request, "audit.html", error=error, chosen=chosen, **found)

    async def of_topic(caller: Caller, topic: str, before: str) -> dict[str, Any]:
        shown = about(parts, caller, topic)
        resource = f"topics/{topic}"
        return shown | await parts.audit.changes(caller, resource, limit=STEP, before=before)

    @get("/topics/{topic:str}/changes")
    async def topic_page(request: AnyRequest, topic: FromPath[str], before: _Text = "") -> Answer:
        found = await gate.act(request, of_topic, topic, before)
        return await console.page(request, "topic_changes.html", **found)

    return [page, topic_page]
