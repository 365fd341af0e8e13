"""The management REST API as one ASGI app, for a server on either loop."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from litestar import HttpMethod, Litestar, Response, Router, get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler

from hermes_actors.config import Config
from hermes_actors.errors import HermesError
from hermes_actors.management.access.table import rule_of
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import (
    JSON,
    Answer,
    AnyRequest,
    AsgiApp,
    WireRules,
    on_fault,
    on_hermes_error,
    on_http_error,
    on_stop,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.http.openapi import document
from hermes_actors.management.http.origins import ANY, Hosts, Origins
from hermes_actors.management.http.reference import reference_route
from hermes_actors.management.routes.audit import audit_routes
from hermes_actors.management.routes.catalog import catalog_routes, topic_routes
from hermes_actors.management.routes.cluster import operating_routes
from hermes_actors.management.routes.messages import message_routes, tail_route
from hermes_actors.management.routes.queries import query_routes
from hermes_actors.management.routes.registry import elsewhere_routes, registry_routes
from hermes_actors.management.routes.route import route
from hermes_actors.management.routes.status import overview_routes, probe_routes, unhealthy_route
from hermes_actors.management.routes.subscriptions import (
    dead_letter_routes,
    delivery_routes,
    pull_routes,
    subscription_routes,
)
from hermes_actors.runtime.bridge import BridgeClosed, TrioBridge
from hermes_actors.telemetry.metrics import Metrics


def _no_pages(_gate: Gate) -> Sequence[Router]:
    return ()


def build_app(
    parts: Administration,
    bridge: TrioBridge,
    config: Config,
    metrics: Sequence[Metrics] = (),
    pages: Callable[[Gate], Sequence[Router]] = _no_pages,
) -> AsgiApp:
    """The ASGI app. It works with any server on this thread, because it calls the parts through
    `bridge`. `metrics` are shown at `/status/prometheus`. `pages`: further routes, outside the API.
    """
    management = config.management
    authentication = management.authentication
    trusted = list(management.trusted_origins)
    if management.cors_allowed_origin != ANY:
        # "*" allows every page to read, but makes no page trusted for changes.
        trusted.append(management.cors_allowed_origin)
    gate = Gate(
        bridge,
        parts.security,
        parts.mode,
        parts.health.require_readable,
        Origins(trusted),
        guards_reads=authentication.enabled and authentication.reads == "authenticated",
    )
    add = partial(route, gate)
    routes = [
        *catalog_routes(add, parts),
        *topic_routes(add, parts),
        *(
            elsewhere_routes(", ".join(config.schema.urls))
            if config.schema.registry == "http"
            else registry_routes(add, parts.schema_registry)
        ),
        *subscription_routes(add, parts),
        *delivery_routes(add, parts),
        *pull_routes(add, parts),
        *dead_letter_routes(add, parts),
        *message_routes(add, parts),
        *query_routes(add, parts),
        tail_route(gate, parts.tails),
        *operating_routes(add, parts),
        *audit_routes(add, gate, parts.audit),
        *overview_routes(add, parts),
        unhealthy_route(gate, parts.overview),
        *probe_routes(parts.health, metrics),
    ]

    # Created at the start, because it would block the loop later.
    described = document(routes)

    @get("/openapi.json", include_in_schema=False)
    async def openapi() -> Answer:
        return Response(described, media_type=JSON)

    routes += [openapi, reference_route(described)]
    if management.graphql_enabled:
        # Imported here, because it takes 0.5 s.
        from hermes_actors.management.graphql.endpoint import graphql_route

        routes.append(graphql_route(gate, parts))
    app = _litestar(routes, pages(gate), gate.check)
    for each in app.routes:
        for verb in each.methods - {HttpMethod.OPTIONS}:
            rule_of(verb, each.path)
    hosts = Hosts([management.host, config.node, *management.allowed_hosts])
    timeout_s = management.body_timeout_ms / 1_000
    return WireRules(app, management.cors_allowed_origin, hosts, timeout_s)


def _litestar(
    routes: list[HTTPRouteHandler],
    pages: Sequence[Router],
    before_request: Callable[[AnyRequest], Awaitable[None]],
) -> Litestar:
    def on_missing(request: AnyRequest, error: HTTPException) -> Answer:
        """The answer of the pages that the path lies below, although it is none of theirs."""
        for each in pages:
            if request.url.path.startswith(f"{each.path}/"):
                answer: Answer = each.exception_handlers[HTTPException](request, error)
                return answer
        return on_http_error(request, error)

    return Litestar(
        [*routes, *pages],
        before_request=before_request,
        openapi_config=None,
        # The process configures logging; the framework would start a thread for it.
        logging_config=None,
        # The size of bodies is limited already.
        request_max_body_size=None,
        exception_handlers={
            HermesError: on_hermes_error,
            HTTPException: on_missing,
            BridgeClosed: on_stop,
            Exception: on_fault,
        },
    )
