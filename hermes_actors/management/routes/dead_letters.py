"""The routes of dead letters, re-drives and undelivered messages."""

from typing import Annotated

from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter

from hermes_actors.management.dead_letters.letters import DeadLetterBox
from hermes_actors.management.dead_letters.redrives import Redrives
from hermes_actors.management.dead_letters.undelivered import UndeliveredMessages
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import SUBSCRIPTION, Name

_LETTERS = SUBSCRIPTION + "/dead-letters"
_UNDELIVERED = SUBSCRIPTION + "/undelivered"

_MessageId = Annotated[str | None, QueryParameter(name="messageId")]


def dead_letter_routes(
    gate: Gate, box: DeadLetterBox, redrives: Redrives, undelivered: UndeliveredMessages
) -> list[HTTPRouteHandler]:
    """Dead letters of one subscription."""

    @get(_LETTERS, summary="Open dead letters, newest first, a page at a time")
    async def list_letters(
        request: AnyRequest,
        topic: Name,
        name: Name,
        reason: FromQuery[str | None] = None,
        status: FromQuery[str | None] = None,
        message_id: _MessageId = None,
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        limit: FromQuery[int] = 50,
        before: FromQuery[str | None] = None,
    ) -> Answer:
        query = {
            "reason": reason,
            "status": status,
            "messageId": message_id,
            "since": since,
            "until": until,
        }
        return json_answer(await gate.act(request, box.page, topic, name, query, limit, before))

    @get(_LETTERS + "/{letter:str}", summary="One dead letter, with its message")
    async def show_letter(
        request: AnyRequest, topic: Name, name: Name, letter: FromPath[str]
    ) -> Answer:
        return json_answer(await gate.act(request, box.one, topic, name, letter))

    @post(_LETTERS + "/expire", summary="Close the dead letters that are named", status_code=200)
    async def expire(request: AnyRequest, topic: Name, name: Name) -> Answer:
        body = await object_of(request)
        return json_answer(await gate.act(request, box.expire, topic, name, body))

    @post(_LETTERS + "/redrive", summary="Deliver dead letters again, to this subscription only")
    async def redrive(request: AnyRequest, topic: Name, name: Name) -> Answer:
        body = await object_of(request)
        answer = await gate.act(request, redrives.start, topic, name, body)
        return json_answer(answer, 200 if answer["dryRun"] else 202)

    @get(_LETTERS + "/redrive", summary="How far the last re-drive has come")
    async def progress(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.act(request, redrives.progress, topic, name))

    @delete(_LETTERS + "/redrive", summary="Stop the re-drive", status_code=200)
    async def cancel(request: AnyRequest, topic: Name, name: Name) -> Answer:
        await gate.act(request, redrives.cancel, topic, name)
        return empty_answer(200)

    @get(_UNDELIVERED, summary="The messages that were given up last, at most 100")
    async def latest(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.act(request, undelivered.latest, topic, name))

    @get(_UNDELIVERED + "/last", summary="The message that was given up last")
    async def last(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.act(request, undelivered.last, topic, name))

    return [list_letters, show_letter, expire, redrive, progress, cancel, latest, last]
