"""One topic: rates, partitions, subscriptions, settings and history; its export and removal."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from hermes_actors.console.console import Console
from hermes_actors.console.pages.audit import CHANGES
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import JSON, Answer, AnyRequest
from hermes_actors.management.status.overview import OverviewQuery

ROWS = 50
"""The maximum number of subscriptions on the page, worst first."""


def topic_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/{topic}, its figures for htmx, its export, and its removal."""
    parts, gate = console.parts, console.gate

    async def figures(topic: str) -> dict[str, Any]:
        parts.topics.live(topic)
        wanted = OverviewQuery(topics=[topic])
        rows, count = await parts.overview.some_rows(wanted, "state", ROWS)
        return {
            "name": topic,
            "dc": console.config.dc,
            "rates": parts.statuses.topic_summary(topic),
            "metrics": await parts.statuses.topic_metrics(topic),
            "subscriptions": rows,
            "subscription_count": count,
            "logs": await parts.previews.partitions(topic),
        }

    async def gathered(caller: Caller, topic: str) -> dict[str, Any]:
        shown = await figures(topic) | about(parts, caller, topic)
        return shown | {"topic": await parts.topics.get(topic)}

    @get("/topics/{topic:str}")
    async def page(request: AnyRequest, topic: FromPath[str]) -> Answer:
        return await console.page(request, "topic.html", **await gate.act(request, gathered, topic))

    @get("/topics/{topic:str}/live")
    async def live(topic: FromPath[str]) -> Answer:
        return await console.fragment("topic_live.html", **await gate.read(figures, topic))

    async def history(caller: Caller, topic: str, before: str) -> dict[str, Any]:
        shown = about(parts, caller, topic)
        resource = f"topics/{topic}"
        found = await parts.audit.changes(caller, resource, limit=CHANGES, before=before)
        return shown | {"found": found, "chosen": {}}

    @get("/topics/{topic:str}/audit")
    async def audit(
        request: AnyRequest, topic: FromPath[str], before: FromQuery[str] = ""
    ) -> Answer:
        shown = await gate.act(request, history, topic, before)
        return await console.page(request, "topic_audit.html", **shown)

    @get("/topics/{topic:str}/export")
    async def export(topic: FromPath[str]) -> Answer:
        found = msgspec.json.encode(await gate.read(parts.topics.get, topic))
        headers = {"content-disposition": f'attachment; filename="{topic}.json"'}
        return Response(msgspec.json.format(found), media_type=JSON, headers=headers)

    async def ask(caller: Caller, _: Mapping[str, str], topic: str) -> dict[str, Any]:
        parts.topics.owned(caller, topic, "remove topic")
        where = f"/console/topics/{quote(topic)}"
        return {
            "title": f"Remove topic {topic}?",
            "text": "Its messages and schemas are deleted, and publishers get 404. This cannot be "
            "undone. Subscriptions must be removed first, unless they are set to go with it.",
            "button": "Remove the topic",
            "action": f"{where}/remove",
            "back": where,
        }

    async def remove(caller: Caller, _: Mapping[str, str], topic: str) -> tuple[str, str]:
        await parts.topics.delete(caller, topic)
        return "/console/topics", f"Topic {topic} is removed."

    removal = console.form("/topics/{topic:str}/remove", "confirm.html", ask, remove)
    return [page, live, audit, export, *removal]


def about(parts: Administration, caller: Caller, topic: str, action: str = "") -> dict[str, Any]:
    """What the heading of each page of the topic shows. `is_owner`: the caller may manage it.

    Raises Refused; 403 if only those who may manage the topic may do the `action`.
    """
    if action:
        parts.topics.owned(caller, topic, action)
    owners = parts.topics.owners(parts.topics.live(topic))
    return {"name": topic, "is_owner": caller.is_admin or any(map(caller.owns, owners))}
