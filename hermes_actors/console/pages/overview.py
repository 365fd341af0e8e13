"""The state of all datacentres now, and what is wrong, worst first."""

from collections.abc import Iterator
from typing import Any

import trio
from litestar import get
from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console
from hermes_actors.console.formats import BAD, tone
from hermes_actors.errors import Unavailable
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.management.status.overview import OverviewQuery
from hermes_actors.runtime.turns import each_in_turns

PROBLEMS_MAX = 50
"""The maximum number of subscriptions among the problems."""

_KNOWN_FOR_S = 4.0
_MARKED = "An administrator has marked it as not ready: others do not fall back to it."
_UNHEALTHY = OverviewQuery(is_unhealthy=True)
_NODES_WORST_FIRST = ("GONE", "NOT_READY", "UNKNOWN", "READY", "LEFT")


def overview_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/overview, and its figures for htmx."""
    parts, clock = console.parts, console.clock
    here = f"{console.config.dc} {console.config.node}"
    asking = trio.Lock()
    found: dict[str, Any] = {}
    found_at_s = float("-inf")

    async def gathered() -> dict[str, Any]:
        """What the page shows, gathered at most each few seconds, however many people look."""
        nonlocal found, found_at_s
        async with asking:
            if clock.monotonic_s() >= found_at_s + _KNOWN_FOR_S:
                found = await _gathered(parts, here) | {"at_ms": clock.now_ms()}
                found_at_s = clock.monotonic_s()
            return found | {"history": console.history}

    @get("/overview")
    async def overview(request: AnyRequest) -> Answer:
        shown = await console.gate.read(gathered, needs_metadata=False)
        return await console.page(request, "overview.html", **shown)

    @get("/overview/live")
    async def live() -> Answer:
        shown = await console.gate.read(gathered, needs_metadata=False)
        return await console.fragment("overview_live.html", **shown)

    return [overview, live]


async def _gathered(parts: Administration, here: str) -> dict[str, Any]:
    nodes = await parts.statuses.nodes()
    ill, ill_count = await parts.overview.some_rows(_UNHEALTHY, "state", PROBLEMS_MAX)
    readiness = await parts.readiness.all()
    marked = [each["datacenter"] for each in readiness if each["status"] == "NOT_READY"]
    problems = [_problem("NOT_READY", dc, _MARKED, "/console/balancer") for dc in marked]
    problems += _of_cluster(nodes, here)
    known = {each["text"] for each in problems}
    problems += [each for each in await _of_node(parts, here) if each["text"] not in known]
    async for topic in each_in_turns(await parts.topics.names()):
        rate = parts.statuses.topic_summary(topic)["failedRate"]
        if rate > 0:
            text = f"{rate:.1f} publishes a second are answered with 5xx"
            problems.append(_problem("LOSING", topic, text, f"/console/topics/{topic}"))
    for row in ill:
        topic, name = row["topicName"], row["name"]
        text = "; ".join(each["description"] for each in row["problems"])
        page = f"/console/topics/{topic}/subscriptions/{name}"
        problems.append(_problem(row["condition"], f"{topic} → {name}", text, page))
    return {
        "problems": sorted(problems, key=lambda each: tone(each["state"]) != BAD),
        "left_out": ill_count - len(ill),
        "datacenters": nodes["datacenters"],
        "marked": marked,
        "nodes": sorted(nodes["nodes"], key=lambda each: _NODES_WORST_FIRST.index(each["state"])),
        "figures": await parts.statuses.figures(),
        "counts": await parts.overview.stats(),
    }


def _of_cluster(nodes: dict[str, Any], here: str) -> Iterator[dict[str, Any]]:
    """The problems of datacentres and nodes, as `hermes status` says them, but not the notices of
    this node.
    """
    for each in nodes["datacenters"]:
        if not each["isKnown"]:
            yield _problem("SILENT", each["datacenter"], each["reason"])
    for node in nodes["nodes"]:
        where = f"{node['datacenter']} {node['node']}"
        if node["state"] in ("GONE", "NOT_READY"):
            yield _problem(node["state"], where, "; ".join(node["reasons"]))
    for node in nodes["nodes"]:
        where = f"{node['datacenter']} {node['node']}"
        if node["state"] in ("READY", "NOT_READY") and where != here:
            for notice in node["notices"]:
                yield _problem("NOTICE", where, notice)
    for notice in nodes["notices"]:
        yield _problem("NOTICE", notice["datacenter"], notice["text"])


async def _of_node(parts: Administration, here: str) -> list[dict[str, Any]]:
    """The problems of this node as a management node."""
    try:
        health = await parts.health.shown()
    except Unavailable as error:
        return [_problem("DOWN", here, error.message)]
    return [_problem("NOTICE", here, each) for each in health.get("notices", ())]


def _problem(state: str, where: str, text: str, page: str = "") -> dict[str, Any]:
    return {"state": state, "where": where, "page": page, "text": text}
