"""What a publisher is told: status, code and text for each outcome. Pure."""

import msgspec
from msgspec import Struct

from hermes_actors.errors import HermesError, Refused
from hermes_actors.log.base import Stored
from hermes_actors.model.topic import Topic
from hermes_actors.publisher.outcomes import Abandoned, Buffered, Replayed, log_error
from hermes_actors.publisher.pending import Pending

JSON = "application/json"


class Answer(Struct, frozen=True, gc=False):
    """An HTTP answer without its HTTP. "" for a header that is not sent; `headers` are further
    ones, names in lower case.

    `closes`: the connection cannot be used further, the rest of the request is not read.
    """

    status: int
    message_id: str = ""
    body: bytes = b""
    content_type: str = ""
    allow: str = ""
    closes: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class ErrorBody(Struct, frozen=True):
    """The JSON of an error; the order of the fields is the wire's."""

    message: str
    code: str


NOT_FOUND = Answer(404)
SHUTTING_DOWN = Answer(503, closes=True)
BAD_REQUEST = Answer(400, closes=True)
_REPLAYED = (("idempotency-replayed", "true"),)


def error_answer(error: HermesError, message_id: str, *, closes: bool = False) -> Answer:
    """The answer that carries this error."""
    body = msgspec.json.encode(ErrorBody(error.message, error.code.name))
    return Answer(error.status, message_id, body, JSON, closes=closes, headers=error.headers)


def answer_to(pending: Pending) -> Answer:
    """The answer to a settled publish."""
    outcome = pending.outcome
    message_id = pending.id
    if isinstance(outcome, Stored):
        return Answer(201, message_id)
    if isinstance(outcome, Buffered):
        return Answer(202, message_id)
    if isinstance(outcome, Replayed):
        return Answer(outcome.status, message_id, headers=_REPLAYED)
    if isinstance(outcome, HermesError):
        # The rest of a body that was not read would be taken for the next request.
        return error_answer(outcome, message_id, closes=not pending.has_body)
    assert outcome is not None, "it is not settled"
    assert not isinstance(outcome, Abandoned), "nobody waits for this answer"
    return error_answer(log_error(outcome, pending.route.name), message_id)


def too_long_for_server(size_text: str, bytes_max: int) -> Refused:
    """A message above the bound of all topics; `size_text` says how long it is, "5 bytes"."""
    return Refused(
        f"Message of {size_text} is above this server's limit of {bytes_max} "
        "(frontend.body_bytes_max); send less at once"
    )


def too_long_for_topic(size: int, topic: Topic) -> Refused:
    """A message above its topic's own bound."""
    return Refused(
        f"Message is {size} bytes long; topic {topic.name} takes at most {topic.max_message_size} "
        "(its maxMessageSize); send less at once, or have its owner raise that"
    )
