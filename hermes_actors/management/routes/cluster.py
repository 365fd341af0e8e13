"""The routes of operators: who runs what, drained nodes, ready datacentres, this node's mode."""

from collections.abc import Awaitable

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
_DRAIN = "/balancer/drains/{dc:str}/{node:str}"


def operating_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/balancer, /workload-constraints, /readiness and /mode."""
    constraints, balancing, drains = parts.workload_constraints, parts.balancing, parts.drains
    readiness, mode = parts.readiness, parts.mode
    of_topic, of_subscription = _CONSTRAINTS + "/topic", _CONSTRAINTS + "/subscription"
    return [
        add(
            f"GET {_CONSTRAINTS}",
            constraints.all,
            "How many nodes are to consume topics and subscriptions",
        ),
        add(
            f"PUT {of_topic}",
            constraints.set_for_topic,
            "Set a topic's constraint",
            takes=TopicConstraints,
            answering=_new_or_not,
        ),
        add(
            f"PUT {of_subscription}",
            constraints.set_for_subscription,
            "Set a subscription's constraint",
            takes=SubscriptionConstraints,
            answering=_new_or_not,
        ),
        add(
            f"DELETE {of_topic}/{{topic:str}}",
            constraints.remove,
            "Remove a topic's constraint",
            has_query=False,
        ),
        add(
            f"DELETE {of_subscription}/{{topic:str}}/{{name:str}}",
            constraints.remove,
            "Remove a subscription's constraint",
            has_query=False,
        ),
        add(
            "GET /balancer",
            balancing.status,
            "Members, leaders, and the owners of each subscription",
        ),
        add(
            "GET /balancer/plan",
            balancing.plan,
            "The changes that the planner would make now; changes nothing",
        ),
        add(
            "GET /balancer/explain",
            balancing.explain,
            "The last moves, and why a subscription or node has what",
        ),
        add(
            f"PUT {_DRAIN}",
            drains.set,
            "Have a node own nothing, so that it can be stopped",
            takes=DrainRequest,
            answering=_new_or_not,
        ),
        add(
            f"DELETE {_DRAIN}",
            drains.undo,
            "Let a drained node own something again",
            answering=_was_drained,
        ),
        add(
            "GET /readiness/datacenters",
            readiness.all,
            "Which datacentres are ready to be published to",
        ),
        add(
            "POST /readiness/datacenters/{dc:str}",
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
        add(
            "POST /mode",
            mode.set,
            "Let nobody but administrators change something, or everybody again",
        ),
    ]


async def _new_or_not(asked: Awaitable[bool]) -> Answer:
    return empty_answer(201 if await asked else 200)


async def _was_drained(asked: Awaitable[bool]) -> Answer:
    return json_answer({"wasDrained": await asked})


async def _plain_text(asked: Awaitable[str]) -> Answer:
    return Response((await asked).encode(), media_type="text/plain")
