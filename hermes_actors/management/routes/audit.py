"""The routes of changes: a search, and a stream of server-sent events."""

from typing import Annotated

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, HeaderParameter
from litestar.response import Stream

from hermes_actors.management.audit import AuditTrail
from hermes_actors.management.http.answers import AnyRequest
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.route import Add
from hermes_actors.management.routes.streams import Streams

_EVENTS = "text/event-stream"


def audit_routes(add: Add, gate: Gate, trail: AuditTrail) -> list[HTTPRouteHandler]:
    """/audit and /events."""
    streams = Streams(gate, "changes", _EVENTS)

    @get(
        "/events",
        summary="Changes as server-sent events",
        responses={200: ResponseSpec(str, False, "Events", _EVENTS)},
    )
    async def events(
        request: AnyRequest,
        resource: FromQuery[str] = "",
        since: FromQuery[str] = "",
        last_id: Annotated[str, HeaderParameter(name="Last-Event-ID")] = "",
    ) -> Stream:
        return await streams.answer(request, trail.stream, resource, since, last_id)

    return [add("GET /audit", trail.changes), events]
