"""The routes that look over all there is: how many, how they fare, which are not well."""

from typing import Annotated

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery, QueryParameter

from hermes_actors.errors import Refused
from hermes_actors.management.http.answers import Answer, AnyRequest, json_answer
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.status.overview import SORTS, Overview, OverviewQuery

_Text = str | None
_OwnerSource = Annotated[_Text, QueryParameter(name="ownerSourceName")]
_OwnerId = Annotated[_Text, QueryParameter(name="ownerId")]
_Severity = Annotated[
    bool,
    QueryParameter(name="respectMonitoringSeverity", description="Leave out NON_IMPORTANT ones"),
]
_Names = Annotated[list[str] | None, QueryParameter(name="subscriptionNames")]
_Topics = Annotated[list[str] | None, QueryParameter(name="qualifiedTopicNames")]
_Topic = Annotated[_Text, QueryParameter(name="topicName")]


def overview_routes(gate: Gate, overview: Overview) -> list[HTTPRouteHandler]:
    """/status/subscriptions, /unhealthy and /stats."""

    @get("/status/subscriptions", summary="How all subscriptions fare, a row for each")
    async def rows(
        topic: _Topic = None, unhealthy: FromQuery[bool] = False, sort: FromQuery[str] = "name"
    ) -> Answer:
        if sort not in SORTS:
            raise Refused(f"sort: there is no '{sort}'; use {', '.join(SORTS)}")
        wanted = OverviewQuery(topics=[topic] if topic else (), is_unhealthy=unhealthy)
        return json_answer(await gate.read(overview.rows, wanted, sort))

    @get("/unhealthy", summary="Subscriptions with problems, as JSON or as lines of text")
    async def unhealthy(
        request: AnyRequest,
        owner_source: _OwnerSource = None,
        owner_id: _OwnerId = None,
        respects_severity: _Severity = True,
        names: _Names = None,
        topics: _Topics = None,
    ) -> Answer:
        wanted = OverviewQuery(
            topics=topics or (),
            names=names or (),
            owner_source=owner_source,
            owner_id=owner_id,
            is_unhealthy=True,
            leaves_out_unimportant=respects_severity,
        )
        found = await gate.read(overview.unhealthy, wanted)
        if not request.headers.get("accept", "").startswith("text/plain"):
            return json_answer(found)
        lines = [
            f"{each['name']} - {'; '.join(p['description'] for p in each['problems'])}"
            for each in found
        ]
        return Response("\r\n".join(lines).encode(), media_type="text/plain")

    @get("/stats", summary="How many topics and subscriptions there are")
    async def stats() -> Answer:
        return json_answer(await gate.read(overview.stats))

    return [rows, unhealthy, stats]
