"""All possible outcomes of a publish, and the answer to each: status, code and text. Pure."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import Outcome, RefusedRecord, Stored, UnknownRecord
from hermes_actors.model.topic import Topic

JSON = "application/json"


class Answer(Struct, frozen=True, gc=False):
    """An HTTP answer, independent of the HTTP version.

    A header whose text is empty is not sent. `headers` are further ones, with names in lower case.
    `closes`: the connection must be closed, because the rest of the request is not read.
    """

    status: int
    message_id: str = ""
    body: bytes = b""
    content_type: str = ""
    closes: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def fields(self) -> list[tuple[bytes, bytes]]:
        """All its headers, except those about the connection."""
        # These statuses have no body and must not announce one.
        has_length = self.status not in (204, 304)
        fields = [(b"content-length", b"%d" % len(self.body))] if has_length else []
        if self.content_type:
            fields.append((b"content-type", self.content_type.encode()))
        if self.message_id:
            fields.append((b"hermes-message-id", self.message_id.encode()))
        return fields + encoded(self.headers)


def encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers as bytes."""
    return [(name.encode(), value.encode()) for name, value in headers]


class Abandoned(Struct, frozen=True):
    """The publisher left before its body was complete, so no answer is sent."""


class Buffered(Struct, frozen=True):
    """No log has it yet, but it is on this node's disk, which sends it until a log has it."""


class Replayed(Struct, frozen=True):
    """The message was stored before, under the same key. The answer repeats the first status."""

    status: int


Settled = Outcome | HermesError | Abandoned | Buffered | Replayed
"""The final outcome of a message."""


NOT_FOUND = Answer(404)
SHUTTING_DOWN = Answer(503, closes=True)
IN_MEMORY = ("hermes-durability", "memory")
"""The header of each answer of a topic whose messages are in memory only."""
_REPLAYED = (("idempotency-replayed", "true"),)
_WITHOUT_ERROR: dict[type[object], int] = {Stored: 201, Buffered: 202, Abandoned: 0}


def error_answer(error: HermesError, message_id: str, *, closes: bool = False) -> Answer:
    """The answer that reports this error."""
    body = msgspec.json.encode({"message": error.message, "code": error.code.name})
    return Answer(error.status, message_id, body, JSON, closes=closes, headers=error.headers)


def answer_to(outcome: Settled, message_id: str, topic: str, *, has_body: bool) -> Answer:
    """The answer for this outcome. `has_body`: the whole body has been read."""
    if isinstance(outcome, Replayed):
        return Answer(outcome.status, message_id, headers=_REPLAYED)
    status = _WITHOUT_ERROR.get(type(outcome))
    if status is not None:
        assert status, "an abandoned publish gets no answer"
        return Answer(status, message_id)
    # Otherwise the unread rest of the body would be parsed as the next request.
    return error_answer(error_of(outcome, topic), message_id, closes=not has_body)


def of_topic(answer: Answer, topic: Topic) -> Answer:
    """The answer, which says so if the topic's messages are in memory only."""
    if not topic.is_in_memory:
        return answer
    return replace(answer, headers=(*answer.headers, IN_MEMORY))


def status_of(outcome: Settled, topic: str) -> int:
    """The status of its answer; 0 if no answer is sent."""
    if isinstance(outcome, Replayed):
        return outcome.status
    status = _WITHOUT_ERROR.get(type(outcome))
    return error_of(outcome, topic).status if status is None else status


def error_of(outcome: Settled, topic: str) -> HermesError:
    """Return the error for a message that is not known to be stored. An outcome that is already an
    error is returned as it is.
    """
    if isinstance(outcome, HermesError):
        return outcome
    assert not isinstance(outcome, Stored | Buffered | Replayed | Abandoned), "it is no error"
    if isinstance(outcome, RefusedRecord) and outcome.is_too_large:
        return Refused(
            f"Message for topic {topic} was not stored: {outcome.reason}: the larger one of "
            "management.topic_bytes_max and the topic's maxMessageSize with room for headers; "
            "send less at once, or have one of the two raised"
        )
    became = "may or may not have been" if isinstance(outcome, UnknownRecord) else "was not"
    return HermesError(
        f"Message for topic {topic} {became} stored: {outcome.reason}", ErrorCode.INTERNAL_ERROR
    )


def too_long_for_server(size_text: str, bytes_max: int) -> Refused:
    """The error for a message above the limit of all topics; `size_text` is for example "5
    bytes".
    """
    return Refused(
        f"Message of {size_text} is above this server's limit of {bytes_max} "
        "(frontend.body_bytes_max); send less at once"
    )


def too_long_for_topic(size: int, topic: Topic) -> Refused:
    """Return the error for a message above its topic's limit."""
    return Refused(
        f"Message is {size} bytes long; topic {topic.name} takes at most {topic.max_message_size} "
        "(its maxMessageSize); send less at once, or have its owner raise that"
    )


def overdue(limit_ms: int, *, may_be_stored: bool) -> Unavailable:
    """Return the error for a message that no log has acknowledged within the limit."""
    became = (
        "acknowledged by the log within {} ms; it may have been stored"
        if may_be_stored
        else "given to the log within {} ms; it was not stored"
    )
    return Unavailable(
        f"Message was not {became.format(limit_ms)}", ErrorCode.SENDING_TO_KAFKA_TIMEOUT
    )


def full_behind_key(topic: str, *, was_sent: bool) -> Unavailable:
    """Return the error for a message behind older ones of its key, which wait in a full spool."""
    became = "may have been stored" if was_sent else "was not stored"
    return Unavailable(
        f"Message for topic {topic} {became}: older messages of its key wait in the spool, "
        "which takes no more; try again",
        ErrorCode.SENDING_TO_KAFKA_TIMEOUT if was_sent else ErrorCode.OTHER,
    )


def not_written(topic: str, reason: str, *, was_sent: bool, may_be_kept: bool) -> Unavailable:
    """Return the error for a message that the spool accepted but could not write.

    `may_be_kept`: it may be on the disk nevertheless, and be sent after a restart.
    """
    if not was_sent and not may_be_kept:
        # Older messages of its key are in the spool, or no append began in time.
        return Unavailable(
            f"Message for topic {topic} was not given to the log, and this node could not keep it: "
            f"{reason}; it was not stored, try again",
            ErrorCode.OTHER,
        )
    became = "acknowledged by" if was_sent else "given to"
    return Unavailable(
        f"Message for topic {topic} was not {became} the log, and this node could not keep it: "
        f"{reason}; it may have been stored",
        ErrorCode.SENDING_TO_KAFKA_TIMEOUT,
    )
