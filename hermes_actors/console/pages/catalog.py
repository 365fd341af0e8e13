"""The lists of groups, topics and subscriptions, and what a search finds in them."""

from collections import Counter
from typing import Annotated, Any

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery, QueryParameter

from hermes_actors.console.console import Console
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.management.status.overview import SORTS, OverviewQuery
from hermes_actors.runtime.turns import each_in_turns

ROWS = 100
"""The rows of a page."""

_PAGES_MAX = 10_000
_Text = Annotated[str, QueryParameter(max_length=200)]
_Sort = FromQuery[str]
_Number = Annotated[int, QueryParameter(ge=1, le=_PAGES_MAX)]


def catalog_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics, /console/subscriptions, /console/groups and /console/search."""
    parts = console.parts

    async def topic_rows(q: str, group: str, sort: str, number: int) -> dict[str, Any]:
        found, count = await parts.overview.some_topics(
            sort, ROWS, (number - 1) * ROWS, text=q, group=group
        )
        return {"topics": found, "topic_count": count}

    async def subscription_rows(wanted: OverviewQuery, sort: str, number: int) -> dict[str, Any]:
        found, count = await parts.overview.some_rows(wanted, sort, ROWS, (number - 1) * ROWS)
        return {"subscriptions": found, "subscription_count": count}

    async def group_rows() -> list[dict[str, Any]]:
        topics = Counter(name.rpartition(".")[0] for name in await parts.topics.names())
        return [
            await parts.groups.get(name) | {"topics": topics[name]}
            async for name in each_in_turns(await parts.groups.names())
        ]

    async def both(q: str) -> dict[str, Any]:
        if not q:
            return {"topics": [], "topic_count": 0, "subscriptions": [], "subscription_count": 0}
        return await topic_rows(q, "", "name", 1) | await subscription_rows(
            OverviewQuery(text=q), "name", 1
        )

    @get("/topics")
    async def topics(
        request: AnyRequest,
        q: _Text = "",
        group: _Text = "",
        sort: _Sort = "name",
        page: _Number = 1,
    ) -> Answer:
        chosen = {"q": q.strip(), "group": group, "sort": _known(sort)}
        shown = await console.gate.read(topic_rows, q.strip(), group, _known(sort), page)
        groups = await console.gate.read(parts.groups.names)
        shown |= {"groups": groups, "chosen": chosen, "number": page, "step": ROWS}
        return await console.page(request, "topics.html", **shown)

    @get("/subscriptions")
    async def subscriptions(
        request: AnyRequest,
        q: _Text = "",
        unhealthy: FromQuery[bool] = False,
        sort: _Sort = "name",
        page: _Number = 1,
    ) -> Answer:
        chosen = {"q": q.strip(), "unhealthy": unhealthy, "sort": _known(sort)}
        wanted = OverviewQuery(text=q.strip(), is_unhealthy=unhealthy)
        shown = await console.gate.read(subscription_rows, wanted, _known(sort), page)
        shown |= {"chosen": chosen, "number": page, "step": ROWS}
        return await console.page(request, "subscriptions.html", **shown)

    @get("/groups")
    async def groups(request: AnyRequest) -> Answer:
        found = await console.gate.read(group_rows)
        return await console.page(request, "groups.html", groups=found)

    @get("/search")
    async def search(request: AnyRequest, q: _Text = "") -> Answer:
        shown = await console.gate.read(both, q.strip())
        return await console.page(request, "search.html", q=q.strip(), step=ROWS, **shown)

    return [topics, subscriptions, groups, search]


def _known(sort: str) -> str:
    return sort if sort in SORTS else "name"
