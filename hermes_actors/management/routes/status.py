"""The routes of how nodes fare, and of the datacentres that are to be published to."""

from collections.abc import Sequence

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from hermes_actors.errors import Unavailable
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
from hermes_actors.management.status.health import NodeHealth
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.status.dependencies import PROBES
from hermes_actors.telemetry.metrics import Metrics, render_in_turns

# The framework adds the charset to every text type.
_PROMETHEUS = "text/plain; version=0.0.4"


def status_routes(
    gate: Gate, node_health: NodeHealth, statuses: Statuses, metrics: Sequence[Metrics]
) -> list[HTTPRouteHandler]:
    """/status, but for its subscriptions, and probes; `metrics` is what Prometheus is shown."""

    @get("/status/health", summary="Whether the node can administer")
    async def health() -> Answer:
        try:
            return json_answer(await gate.read(node_health.shown))
        except Unavailable as error:
            return json_answer({"status": "DOWN", "reason": error.message}, 503)

    @get("/status/prometheus", summary="Metrics in Prometheus' text form")
    async def prometheus() -> Answer:
        return Response(await render_in_turns(metrics), media_type=_PROMETHEUS)

    @get(list(PROBES), summary="Kubernetes' probes: whether the node runs, has started, is ready")
    async def probe(request: AnyRequest) -> Answer:
        found = node_health.probe(request.url.path.rstrip("/"))
        return Response(found.text.encode(), media_type="text/plain", status_code=found.status)

    @get("/status/nodes", summary="All nodes of all datacentres, and how they fare")
    async def nodes() -> Answer:
        # Answered also while the metadata cannot be read: that is when it is wanted most.
        return json_answer(await gate.look(statuses.nodes))

    return [health, probe, prometheus, nodes]


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
