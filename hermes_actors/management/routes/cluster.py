"""The routes for operators: ownership, drains, workload constraints, readiness, and the mode."""

from collections.abc import AsyncIterator, Awaitable
from functools import partial
from types import NoneType
from typing import Any

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from msgspec import Struct

from hermes_actors.management.administration import Administration
from hermes_actors.management.balancing.operating import (
    DrainRequest,
    SubscriptionConstraints,
    TopicConstraints,
)
from hermes_actors.management.configuration.backup import as_lines
from hermes_actors.management.http.answers import Answer, empty_answer, json_answer
from hermes_actors.management.routes.route import SUBSCRIPTION, Add
from hermes_actors.metadata.state import Register


class Readiness(Struct, rename="camel"):
    """The request to mark a datacentre."""

    is_ready: bool


_CONSTRAINTS = "/workload-constraints"
_READINESS = "/readiness/datacenters"
_SYNC = "/consistency/sync"
_TEXT = "text/plain"
_NDJSON = "application/x-ndjson"
_LINES_AT_ONCE = 100
_DRAIN = "/balancer/drains/{dc:str}/{node:str}"


def operating_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/balancer, /workload-constraints, /readiness, /consistency, /metadata and /mode."""
    constraints, balancing, drains = parts.workload_constraints, parts.balancing, parts.drains
    readiness, mode, consistency = parts.readiness, parts.mode, parts.consistency
    backups = parts.backups
    put = partial(add, answering=_new_or_not, gives=NoneType, or_status=201)
    backup = partial(add, call=backups.registers, gives=str)
    remove = partial(add, call=constraints.delete, has_query=False)
    of_topic, of_subscription = _CONSTRAINTS + "/topic", _CONSTRAINTS + "/subscription"
    for_topic, for_subscription = constraints.set_for_topic, constraints.set_for_subscription
    return [
        add(f"GET {_CONSTRAINTS}", constraints.all),
        put(f"PUT {of_topic}", for_topic, takes=TopicConstraints),
        put(f"PUT {of_subscription}", for_subscription, takes=SubscriptionConstraints),
        remove(f"DELETE {of_topic}/{{topic:str}}"),
        remove(f"DELETE {of_subscription}/{{topic:str}}/{{name:str}}"),
        add("GET /balancer", balancing.status),
        add("GET /balancer/plan", balancing.plan),
        add("GET /balancer/explain", balancing.explain),
        put(f"PUT {_DRAIN}", drains.set, takes=DrainRequest),
        add(f"DELETE {_DRAIN}", drains.undo, answering=_was_drained, gives=dict[str, bool]),
        add(f"GET {_READINESS}", readiness.all),
        add(f"POST {_READINESS}/{{dc:str}}", readiness.set, status=202, takes=Readiness),
        add("GET /consistency/groups", consistency.groups),
        add("GET /consistency/inconsistencies/groups", consistency.differences),
        add("GET /consistency/inconsistencies/topics", consistency.unknown_topics),
        add("DELETE /consistency/inconsistencies/topics", consistency.delete_topic),
        add(f"POST {_SYNC}/groups/{{group:str}}", consistency.sync_group),
        add(f"POST {_SYNC}/topics/{{topic:str}}", consistency.sync_topic),
        add(f"POST {SUBSCRIPTION}", consistency.sync_subscription, below=_SYNC),
        backup("GET /metadata/backup", answering=_lines, media_type=_NDJSON),
        add("POST /metadata/restore", backups.restore, gives=dict[str, int], takes=str),
        add("GET /mode", mode.get, needs_metadata=False, answering=_plain_text, media_type=_TEXT),
        add("POST /mode", mode.set),
    ]


async def _new_or_not(asked: Awaitable[bool]) -> Answer:
    return empty_answer(201 if await asked else 200)


async def _was_drained(asked: Awaitable[bool]) -> Answer:
    return json_answer({"wasDrained": await asked})


async def _lines(asked: Awaitable[list[Register]]) -> Any:
    registers = await asked

    async def lines() -> AsyncIterator[bytes]:
        for at in range(0, len(registers), _LINES_AT_ONCE):
            yield as_lines(registers[at : at + _LINES_AT_ONCE])

    return Stream(lines(), media_type=_NDJSON)


async def _plain_text(asked: Awaitable[str]) -> Answer:
    return Response((await asked).encode(), media_type=_TEXT)
