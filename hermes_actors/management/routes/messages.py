"""The routes of a topic's messages: read, previewed, tried against filters."""

from collections.abc import AsyncIterator
from typing import Annotated

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from hermes_actors.errors import HermesError, Unavailable
from hermes_actors.management.http.answers import Answer, AnyRequest, json_answer, object_of
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.filters import FilterTrials
from hermes_actors.management.messages.previews import MessagePreviews
from hermes_actors.management.messages.tail import Tail, Tails
from hermes_actors.management.routes.paths import Name
from hermes_actors.runtime.bridge import BridgeClosed

TAILS_MAX = 64
"""Streams of messages that are open at one time."""

_NDJSON = "application/x-ndjson"

_Start = Annotated[
    str,
    QueryParameter(name="from", description="`beginning`, `end`, or an ISO 8601 time"),
]


def message_routes(
    gate: Gate, message_previews: MessagePreviews, tails: Tails, filter_trials: FilterTrials
) -> list[HTTPRouteHandler]:
    """/topics/{topic}/messages and /preview, and /filters."""

    @get("/topics/{topic:str}/preview", summary="Messages that were published lately")
    async def previews(request: AnyRequest, topic: Name) -> Answer:
        return json_answer(await gate.act(request, message_previews.of_topic, topic))

    @get("/topics/{topic:str}/preview/{index:int}", summary="One of them, as its bytes")
    async def preview(request: AnyRequest, topic: Name, index: FromPath[int]) -> Answer:
        content = await gate.act(request, message_previews.one, topic, index)
        return Response(content, media_type="application/octet-stream")

    @post("/filters/{topic:str}", summary="Whether a message passes filters", status_code=200)
    async def try_filters(request: AnyRequest, topic: Name) -> Answer:
        body = await object_of(request)
        return json_answer(await gate.act(request, filter_trials.make, topic, body))

    return [previews, preview, _tail_route(gate, tails), try_filters]


def _tail_route(gate: Gate, tails: Tails) -> HTTPRouteHandler:
    open_tails = 0

    async def lines(tail: Tail) -> AsyncIterator[bytes]:
        nonlocal open_tails
        open_tails += 1
        try:
            while chunk := await gate.read(tail.next_lines):
                yield chunk
        except (BridgeClosed, HermesError):
            # The answer has begun: all that can be said now is that it ends here.
            return
        finally:
            open_tails -= 1

    @get("/topics/{topic:str}/messages", summary="A topic's messages, one JSON object a line")
    async def messages(
        request: AnyRequest,
        topic: Name,
        start: _Start = "beginning",
        follow: FromQuery[bool] = False,
        limit: FromQuery[int | None] = None,
        last: FromQuery[int | None] = None,
    ) -> Stream:
        if open_tails >= TAILS_MAX:
            raise Unavailable(f"{TAILS_MAX} streams of messages are open already; try again later")
        tail = await gate.act(request, tails.open, topic, start, follow, limit, last)
        return Stream(lines(tail), media_type=_NDJSON)

    return messages
