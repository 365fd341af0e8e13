"""The balancer: which node runs what and why, drains, and which datacentres accept messages."""

from typing import Any

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from hermes_actors.console.console import Console, form_of, problem_of
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.management.http.gate import REASON

PAGE = "/console/balancer"
_MOVES_MAX = 50
_ROWS_MAX = 100
_DRAIN, _UNDRAIN = (f"/balancer/{each}/{{dc:str}}/{{node:str}}" for each in ("drain", "undrain"))
_READY = "/balancer/readiness/{dc:str}"


def balancer_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/balancer, and below it the forms to drain a node and to mark a datacentre."""
    parts = console.parts
    balancing, drains, readiness = parts.balancing, parts.drains, parts.readiness

    async def gathered(caller: Caller, about: str) -> dict[str, Any]:
        found = await balancing.explain(about)
        if not about:
            # Without a subject, the explanation has no nodes.
            status = await balancing.status()
            for dc, shown in zip(found["datacenters"], status["datacenters"], strict=True):
                dc |= shown
        for dc in found["datacenters"]:
            dc["moves"] = dc["moves"][:_MOVES_MAX]
            dc["left_out"] = max(0, len(dc["subscriptions"]) - _ROWS_MAX)
            dc["subscriptions"] = dc["subscriptions"][:_ROWS_MAX]
            dc["unassigned"] = dc["unassigned"][:_ROWS_MAX]
        operates = caller.is_admin and not caller.is_read_only
        return {**found, "operates": operates, "ready": await readiness.all() if operates else ()}

    @get("/balancer")
    async def page(request: AnyRequest, about: FromQuery[str] = "") -> Answer:
        subject, error = about.strip(), None
        try:
            found = await console.gate.act(request, gathered, subject)
        except Refused as refusal:
            error, found = refusal, await console.gate.act(request, gathered, "")
        return await console.page(request, "balancer.html", error=error, given=subject, **found)

    @get("/balancer/plan")
    async def plan(request: AnyRequest) -> Answer:
        found = await console.gate.read(balancing.plan)
        return await console.page(request, "balancer_plan.html", plan=found["plan"])

    @get("/balancer/live")
    async def live(request: AnyRequest, about: FromQuery[str] = "") -> Answer:
        found = await console.gate.act(request, gathered, about)
        return await console.fragment("balancer_live.html", **found)

    @get(_DRAIN)
    async def ask(request: AnyRequest, dc: FromPath[str], node: FromPath[str]) -> Answer:
        place: dict[str, Any] = {"dc_": dc, "node_": node}
        try:
            await console.gate.read(drains.require_sensible, dc, node)
        except Refused as error:
            place["problem"] = problem_of(error)
        return await console.page(request, "balancer_drain.html", **place)

    @post(_DRAIN)
    async def drain(request: AnyRequest, dc: FromPath[str], node: FromPath[str]) -> Answer:
        is_forced = "force" in await form_of(request)
        body = {"reason": request.scope["state"].get(REASON, "")}
        try:
            await console.gate.act(request, drains.set, dc, node, body, is_forced)
        except Refused as error:
            place: dict[str, Any] = {"dc_": dc, "node_": node}
            return await console.page(request, "balancer_drain.html", error=error, **place)
        return console.done(PAGE, f"{node} is drained.")

    async def undo(_caller: Caller, dc: str, node: str) -> None:
        await drains.undo(dc, node)

    @post(_UNDRAIN)
    async def undrain(request: AnyRequest, dc: FromPath[str], node: FromPath[str]) -> Answer:
        await console.gate.act(request, undo, dc, node)
        return console.done(PAGE, f"{node} takes part again: it gets its share within seconds.")

    async def mark(_caller: Caller, dc: str, is_ready: bool) -> None:
        await readiness.set(dc, {"isReady": is_ready})

    @get(_READY)
    async def ask_for_readiness(
        request: AnyRequest, dc: FromPath[str], ready: FromQuery[bool]
    ) -> Answer:
        return await console.page(request, "balancer_ready.html", dc_=dc, ready=ready)

    @post(_READY)
    async def set_readiness(request: AnyRequest, dc: FromPath[str]) -> Answer:
        is_ready = (await form_of(request)).get("ready") == "true"
        await console.gate.act(request, mark, dc, is_ready)
        said = "accepts publishes again" if is_ready else "is marked as not ready"
        return console.done(PAGE, f"{dc} {said}.")

    return [page, plan, live, ask, drain, undrain, ask_for_readiness, set_readiness]
