"""The one table of gRPC codes, and outcomes as gRPC shows them."""

from types import MappingProxyType

import msgspec
from grpc import StatusCode
from msgspec import Struct

from hermes_actors.errors import HermesError
from hermes_actors.publisher.answers import Answer, error_answer
from hermes_actors.rpc.v1 import broker_pb2

CODES = MappingProxyType(
    {
        200: StatusCode.OK,
        201: StatusCode.OK,
        202: StatusCode.OK,
        400: StatusCode.INVALID_ARGUMENT,
        401: StatusCode.UNAUTHENTICATED,
        403: StatusCode.PERMISSION_DENIED,
        404: StatusCode.NOT_FOUND,
        408: StatusCode.DEADLINE_EXCEEDED,
        409: StatusCode.ABORTED,
        415: StatusCode.INVALID_ARGUMENT,
        422: StatusCode.FAILED_PRECONDITION,
        429: StatusCode.RESOURCE_EXHAUSTED,
        431: StatusCode.INVALID_ARGUMENT,
        500: StatusCode.INTERNAL,
        503: StatusCode.UNAVAILABLE,
    }
)
"""The code of each HTTP status that a call can meet; docs/grpc.md shows it."""

_TEXT_CHARACTERS_MAX = 2_000
_NO_TEXT = MappingProxyType(
    {
        401: "Credentials are missing or not accepted; send them as the metadata authorization",
        503: "The node is stopping, or has not started yet; ask another node",
    }
)


class _Said(Struct):
    message: str = ""
    code: str = ""


_said = msgspec.json.Decoder(_Said)


def outcome_of(answer: Answer) -> broker_pb2.PublishOutcome:
    """What HTTP would answer, as an outcome."""
    said = _said.decode(answer.body) if answer.body else _Said(_NO_TEXT.get(answer.status, ""))
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return broker_pb2.PublishOutcome(
        message_id=answer.message_id,
        code=code_of(answer.status).value[0],
        http_status=answer.status,
        error_code=said.code,
        error_message=said.message[:_TEXT_CHARACTERS_MAX],
        headers=headers,
    )


def code_of(status: int) -> StatusCode:
    """The code of an HTTP status."""
    return CODES.get(status, CODES[400 if status < 500 else 500])


class CallEnded(Exception):
    """A call ends with this status of gRPC. The metadata has the details as HTTP has them."""

    def __init__(self, outcome: broker_pb2.PublishOutcome) -> None:
        super().__init__(outcome.error_message)
        self.code = code_of(outcome.http_status)
        self.text = outcome.error_message
        pairs = {
            "hermes-http-status": str(outcome.http_status),
            "hermes-error-code": outcome.error_code,
            "hermes-message-id": outcome.message_id,
            **outcome.headers,
        }
        self.metadata = tuple((name, value) for name, value in pairs.items() if value)


def ended_by(error: HermesError) -> CallEnded:
    """The end of a call by this error."""
    return CallEnded(outcome_of(error_answer(error, "")))
