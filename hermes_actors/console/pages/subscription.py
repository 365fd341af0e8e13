"""One subscription: what is wrong and what to do, its figures, where it runs, and its settings."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.console.console import Console
from hermes_actors.management.access.roles import Caller, Role
from hermes_actors.management.http.answers import Answer, AnyRequest

BELOW = "/topics/{topic:str}/subscriptions/{name:str}"
"""The path of a subscription's pages, below /console."""

_PARTITIONS_MAX = 100
_FAILED = ("timeouts", "otherErrors", "codes4xx", "codes5xx")
_MANAGING = frozenset((Role.ADMIN, Role.TOPIC_OWNER, Role.SUBSCRIPTION_OWNER))


def place_of(topic: str, name: str) -> dict[str, Any]:
    """What each of a subscription's pages shows: its names, and the address of its first page."""
    base = f"/console/topics/{quote(topic)}/subscriptions/{quote(name)}"
    return {"topic": topic, "name": name, "base": base}


Gather = Callable[[Caller, str, str], Awaitable[dict[str, Any]]]


def shows(console: Console, path: str, template: str, gather: Gather) -> HTTPRouteHandler:
    """A page below a subscription's first one. It shows what `gather` returns. If its path ends in
    /live, it is only a part of a page.
    """

    @get(f"{BELOW}{path}")
    async def shown(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
        found = await console.gate.act(request, gather, topic, name)
        if path.endswith("/live"):
            return await console.fragment(template, **found)
        return await console.page(request, template, **found)

    return shown


def subscription_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/{topic}/subscriptions/{name}, and its figures for htmx."""
    parts = console.parts

    async def gathered(caller: Caller, topic: str, name: str) -> dict[str, Any]:
        row = parts.statuses.summary(parts.subscriptions.live(topic, name))
        why = await parts.statuses.why(topic, name)
        metrics = await parts.statuses.subscription_metrics(topic, name)
        lag = await parts.standings.lag(topic, name)
        partitions = [
            (dc["datacenter"], each) for dc in lag["datacenters"] for each in dc["partitions"]
        ]
        partitions.sort(key=lambda each: (each[1]["lag"] >= 0, -each[1]["lag"]))
        roles = await parts.owners.roles(caller, topic, name)
        return {
            **place_of(topic, name),
            "row": row,
            "why": why,
            "codes": _codes(row, why),
            "failed": sum(float(metrics[each]) for each in _FAILED) if row["isKnown"] else None,
            "lag": lag,
            "partitions": partitions[:_PARTITIONS_MAX],
            "partition_count": len(partitions),
            "settings": await parts.subscriptions.get(caller, topic, name),
            "manages": not _MANAGING.isdisjoint(roles),
        }

    return [
        shows(console, "", "subscription.html", gathered),
        shows(console, "/live", "subscription_live.html", gathered),
    ]


def _codes(row: dict[str, Any], why: dict[str, Any]) -> dict[str, str]:
    """The codes of all reasons for the subscription's state, with their texts."""
    told = list(row["reasons"])
    if row["condition"] != "SUSPENDED":
        for dc in why["datacenters"]:
            for place in (dc, *dc["nodes"]):
                told += (*place.get("reasons", ()), *place.get("details", ()))
    return {each["code"]: each["text"] for each in told}
