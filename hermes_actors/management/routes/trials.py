"""The route that tries a subscription's endpoint."""

from litestar import post
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    body_of,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.trials import Trials
from hermes_actors.management.routes.paths import SUBSCRIPTION, Name


def trial_routes(gate: Gate, trials: Trials) -> list[HTTPRouteHandler]:
    """/topics/{topic}/subscriptions/{name}/test."""

    @post(SUBSCRIPTION + "/test", summary="Push one made-up message and show it", status_code=200)
    async def try_endpoint(request: AnyRequest, topic: Name, name: Name) -> Answer:
        body = await object_of(request) if await body_of(request) else {}
        return json_answer(await gate.act(request, trials.make, topic, name, body))

    return [try_endpoint]
