"""The routes of subscriptions: their settings, state, offsets, and dead letters."""

from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Any

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.management.catalog.signing import NewSecret
from hermes_actors.management.dead_letters.selection import LetterSelection, RedriveRequest
from hermes_actors.management.http.answers import JSON, Answer, json_answer
from hermes_actors.management.http.openapi import SubscriptionPatch, WholeSubscription
from hermes_actors.management.messages.trials import PushTest
from hermes_actors.management.offsets.retransmission import Retransmission
from hermes_actors.management.routes.route import SUBSCRIPTION, Add, JsonObject
from hermes_actors.model.pulling import (
    AckRequest,
    ExtendRequest,
    NackRequest,
    Pulled,
    PullRequest,
    Settled,
)
from hermes_actors.model.push_trial import PushTrial
from hermes_actors.model.subscription import SubscriptionState

_ALL = "/topics/{topic:str}/subscriptions"
_OF_OWNER = "GET /subscriptions/owner/{source:str}/{owner:str}"
_DryRun = Annotated[bool, QueryParameter(name="dryRun", description="Only show the offsets")]


def subscription_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/topics/{topic}/subscriptions and /subscriptions."""
    at = partial(add, below=SUBSCRIPTION)
    subscriptions, secrets = parts.subscriptions, parts.signing_secrets

    return [
        add(f"GET {_ALL}", subscriptions.names),
        add(f"POST {_ALL}", subscriptions.create, status=201, takes=WholeSubscription),
        at("GET", subscriptions.get, gives=WholeSubscription),
        at("PUT", subscriptions.update, takes=SubscriptionPatch),
        at("DELETE", subscriptions.delete),
        at("GET /state", subscriptions.state, gives=SubscriptionState),
        at("PUT /state", subscriptions.set_state, takes=SubscriptionState),
        add(_OF_OWNER, subscriptions.of_owner, gives=list[WholeSubscription]),
        at("POST /signing/rotate", secrets.rotate, takes=NewSecret),
        at("POST /signing/retire", secrets.retire),
        at("POST /test", parts.trials.make, takes=PushTest, gives=PushTrial),
    ]


def delivery_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """A subscription's metrics and health, its lag, and retransmission."""
    at = partial(add, below=SUBSCRIPTION)
    statuses, standings, moves = parts.statuses, parts.standings, parts.retransmissions

    async def why(topic: str, name: str) -> dict[str, Any]:
        """For each node: does it deliver, and if not, why."""
        return {**await statuses.why(topic, name), **statuses.dead_letters(topic, name)}

    async def move(
        caller: Caller, topic: str, name: str, body: JsonObject, dry_run: _DryRun = False
    ) -> dict[str, Any]:
        """Move a subscription to a time, to offsets, to the start or to the end."""
        return await moves.move(caller, topic, name, body, dry_run)

    async def lag(topic: str, name: str) -> dict[str, Any]:
        """The position, end and lag of each partition in each datacentre."""
        return {**await standings.lag(topic, name), **statuses.dead_letters(topic, name)}

    return [
        at("GET /metrics", statuses.subscription_metrics),
        at("GET /metrics/persistent", statuses.subscription_counters),
        at("GET /health", statuses.health),
        at("GET /why", why),
        at("PUT /retransmission", move, takes=Retransmission),
        at("POST /moveOffsetsToTheEnd", moves.move_to_the_end),
        at("GET /lag", lag),
        at("GET /consumer-groups", standings.consumer_groups),
    ]


def pull_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """What clients of a pull subscription call. A client that disconnects waits no longer."""
    at = partial(add, below=SUBSCRIPTION, answering=_as_json, ends_when_gone=True)
    pulls = parts.pulls
    return [
        at("POST /pull", pulls.pull, takes=PullRequest, gives=Pulled),
        at("POST /ack", pulls.ack, takes=AckRequest, gives=Settled),
        at("POST /nack", pulls.nack, takes=NackRequest, gives=Settled),
        at("POST /extend", pulls.extend, takes=ExtendRequest, gives=Settled),
    ]


async def _as_json(asked: Awaitable[bytes]) -> Answer:
    return Response(await asked, media_type=JSON)


def dead_letter_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """A subscription's dead letters, re-drives and undelivered messages."""
    at = partial(add, below=SUBSCRIPTION)
    letters, redrives, undelivered = parts.dead_letters, parts.redrives, parts.undelivered
    redrive = partial(at, status=202, or_status=200, answering=_asked_for, takes=RedriveRequest)
    return [
        add("GET /dead-letters", letters.all),
        at("GET /dead-letters", letters.page),
        at("GET /dead-letters/{letter:str}", letters.one),
        at("POST /dead-letters/expire", letters.expire, takes=LetterSelection),
        redrive("POST /dead-letters/redrive", redrives.start),
        at("GET /dead-letters/redrive", redrives.progress),
        at("DELETE /dead-letters/redrive", redrives.cancel),
        at("GET /undelivered", undelivered.latest),
        at("GET /undelivered/last", undelivered.last),
    ]


async def _asked_for(asked: Awaitable[dict[str, Any]]) -> Answer:
    answer = await asked
    return json_answer(answer, 200 if answer["dryRun"] else 202)
