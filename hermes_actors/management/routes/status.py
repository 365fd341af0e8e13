"""The routes of status: overviews, health, unhealthy subscriptions, probes and Prometheus."""

from collections.abc import Awaitable, Sequence
from typing import Annotated, Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import Answer, AnyRequest, json_answer
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.route import SUBSCRIPTION, Add
from hermes_actors.management.status.health import NodeHealth
from hermes_actors.management.status.overview import SORTS, Overview, OverviewQuery
from hermes_actors.status.dependencies import PROBES
from hermes_actors.telemetry.metrics import Metrics, render_in_turns

# The framework adds the charset to every text type.
_PROMETHEUS = "text/plain; version=0.0.4"

_Text = str | None
_OwnerSource = Annotated[_Text, QueryParameter(name="ownerSourceName")]
_OwnerId = Annotated[_Text, QueryParameter(name="ownerId")]
_Severity = Annotated[
    bool,
    QueryParameter(name="respectMonitoringSeverity", description="Leave out NON_IMPORTANT ones"),
]
_Names = Annotated[list[str] | None, QueryParameter(name="subscriptionNames")]
_Topics = Annotated[list[str] | None, QueryParameter(name="qualifiedTopicNames")]
_Limit = Annotated[int | None, QueryParameter(name="limit", description="Maximum number", ge=1)]


def overview_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/status/subscriptions, /status/topics, /status/nodes, /status/health, /stats, and what else
    Hermes' console reads.
    """
    overview, console = parts.overview, parts.hermes_console
    dashboards, tracking = "GET /dashboards", "GET /tracking-urls"

    async def rows(
        topic_name: _Text = None, unhealthy: bool = False, sort: str = "name", limit: _Limit = None
    ) -> dict[str, Any]:
        """The state of all subscriptions, one row each."""
        wanted = OverviewQuery(topics=[topic_name] if topic_name else (), is_unhealthy=unhealthy)
        return await overview.rows(wanted, _known(sort), limit)

    async def topics(sort: str = "name", limit: _Limit = None) -> dict[str, Any]:
        """The state of all topics, one row each."""
        return await overview.topics(_known(sort), limit)

    return [
        add("GET /status/subscriptions", rows),
        add("GET /status/topics", topics),
        add("GET /stats", overview.stats),
        add("GET /inactive-topics", parts.inactive_topics.all),
        add("GET /monitoring/consumer-groups", parts.balancing.unassigned),
        add("GET /console", console.configuration, needs_metadata=False),
        *(
            add(f"{verb}{path}", call, has_query=False, needs_metadata=False)
            for verb, call in ((dashboards, console.dashboard), (tracking, console.tracking))
            for path in ("/topics/{topic:str}", SUBSCRIPTION)
        ),
        # Operators need these most while the metadata cannot be read.
        add("GET /status/nodes", parts.statuses.nodes, needs_metadata=False),
        add(
            "GET /status/health",
            parts.health.shown,
            needs_metadata=False,
            answering=_up_or_down,
            or_status=503,
        ),
    ]


def probe_routes(node_health: NodeHealth, metrics: Sequence[Metrics]) -> list[HTTPRouteHandler]:
    """Kubernetes' probes, and `metrics` for Prometheus."""

    @get(
        list(PROBES),
        summary="Kubernetes' probes: whether the node runs, has started, is ready",
        media_type="text/plain",
        responses={503: ResponseSpec(str, False, "Why it is not", "text/plain")},
    )
    async def probe(request: AnyRequest) -> Answer:
        found = node_health.probe(request.url.path.rstrip("/"))
        return Response(found.text.encode(), media_type="text/plain", status_code=found.status)

    @get("/status/prometheus", summary="Metrics in Prometheus' text form", media_type="text/plain")
    async def prometheus() -> Answer:
        return Response(await render_in_turns(metrics), media_type=_PROMETHEUS)

    return [probe, prometheus]


def unhealthy_route(gate: Gate, overview: Overview) -> HTTPRouteHandler:
    """/unhealthy, as JSON or text, depending on the Accept header."""

    @get(
        "/unhealthy",
        summary="Subscriptions with problems, as JSON or as lines of text",
        responses={200: ResponseSpec(list[dict[str, Any]], False, "As JSON")},
    )
    async def unhealthy(
        request: AnyRequest,
        owner_source: _OwnerSource = None,
        owner_id: _OwnerId = None,
        respectMonitoringSeverity: _Severity = True,  # noqa: N803 -- as errors name it
        names: _Names = None,
        topics: _Topics = None,
    ) -> Answer:
        wanted = OverviewQuery(
            topics=topics or (),
            names=names or (),
            owner_source=owner_source,
            owner_id=owner_id,
            is_unhealthy=True,
            leaves_out_unimportant=respectMonitoringSeverity,
        )
        found = await gate.read(overview.unhealthy, wanted)
        if not request.headers.get("accept", "").startswith("text/plain"):
            return json_answer(found)
        lines = [
            f"{each['name']} - {'; '.join(p['description'] for p in each['problems'])}"
            for each in found
        ]
        return Response("\r\n".join(lines).encode(), media_type="text/plain")

    return unhealthy


async def _up_or_down(asked: Awaitable[dict[str, Any]]) -> Answer:
    try:
        return json_answer(await asked)
    except Unavailable as error:
        return json_answer({"status": "DOWN", "reason": error.message}, 503)


def _known(sort: str) -> str:
    if sort not in SORTS:
        raise Refused(f"sort: there is no '{sort}'; use {', '.join(SORTS)}")
    return sort
