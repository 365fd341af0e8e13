"""The routes of the balancer: what constrains it, which nodes are drained, who runs what."""

from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from hermes_actors.management.balancing.drains import Drains
from hermes_actors.management.balancing.ownership import Balancing
from hermes_actors.management.balancing.workload_constraints import WorkloadConstraints
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Name

_CONSTRAINTS = "/workload-constraints"
_DRAIN = "/balancer/drains/{dc:str}/{node:str}"


def constraint_routes(gate: Gate, constraints: WorkloadConstraints) -> list[HTTPRouteHandler]:
    """/workload-constraints."""

    @get(_CONSTRAINTS, summary="How many nodes are to consume topics and subscriptions")
    async def list_constraints() -> Answer:
        return json_answer(await gate.read(constraints.all))

    @put(_CONSTRAINTS + "/topic", summary="Set a topic's constraint")
    async def constrain_topic(request: AnyRequest) -> Answer:
        body = await object_of(request)
        is_new = await gate.act(request, constraints.set_for_topic, body)
        return empty_answer(201 if is_new else 200)

    @put(_CONSTRAINTS + "/subscription", summary="Set a subscription's constraint")
    async def constrain_subscription(request: AnyRequest) -> Answer:
        body = await object_of(request)
        is_new = await gate.act(request, constraints.set_for_subscription, body)
        return empty_answer(201 if is_new else 200)

    @delete(
        _CONSTRAINTS + "/topic/{topic:str}",
        summary="Remove a topic's constraint",
        status_code=200,
    )
    async def release_topic(request: AnyRequest, topic: Name) -> Answer:
        await gate.act(request, constraints.remove, topic, None)
        return empty_answer(200)

    @delete(
        _CONSTRAINTS + "/subscription/{topic:str}/{name:str}",
        summary="Remove a subscription's constraint",
        status_code=200,
    )
    async def release_subscription(request: AnyRequest, topic: Name, name: Name) -> Answer:
        await gate.act(request, constraints.remove, topic, name)
        return empty_answer(200)

    return [
        list_constraints,
        constrain_topic,
        constrain_subscription,
        release_topic,
        release_subscription,
    ]


def balancer_routes(gate: Gate, balancing: Balancing) -> list[HTTPRouteHandler]:
    """/balancer, but for its drains."""

    @get("/balancer", summary="Members, leaders, and the owners of each subscription")
    async def status(subscription: FromQuery[str] = "", node: FromQuery[str] = "") -> Answer:
        return json_answer(await gate.read(balancing.status, subscription, node))

    @get("/balancer/plan", summary="The changes that the planner would make now; changes nothing")
    async def plan(dc: FromQuery[str] = "") -> Answer:
        return json_answer(await gate.read(balancing.plan, dc))

    @get("/balancer/explain", summary="The last moves, and why a subscription or node has what")
    async def explain(about: FromQuery[str] = "") -> Answer:
        return json_answer(await gate.read(balancing.explain, about))

    return [status, plan, explain]


def drain_routes(gate: Gate, drains: Drains) -> list[HTTPRouteHandler]:
    """/balancer/drains."""

    @put(_DRAIN, summary="Have a node own nothing, so that it can be stopped")
    async def drain(
        request: AnyRequest, dc: Name, node: Name, force: FromQuery[bool] = False
    ) -> Answer:
        body = await object_of(request) if await request.body() else {}
        is_new = await gate.act(request, drains.set, dc, node, body, force)
        return empty_answer(201 if is_new else 200)

    @delete(_DRAIN, summary="Let a drained node own something again", status_code=200)
    async def undo_drain(request: AnyRequest, dc: Name, node: Name) -> Answer:
        was_drained = await gate.act(request, drains.undo, dc, node)
        return json_answer({"wasDrained": was_drained})

    return [drain, undo_drain]
