"""Who changed what, when, and why."""

from typing import Any

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from hermes_actors.console.console import Console
from hermes_actors.errors import Refused
from hermes_actors.management.http.answers import Answer, AnyRequest

CHANGES = 50
"""The changes of a page."""

_NOTHING: dict[str, Any] = {"changes": [], "next": None, "isComplete": True}


def audit_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/audit."""
    trail = console.parts.audit

    @get("/audit")
    async def audit(
        request: AnyRequest,
        resource: FromQuery[str] = "",
        by: FromQuery[str] = "",
        since: FromQuery[str] = "",
        until: FromQuery[str] = "",
        before: FromQuery[str] = "",
    ) -> Answer:
        chosen = {"resource": resource, "by": by, "since": since, "until": until}
        chosen = {field: text.strip() for field, text in chosen.items()}
        found, refused = _NOTHING, None
        try:
            found = await console.gate.act(
                request,
                lambda caller: trail.changes(caller, **chosen, limit=CHANGES, before=before),
            )
        except Refused as error:
            refused = error
        return await console.page(
            request, "audit.html", error=refused, chosen=chosen, before=before, found=found
        )

    return [audit]
