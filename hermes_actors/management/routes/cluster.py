"""The routes of operators: who runs what, drained nodes, ready datacentres, this node's mode."""

from collections.abc import Awaitable
from functools import partial

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.administration import Administration
from hermes_actors.management.balancing.operating import (
    DrainRequest,
    SubscriptionConstraints,
    TopicConstraints,
)
from hermes_actors.management.http.answers import Answer, empty_answer, json_answer
from hermes_actors.management.routes.route import Add

_CONSTRAINTS = "/workload-constraints"
_READINESS = "/readiness/datacenters"
_DRAIN = "/balancer/drains/{dc:str}/{node:str}"


def operating_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/balancer, /workload-constraints, /readiness and /mode."""
    constraints, balancing, drains = parts.workload_constraints, parts.balancing, parts.drains
    readiness, mode = parts.readiness, parts.mode
    put, balancer = partial(add, answering=_new_or_not), "GET /balancer"
    of_topic, of_subscription = _CONSTRAINTS + "/topic", _CONSTRAINTS + "/subscription"
    remove = partial(add, has_query=False)
    for_topic, for_subscription = constraints.set_for_topic, constraints.set_for_subscription
    one = "/{topic:str}"
    return [
        add(f"GET {_CONSTRAINTS}", constraints.all, "How many nodes are to consume what"),
        put(f"PUT {of_topic}", for_topic, "Set a topic's constraint", takes=TopicConstraints),
        put(
            f"PUT {of_subscription}",
            for_subscription,
            "Set a subscription's constraint",
            takes=SubscriptionConstraints,
        ),
        remove(f"DELETE {of_topic}{one}", constraints.remove, "Remove a topic's constraint"),
        remove(
            f"DELETE {of_subscription}{one}/{{name:str}}",
            constraints.remove,
            "Remove a subscription's constraint",
        ),
        add(balancer, balancing.status, "Members, leaders, and who owns each subscription"),
        add(f"{balancer}/plan", balancing.plan, "What the planner would change now"),
        add(f"{balancer}/explain", balancing.explain, "The last moves, and why who has what"),
        put(f"PUT {_DRAIN}", drains.set, "Have a node own nothing", takes=DrainRequest),
        add(f"DELETE {_DRAIN}", drains.undo, "Let it own something", answering=_was_drained),
        add(f"GET {_READINESS}", readiness.all, "Which datacentres are ready"),
        add(
            f"POST {_READINESS}/{{dc:str}}",
            readiness.set,
            "Mark a datacentre as ready, or not",
            status=202,
        ),
        add(
            "GET /mode",
            mode.get,
            "readWrite, readOnly or readOnlyAdmin",
            needs_metadata=False,
            answering=_plain_text,
        ),
        add("POST /mode", mode.set, "Who may change something: administrators, or all"),
    ]


async def _new_or_not(asked: Awaitable[bool]) -> Answer:
    return empty_answer(201 if await asked else 200)


async def _was_drained(asked: Awaitable[bool]) -> Answer:
    return json_answer({"wasDrained": await asked})


async def _plain_text(asked: Awaitable[str]) -> Answer:
    return Response((await asked).encode(), media_type="text/plain")
