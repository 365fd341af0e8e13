"""The routes of messages: tails, previews, filter trials, and tracking."""

from collections.abc import Awaitable
from typing import Annotated, Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.management.http.answers import JSON, Answer, AnyRequest
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.filters import FilterTest
from hermes_actors.management.messages.offline import OfflineRetransmission
from hermes_actors.management.messages.tail import Tails
from hermes_actors.management.routes.route import SUBSCRIPTION, Add
from hermes_actors.management.routes.streams import Streams

_BYTES = "application/octet-stream"
_OFFLINE = "/offline-retransmission"
_NDJSON = "application/x-ndjson"

_Start = Annotated[
    str,
    QueryParameter(name="from", description="`beginning`, `end`, or an ISO 8601 time"),
]


def message_routes(add: Add, parts: Administration) -> list[HTTPRouteHandler]:
    """/topics/{topic}/preview, /filters, /tracking, Hermes' traces of a message, and
    /offline-retransmission.
    """
    previews, tracking, tasks = parts.previews, parts.tracking, parts.offline_tasks
    preview, trace = "GET /topics/{topic:str}/preview", "GET /events/{message_id:str}/trace"

    async def of_message(caller: Caller, message_id: str) -> dict[str, Any]:
        """The events of a message, in all datacentres."""
        # The value of a path parameter begins with a slash.
        return await tracking.of_message(caller, str(message_id)[1:])

    return [
        add(preview, previews.of_topic),
        add(f"{preview}/{{index:int}}", previews.one, answering=_bytes, media_type=_BYTES),
        add(
            f"{preview}/cluster/{{cluster:str}}/partition/{{partition:int}}/offset/{{offset:int}}",
            previews.at,
            answering=_content,
            gives=Any,
        ),
        add("POST /filters/{topic:str}", parts.filter_trials.make, takes=FilterTest),
        add("GET /tracking/{message_id:path}", of_message),
        add(trace, tracking.of_subscription, below=SUBSCRIPTION),
        add("POST /tasks", tasks.create, below=_OFFLINE, status=201, takes=OfflineRetransmission),
        add("GET /tasks", tasks.all, below=_OFFLINE),
        add("DELETE /tasks/{task:str}", tasks.delete, below=_OFFLINE),
        add("GET /topics/{topic:str}/tasks", tasks.of_topic, below=_OFFLINE),
    ]


async def _bytes(asked: Awaitable[bytes]) -> Answer:
    return Response(await asked, media_type=_BYTES)


async def _content(asked: Awaitable[dict[str, Any]]) -> Answer:
    return Response((await asked)["content"].encode(), media_type=JSON)


def tail_route(gate: Gate, tails: Tails) -> HTTPRouteHandler:
    """/topics/{topic}/messages. It answers with a stream, which `route` does not support."""
    streams = Streams(gate, "messages", _NDJSON)

    @get(
        "/topics/{topic:str}/messages",
        summary="A topic's messages, one JSON object a line",
        responses={200: ResponseSpec(str, False, "Lines", _NDJSON)},
    )
    async def messages(
        request: AnyRequest,
        topic: FromPath[str],
        start: _Start = "beginning",
        follow: FromQuery[bool] = False,
        limit: FromQuery[int | None] = None,
        last: FromQuery[int | None] = None,
        partition: FromQuery[int | None] = None,
    ) -> Stream:
        args = topic, start, follow, limit, last, partition
        return await streams.answer(request, tails.open, *args)

    return messages
