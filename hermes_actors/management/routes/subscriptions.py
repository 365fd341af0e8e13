"""The routes of subscriptions: what they are, how each fares, and what it has not delivered."""

from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Any

from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.management.catalog.signing import NewSecret
from hermes_actors.management.catalog.warnings import HEADER, header_of
from hermes_actors.management.dead_letters.selection import LetterSelection, RedriveRequest
from hermes_actors.management.http.answers import Answer, empty_answer, json_answer
from hermes_actors.management.http.openapi import SubscriptionPatch, WholeSubscription
from hermes_actors.management.messages.trials import PushTest
from hermes_actors.management.routes.route import SUBSCRIPTION, Add, JsonObject
from hermes_actors.model.push_trial import PushTrial
from hermes_actors.model.subscription import SubscriptionState

_ALL = "/topics/{topic:str}/subscriptions"
_DryRun = Annotated[bool, QueryParameter(name="dryRun", description="Only tell the offsets")]


def subscription_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/topics/{topic}/subscriptions and /subscriptions."""
    at = partial(add, below=SUBSCRIPTION)
    subscriptions, secrets = parts.subscriptions, parts.signing_secrets

    async def warned(status: int, topic: str, name: str) -> Answer:
        answer = empty_answer(status)
        warnings = await parts.warnings.of(topic, name)
        if warnings:
            answer.headers[HEADER] = header_of(warnings)
        return answer

    async def create(caller: Caller, topic: str, body: JsonObject) -> Answer:
        await subscriptions.create(caller, topic, body)
        return await warned(201, topic, str(body.get("name")))

    async def update(caller: Caller, topic: str, name: str, patch: JsonObject) -> Answer:
        await subscriptions.update(caller, topic, name, patch)
        return await warned(200, topic, name)

    return [
        add(f"GET {_ALL}", subscriptions.names, "Names of a topic's subscriptions"),
        add(f"POST {_ALL}", create, "Create a subscription", status=201, takes=WholeSubscription),
        at(
            "GET",
            subscriptions.get,
            "One subscription, its secrets masked",
            is_for_guests=True,
            gives=WholeSubscription,
        ),
        at("PUT", update, "Change the fields that the body names", takes=SubscriptionPatch),
        at("DELETE", subscriptions.delete, "Remove a subscription"),
        at(
            "GET /state",
            subscriptions.state,
            "PENDING, ACTIVE or SUSPENDED",
            gives=SubscriptionState,
        ),
        at("PUT /state", subscriptions.set_state, "Suspend or resume", takes=SubscriptionState),
        add(
            "GET /subscriptions/owner/{source:str}/{owner:str}",
            subscriptions.of_owner,
            "All subscriptions of one owner",
            is_for_guests=True,
            gives=list[WholeSubscription],
        ),
        at("POST /signing/rotate", secrets.rotate, "Sign with a new secret too", takes=NewSecret),
        at("POST /signing/retire", secrets.retire, "Sign with the newest secret only"),
        at(
            "POST /test",
            parts.trials.make,
            "Push one made-up message and show it",
            takes=PushTest,
            gives=PushTrial,
        ),
    ]


def delivery_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """How a subscription fares, where it stands in its topic, and how it is taken elsewhere."""
    at = partial(add, below=SUBSCRIPTION)
    statuses, letters, moves = parts.statuses, parts.dead_letters, parts.retransmissions
    standings = parts.standings

    async def why(topic: str, name: str) -> dict[str, Any]:
        return {**await statuses.why(topic, name), **await letters.outlook(topic, name)}

    async def move(
        caller: Caller, topic: str, name: str, body: JsonObject, dry_run: _DryRun = False
    ) -> dict[str, Any]:
        return await moves.move(caller, topic, name, body, dry_run)

    async def lag(topic: str, name: str) -> dict[str, Any]:
        return {**await standings.lag(topic, name), **await letters.outlook(topic, name)}

    return [
        at("GET /metrics", statuses.subscription_metrics, "Deliveries, their rates, and failures"),
        at("GET /metrics/persistent", statuses.subscription_counters, "A subscription's counters"),
        at("GET /health", statuses.health, "HEALTHY, UNHEALTHY with problems, or NO_DATA"),
        at("GET /why", why, "For each node why it does not deliver, or that it does"),
        at("PUT /retransmission", move, "Go on at a time, at offsets, start or end"),
        at("POST /moveOffsetsToTheEnd", moves.move_to_the_end, "Skip all that is in the topic"),
        at("GET /lag", lag, "Position, end and lag of each partition everywhere"),
        at(
            "GET /consumer-groups",
            standings.consumer_groups,
            "The consumer group in each datacentre",
        ),
    ]


def dead_letter_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """Dead letters of one subscription, its re-drives and its undelivered messages."""
    at = partial(add, below=SUBSCRIPTION)
    letters, redrives, undelivered = parts.dead_letters, parts.redrives, parts.undelivered
    return [
        at("GET /dead-letters", letters.page, "Open dead letters, newest first, a page at a time"),
        at("GET /dead-letters/{letter:str}", letters.one, "One dead letter, with its message"),
        at(
            "POST /dead-letters/expire",
            letters.expire,
            "Close the dead letters that are named",
            takes=LetterSelection,
        ),
        at(
            "POST /dead-letters/redrive",
            redrives.start,
            "Deliver dead letters again, to this subscription only",
            status=202,
            answering=_asked_for,
            takes=RedriveRequest,
        ),
        at("GET /dead-letters/redrive", redrives.progress, "How far the last re-drive has come"),
        at("DELETE /dead-letters/redrive", redrives.cancel, "Stop the re-drive"),
        at(
            "GET /undelivered",
            undelivered.latest,
            "The messages that were given up last, at most 100",
        ),
        at("GET /undelivered/last", undelivered.last, "The message that was given up last"),
    ]


async def _asked_for(asked: Awaitable[dict[str, Any]]) -> Answer:
    answer = await asked
    return json_answer(answer, 200 if answer["dryRun"] else 202)
