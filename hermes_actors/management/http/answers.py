"""Answers in HTTP: JSON, errors as {"message","code"}, and CORS headers on all of them."""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.management.http.intake import RequestBody
from hermes_actors.management.http.origins import Hosts
from hermes_actors.runtime.bridge import BridgeClosed

JSON = "application/json"

_PREFLIGHT_AGE_S = 1_209_600
_METHODS = b"POST,PUT,GET,HEAD,DELETE"
REASON_HEADER = "Hermes-Change-Reason"
"""The header for the reason of a change."""

_REQUEST_HEADERS = (
    "X-Requested-With, Content-Type, Accept, Origin, Authorization, Hermes-Admin-Password, "
    + REASON_HEADER
).encode()
_logger = logging.getLogger(__name__)

AnyRequest = Request[Any, Any, Any]
Answer = Response[bytes]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


def json_answer(value: object, status: int = 200) -> Answer:
    """The value as JSON."""
    return Response(msgspec.json.encode(value), media_type=JSON, status_code=status)


def empty_answer(status: int) -> Answer:
    """An answer without a body."""
    return Response(b"", status_code=status, media_type=JSON)


def error_answer(message: str, code: ErrorCode, status: int) -> Answer:
    """An error as JSON."""
    return json_answer({"message": message, "code": code.name}, status)


async def body_of(request: AnyRequest) -> bytes:
    """The request's body. Its media type must be JSON or missing.

    Raises Refused: 415 for another media type.
    """
    declared = request.headers.get("content-type", "")
    media_type = declared.partition(";")[0].strip().lower()
    if media_type and media_type != JSON and not media_type.endswith("+json"):
        raise Refused(
            f"Content-Type '{media_type}' is not supported here; send {JSON}",
            ErrorCode.VALIDATION_ERROR,
            status=415,
        )
    return await request.body()


def on_hermes_error(_: AnyRequest, error: HermesError) -> Answer:
    """The answer to an error that has its own code and status."""
    answer = error_answer(error.message, error.code, error.status)
    for name, value in error.headers:
        # Several challenges become a list in one header.
        said = answer.headers.get(name)
        answer.headers[name] = f"{said}, {value}" if said else value
    return answer


def on_http_error(request: AnyRequest, error: HTTPException) -> Answer:
    """The answer to an error of the framework: unknown route, wrong method, bad parameter."""
    if isinstance(error, MethodNotAllowedException):
        text = f"{request.method} is not allowed on {request.url.path}"
    elif isinstance(error, NotFoundException):
        text = f"There is nothing at {request.url.path}"
        if request.url.path == "/graphql":
            text += "; management.graphql_enabled turns GraphQL on"
    else:
        text = _with_reasons(error)
    is_invalid = error.status_code == 400
    code = ErrorCode.VALIDATION_ERROR if is_invalid else ErrorCode.OTHER
    return error_answer(text, code, error.status_code)


def _with_reasons(error: HTTPException) -> str:
    """The bad parameters with their reasons, which are not in the framework's own text."""
    extra = error.extra if isinstance(error.extra, list) else []
    reasons = [
        f"query parameter {each.get('key')}: {each.get('message')}"
        for each in extra
        if isinstance(each, Mapping)
    ]
    return "; ".join(reasons) or error.detail


def on_stop(_: AnyRequest, error: BridgeClosed) -> Answer:
    """The answer while the node is stopping."""
    return on_hermes_error(_, Unavailable(str(error)))


def on_fault(request: AnyRequest, error: Exception) -> Answer:
    """The answer to a bug: the log gets the traceback, the client the type of the error."""
    _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_answer(
        f"Internal error ({type(error).__name__}); the node's log has the details",
        ErrorCode.OTHER,
        500,
    )


class WireRules:
    """The outermost ASGI layer: CORS headers, preflights, HEAD for each GET, allowed host names,
    and limits for bodies.
    """

    def __init__(
        self, app: AsgiApp, allowed_origin: str, hosts: Hosts, body_timeout_s: float
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._body_timeout_s = body_timeout_s
        self._headers = [
            (b"access-control-allow-origin", allowed_origin.encode()),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", str(_PREFLIGHT_AGE_S).encode()),
            (b"access-control-allow-headers", _REQUEST_HEADERS),
        ]

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            # A browser's preflight wants only the headers.
            await send({"type": "http.response.start", "status": 204, "headers": self._headers})
            await send({"type": "http.response.body", "body": b""})
            return
        try:
            self._hosts.check(scope["path"], scope["headers"])
        except Refused as error:
            await self._refuse(error, scope, send)
            return
        is_head = scope["method"] == "HEAD"
        version = scope["http_version"]
        body = RequestBody(receive, scope["headers"], version, self._body_timeout_s)

        async def send_by_the_rules(message: Event) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
                if not body.is_whole and version < "2":
                    # Otherwise the unread rest would be parsed as the next request.
                    message["headers"].append((b"connection", b"close"))
            elif message["type"] == "http.response.body" and is_head:
                message["body"] = b""
            await send(message)

        # A GET of these streams has no end, so the HEAD would have none.
        path = scope["path"].rstrip("/")
        if is_head and path != "/events" and not path.endswith("/messages"):
            scope = {**scope, "method": "GET"}
        await self._app(scope, body.receive, send_by_the_rules)

    async def _refuse(self, error: Refused, scope: Event, send: Send) -> None:
        """Answer without the framework."""
        body = msgspec.json.encode({"message": error.message, "code": error.code.name})
        headers = [
            (b"content-type", JSON.encode()),
            (b"content-length", b"%d" % len(body)),
            *self._headers,
        ]
        if scope["http_version"] < "2":
            headers.append((b"connection", b"close"))
        start = {"type": "http.response.start", "status": error.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})
