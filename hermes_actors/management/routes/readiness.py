"""The routes of the datacentres that are to be published to."""

from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.catalog.readiness import DatacenterReadiness
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Name


def readiness_routes(gate: Gate, datacenters: DatacenterReadiness) -> list[HTTPRouteHandler]:
    """/readiness."""

    @get("/readiness/datacenters", summary="Which datacentres are ready to be published to")
    async def readiness(request: AnyRequest) -> Answer:
        return json_answer(await gate.act(request, datacenters.all))

    @post("/readiness/datacenters/{dc:str}", summary="Mark a datacentre as ready, or not")
    async def set_readiness(request: AnyRequest, dc: Name) -> Answer:
        await gate.act(request, datacenters.set, dc, await object_of(request))
        return empty_answer(202)

    return [readiness, set_readiness]
