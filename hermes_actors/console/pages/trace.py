"""Where is message X: its events in all datacentres, or where else it was looked for."""

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from hermes_actors.console.console import Console
from hermes_actors.management.http.answers import Answer, AnyRequest


def trace_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/trace?message=ID."""

    @get("/trace")
    async def trace(request: AnyRequest, message: FromQuery[str] = "") -> Answer:
        found, id_ = None, message.strip()
        if id_:
            found = await console.gate.act(request, console.parts.tracking.of_message, id_)
            found["events"].sort(key=lambda each: each["timestamp"])
        return await console.page(request, "trace.html", message=id_, found=found)

    return [trace]
