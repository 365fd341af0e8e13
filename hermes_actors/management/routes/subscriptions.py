"""The routes of subscriptions: what they are, how each fares, its secrets, its endpoint tried."""

from typing import Any

from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.bodies.decoding import json_value
from hermes_actors.management.catalog.signing import SigningSecrets
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.warnings import HEADER, StoredWarnings
from hermes_actors.management.dead_letters.letters import DeadLetterBox
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    body_of,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.trials import Trials
from hermes_actors.management.routes.paths import SUBSCRIPTION, SUBSCRIPTIONS, Flag, Name
from hermes_actors.management.status.statuses import Statuses


def subscription_routes(
    gate: Gate, subscriptions: Subscriptions, stored_warnings: StoredWarnings
) -> list[HTTPRouteHandler]:
    """/topics/{topic}/subscriptions and /subscriptions."""

    async def warned(answer: Answer, topic: str, name: str) -> Answer:
        warnings = await gate.read(stored_warnings.of, topic, name)
        if warnings:
            text = "; ".join(warnings).encode("ascii", "backslashreplace").decode()
            answer.headers[HEADER] = "".join(c for c in text if c.isprintable())
        return answer

    @get(SUBSCRIPTIONS, summary="Names of a topic's subscriptions")
    async def list_subscriptions(topic: Name, tracked: Flag = False) -> Answer:
        async def names() -> list[str]:
            return await subscriptions.names(topic, tracked=tracked)

        return json_answer(await gate.read(names))

    @post(SUBSCRIPTIONS, summary="Create a subscription")
    async def create_subscription(request: AnyRequest, topic: Name) -> Answer:
        body = await object_of(request)
        await gate.act(request, subscriptions.create, topic, body)
        return await warned(empty_answer(201), topic, str(body.get("name")))

    @get(SUBSCRIPTION, summary="One subscription, its secrets masked")
    async def get_subscription(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.greet(request, subscriptions.get, topic, name))

    @put(SUBSCRIPTION, summary="Change the fields that the body names")
    async def update_subscription(request: AnyRequest, topic: Name, name: Name) -> Answer:
        patch = await object_of(request)
        await gate.act(request, subscriptions.update, topic, name, patch)
        return await warned(empty_answer(200), topic, name)

    @delete(SUBSCRIPTION, summary="Remove a subscription", status_code=200)
    async def delete_subscription(request: AnyRequest, topic: Name, name: Name) -> Answer:
        await gate.act(request, subscriptions.delete, topic, name)
        return empty_answer(200)

    @get(SUBSCRIPTION + "/state", summary="PENDING, ACTIVE or SUSPENDED")
    async def get_state(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(subscriptions.state, topic, name))

    @put(SUBSCRIPTION + "/state", summary="Suspend or resume")
    async def set_state(request: AnyRequest, topic: Name, name: Name) -> Answer:
        state = json_value(await body_of(request))
        await gate.act(request, subscriptions.set_state, topic, name, state)
        return empty_answer(200)

    @get("/subscriptions/owner/{source:str}/{owner:str}", summary="All subscriptions of one owner")
    async def subscriptions_of_owner(request: AnyRequest, source: Name, owner: Name) -> Answer:
        return json_answer(await gate.greet(request, subscriptions.of_owner, source, owner))

    return [
        list_subscriptions,
        create_subscription,
        get_subscription,
        update_subscription,
        delete_subscription,
        get_state,
        set_state,
        subscriptions_of_owner,
    ]


def subscription_status_routes(
    gate: Gate, statuses: Statuses, box: DeadLetterBox
) -> list[HTTPRouteHandler]:
    """How a subscription fares."""

    @get(SUBSCRIPTION + "/metrics", summary="Deliveries, their rates, and failures")
    async def metrics(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(statuses.subscription_metrics, topic, name))

    @get(SUBSCRIPTION + "/metrics/persistent", summary="A subscription's counters")
    async def counters(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(statuses.subscription_counters, topic, name))

    @get(SUBSCRIPTION + "/health", summary="HEALTHY, UNHEALTHY with problems, or NO_DATA")
    async def health(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(statuses.health, topic, name))

    @get(SUBSCRIPTION + "/why", summary="For each node why it does not deliver, or that it does")
    async def why(topic: Name, name: Name) -> Answer:
        async def explained() -> dict[str, Any]:
            found = await statuses.why(topic, name)
            return {**found, **await box.outlook(topic, name)}

        return json_answer(await gate.read(explained))

    return [metrics, counters, health, why]


_SIGNING = SUBSCRIPTION + "/signing"


def signing_routes(gate: Gate, secrets: SigningSecrets) -> list[HTTPRouteHandler]:
    """How the secrets are changed without a moment in which subscribers know none of them."""

    @post(_SIGNING + "/rotate", summary="Sign with a new secret too", status_code=200)
    async def rotate(request: AnyRequest, topic: Name, name: Name) -> Answer:
        body = await object_of(request) if await body_of(request) else {}
        return json_answer(await gate.act(request, secrets.rotate, topic, name, body))

    @post(_SIGNING + "/retire", summary="Sign with the newest secret only", status_code=200)
    async def retire(request: AnyRequest, topic: Name, name: Name) -> Answer:
        await gate.act(request, secrets.retire, topic, name)
        return empty_answer(200)

    return [rotate, retire]


def trial_routes(gate: Gate, trials: Trials) -> list[HTTPRouteHandler]:
    """/topics/{topic}/subscriptions/{name}/test."""

    @post(SUBSCRIPTION + "/test", summary="Push one made-up message and show it", status_code=200)
    async def try_endpoint(request: AnyRequest, topic: Name, name: Name) -> Answer:
        body = await object_of(request) if await body_of(request) else {}
        return json_answer(await gate.act(request, trials.make, topic, name, body))

    return [try_endpoint]
