"""The management REST API as one ASGI app, for a server on either loop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from typing import Annotated, Any

from litestar import Litestar, Response, get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from hermes_actors import __version__
from hermes_actors.config import Config
from hermes_actors.errors import HermesError, Unavailable
from hermes_actors.management.administration import Administration
from hermes_actors.management.answers import (
    BODY_BYTES_MAX,
    AnyRequest,
    AsgiApp,
    WireRules,
    json_answer,
    on_fault,
    on_hermes_error,
    on_http_error,
    on_stop,
)
from hermes_actors.management.deadletter_routes import dead_letter_routes
from hermes_actors.management.gate import Gate
from hermes_actors.management.openapi import document
from hermes_actors.management.origins import ANY, Origins
from hermes_actors.management.routes import (
    group_routes,
    other_routes,
    subscription_routes,
    subscription_status_routes,
    topic_routes,
)
from hermes_actors.management.routes_balancing import (
    balancer_routes,
    constraint_routes,
    drain_routes,
)
from hermes_actors.management.routes_oauth import oauth_routes
from hermes_actors.management.routes_offsets import offset_routes
from hermes_actors.management.routes_overview import overview_routes
from hermes_actors.management.routes_signing import signing_routes
from hermes_actors.management.tail import Tail
from hermes_actors.runtime.bridge import BridgeClosed, TrioBridge
from hermes_actors.telemetry.metrics import Metrics, render_in_turns

TAILS_MAX = 64
"""Streams of messages that are open at one time."""

# The framework adds the charset to every text type.
_PROMETHEUS = "text/plain; version=0.0.4"
_NDJSON = "application/x-ndjson"

StartParameter = Annotated[
    str,
    QueryParameter(name="from", description="`beginning`, `end`, or an ISO 8601 time"),
]


def build_app(
    administration: Administration,
    bridge: TrioBridge,
    config: Config,
    metrics: Sequence[Metrics] = (),
) -> AsgiApp:
    """The ASGI app. All state is reached through `bridge`, so any server on this thread will do.

    `metrics` is what `/status/prometheus` shows.
    """
    management = config.management
    authentication = management.authentication
    trusted = list(management.trusted_origins)
    if management.cors_allowed_origin != ANY:
        # Any page may read what everybody may; that does not make it one that may change it.
        trusted.append(management.cors_allowed_origin)
    gate = Gate(
        bridge,
        administration,
        Origins(trusted),
        guards_reads=authentication.enabled and authentication.reads == "authenticated",
    )
    routes = [
        *group_routes(gate, administration),
        *topic_routes(gate, administration),
        *subscription_routes(gate, administration),
        *subscription_status_routes(gate, administration),
        *overview_routes(gate, administration),
        *offset_routes(gate, administration),
        *signing_routes(gate, administration),
        *oauth_routes(gate, administration),
        *constraint_routes(gate, administration),
        *balancer_routes(gate, administration),
        *drain_routes(gate, administration),
        *dead_letter_routes(gate, administration),
        *other_routes(gate, administration),
        *_status_routes(gate, administration, metrics),
        _messages_route(gate, administration),
    ]

    @cache
    def described() -> dict[str, Any]:
        # An app of its own: the framework's OpenAPI routes come with pages that load scripts from
        # outside and with a catch-all that answers in HTML, so the app that serves has neither.
        info = OpenAPIConfig("hermes_actors management", __version__)
        return document(_litestar(routes, info))

    @get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response[bytes]:
        return json_answer(described())

    app = _litestar([*routes, openapi], None, gate.check)
    return WireRules(app, management.cors_allowed_origin)


def _litestar(
    routes: list[HTTPRouteHandler],
    openapi: OpenAPIConfig | None,
    before_request: Callable[[AnyRequest], Awaitable[None]] | None = None,
) -> Litestar:
    return Litestar(
        routes,
        before_request=before_request,
        openapi_config=openapi,
        # The process configures logging; the framework would start a thread for it.
        logging_config=None,
        request_max_body_size=BODY_BYTES_MAX,
        exception_handlers={
            HermesError: on_hermes_error,
            HTTPException: on_http_error,
            BridgeClosed: on_stop,
            Exception: on_fault,
        },
    )


def _status_routes(
    gate: Gate, administration: Administration, metrics: Sequence[Metrics]
) -> list[HTTPRouteHandler]:
    @get("/status/health", summary="Whether the node can administer")
    async def health() -> Response[bytes]:
        try:
            return json_answer(await gate.read(administration.health))
        except Unavailable as error:
            return json_answer({"status": "DOWN", "reason": error.message}, 503)

    @get("/status/prometheus", summary="Metrics in Prometheus' text form")
    async def prometheus() -> Response[bytes]:
        return Response(await render_in_turns(metrics), media_type=_PROMETHEUS)

    @get("/status/nodes", summary="All nodes of all datacentres, and how they fare")
    async def nodes() -> Response[bytes]:
        # Answered also while the metadata cannot be read: that is when it is wanted most.
        return json_answer(await gate.look(administration.statuses.nodes))

    return [health, prometheus, nodes]


def _messages_route(gate: Gate, administration: Administration) -> HTTPRouteHandler:
    open_tails = 0

    async def lines(tail: Tail) -> AsyncIterator[bytes]:
        nonlocal open_tails
        open_tails += 1
        try:
            while chunk := await gate.read(tail.next_lines):
                yield chunk
        except (BridgeClosed, HermesError):
            # The answer has begun: all that can be said now is that it ends here.
            return
        finally:
            open_tails -= 1

    @get("/topics/{topic:str}/messages", summary="A topic's messages, one JSON object a line")
    async def messages(
        request: AnyRequest,
        topic: FromPath[str],
        start: StartParameter = "beginning",
        follow: FromQuery[bool] = False,
        limit: FromQuery[int | None] = None,
    ) -> Stream:
        if open_tails >= TAILS_MAX:
            raise Unavailable(f"{TAILS_MAX} streams of messages are open already; try again later")
        tail = await gate.act(request, administration.tail, topic, start, follow, limit)
        return Stream(lines(tail), media_type=_NDJSON)

    return messages
