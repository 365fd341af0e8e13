"""The balancer: which node runs what and why, drains, and which datacentres accept messages."""

from collections.abc import Mapping
from typing import Any

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from hermes_actors.console.console import Console
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.metadata.audit import present_author

PAGE = "/console/balancer"
_MOVES_MAX = 50
_ROWS_MAX = 100


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

    async def node(_caller: Caller, _: Mapping[str, str], dc: str, name: str) -> dict[str, Any]:
        return {"dc_": dc, "node_": name}

    async def drain(
        caller: Caller, given: Mapping[str, str], dc: str, name: str
    ) -> tuple[str, str]:
        author = present_author()
        body = {"reason": author.reason if author else ""}
        await drains.set(caller, dc, name, body, "force" in given)
        return PAGE, f"{name} is drained: others take over what it runs."

    async def undo(_caller: Caller, dc: str, node: str) -> None:
        await drains.undo(dc, node)

    @post("/balancer/undrain/{dc:str}/{node:str}")
    async def undrain(request: AnyRequest, dc: FromPath[str], node: FromPath[str]) -> Answer:
        await console.gate.act(request, undo, dc, node)
        return console.done(PAGE, f"{node} takes part again: it gets its share within seconds.")

    async def state(_caller: Caller, given: Mapping[str, str], dc: str) -> dict[str, Any]:
        return {"dc_": dc, "ready": given.get("ready") == "true"}

    async def mark(_caller: Caller, given: Mapping[str, str], dc: str) -> tuple[str, str]:
        is_ready = given.get("ready") == "true"
        await readiness.set(dc, {"isReady": is_ready})
        said = "accepts publishes again" if is_ready else "is marked as not ready"
        return PAGE, f"{dc} {said}."

    return [
        *(page, plan, live, undrain),
        *console.form("/balancer/drain/{dc:str}/{node:str}", "balancer_drain.html", node, drain),
        *console.form("/balancer/readiness/{dc:str}", "balancer_ready.html", state, mark),
    ]
