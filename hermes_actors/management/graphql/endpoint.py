"""POST /graphql: an operation's result as JSON, or as server-sent events by the protocol GraphQL
over SSE ("distinct connections"), which subscriptions need.
"""

import io
import json
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import trio
from litestar import Response, post
from litestar.handlers import HTTPRouteHandler
from strawberry.schema.exceptions import CannotGetOperationTypeError

from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.administration import Administration
from hermes_actors.management.bodies.decoding import decode_plain, json_object
from hermes_actors.management.graphql.fields import Operation, Request
from hermes_actors.management.graphql.schema import schema
from hermes_actors.management.http.answers import JSON, AnyRequest, body_of
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.tail import LINES_BYTES_MAX
from hermes_actors.management.routes.streams import Streams

TIMEOUT_S = 40.0
"""How long an operation may take. A retransmission takes up to 30 s."""

RESULT_CHARACTERS_MAX = 16_777_216
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_THREADS = trio.CapacityLimiter(4)
_EVENTS = "text/event-stream"
_logger = logging.getLogger(__name__)


class _Events:
    """The events of one operation: of each message for an open tail, else of its only result."""

    def __init__(self, operation: Operation, result: bytes) -> None:
        self.operation = operation
        self.result = result
        self._lines = deque[bytes]()
        self._last = b"" if operation.tail else _event(result)
        self._last += b"event: complete\ndata:\n\n"

    async def next_chunk(self) -> bytes:
        """The next events; a comment if there is no message for some time. Empty at the end."""
        tail = self.operation.tail
        if tail and not self._lines:
            chunk = await tail.next_chunk()
            if chunk == b"\n":
                return b": no message\n\n"
            self._lines.extend(chunk.splitlines())
        if self._lines:
            return await _in_thread(_events, self.operation, self._lines)
        last, self._last = self._last, b""
        return last


def graphql_route(gate: Gate, parts: Administration) -> HTTPRouteHandler:
    """The route of all operations. Raises LookupError for a field without a rule of access."""
    schema()
    streams = Streams(gate, "GraphQL", _EVENTS)

    async def begun(caller: Caller, request: AnyRequest, asked: Request) -> _Events:
        operation = Operation(gate, parts, request, caller, asked)
        return _Events(operation, await _in_thread(_result, operation))

    @post("/graphql", include_in_schema=False, status_code=200)
    async def graphql(request: AnyRequest) -> Response[Any]:
        asked = decode_plain(Request, json_object(await body_of(request)))
        if _EVENTS in request.headers.get("accept", ""):
            return await streams.answer(request, begun, request, asked)
        events = await gate.act(request, begun, request, asked)
        if events.operation.tail:
            raise Refused(f"A subscription needs the header Accept: {_EVENTS}")
        return Response(events.result, media_type=JSON)

    return graphql


async def _in_thread(work: Callable[..., bytes], *args: Any) -> bytes:
    """Raises Unavailable if the work takes too long."""
    with trio.move_on_after(TIMEOUT_S):
        return await trio.to_thread.run_sync(partial(work, *args), limiter=_THREADS)
    raise Unavailable(f"It took longer than {TIMEOUT_S:.0f} s, and may have changed something")


def _events(operation: Operation, lines: deque[bytes]) -> bytes:
    events = b""
    while lines and len(events) < LINES_BYTES_MAX:
        operation.message = msgspec.json.decode(lines.popleft())
        events += _event(_result(operation))
    return events


def _event(result: bytes) -> bytes:
    return b"event: next\ndata: " + result + b"\n\n"


def _result(operation: Operation) -> bytes:
    """The JSON of the operation's result. A subscription is opened, or shows its `message`."""
    asked, named = operation.asked, operation.asked.operation_name
    try:
        found = schema().execute_sync(asked.query, asked.variables, operation, operation_name=named)
    except CannotGetOperationTypeError as error:
        raise Refused(f"query holds no operation{f' {named}' if named else ''}") from error
    errors = [_shown(each) for each in found.errors or ()]
    result = {"data": found.data} | ({"errors": errors} if errors else {})
    text, left = io.StringIO(), RESULT_CHARACTERS_MAX
    for part in _ENCODER.iterencode(result):
        if (left := left - len(part)) < 0:
            raise Refused(f"The result is longer than {RESULT_CHARACTERS_MAX} characters")
        text.write(part)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _shown(error: Any) -> dict[str, Any]:
    """An error with the code of its cause; of a bug only its type, and the log has the rest."""
    shown: dict[str, Any] = error.formatted
    cause = error
    while getattr(cause, "original_error", None) is not None:
        cause = cause.original_error
    if isinstance(cause, HermesError):
        code = {"code": cause.code.name, "status": cause.status}
        return {**shown, "message": cause.message, "extensions": code}
    if not hasattr(cause, "formatted"):
        _logger.error("A field of GraphQL failed", exc_info=cause)
        text = f"Internal error ({type(cause).__name__}); the node's log has the details"
        code = {"code": ErrorCode.OTHER.name, "status": 500}
        return {**shown, "message": text, "extensions": code}
    return {**shown, "extensions": {"code": ErrorCode.VALIDATION_ERROR.name, "status": 400}}
