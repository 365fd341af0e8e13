"""The routes of queries and search."""

from functools import partial
from typing import Any

from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from hermes_actors.management.administration import Administration
from hermes_actors.management.routes.route import Add


class Query(Struct):
    """The request of a query: the conditions by field."""

    query: dict[str, Any]


_ASKING = ("POST", "PUT")
"""Hermes accepts both methods for queries."""


def query_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/query, /search, and the queries below /topics."""
    queries, add = parts.queries, partial(add, takes=Query)
    calls = {
        "/query/groups": queries.groups,
        "/query/topics": queries.topics,
        "/query/topics/metrics": queries.topic_metrics,
        "/query/subscriptions/metrics": queries.subscription_metrics,
    }
    return [
        *(add(f"{verb} {path}", call) for path, call in calls.items() for verb in _ASKING),
        *(add(f"{verb} /query/subscriptions", queries.subscriptions) for verb in _ASKING),
        add("POST /topics/query", queries.topic_names),
        add(
            "POST /topics/{topic:str}/subscriptions/query",
            queries.subscription_names,
        ),
        add("GET /search/query", queries.search),
    ]
