"""The ends that a publish can have, beside those that a log tells of, and their texts. Pure."""

from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import (
    Outcome,
    RefusedRecord,
    Stored,
    UnavailableRecord,
    UnknownRecord,
)


class Abandoned(Struct, frozen=True):
    """The publisher left before its body was complete: nobody waits for an answer."""


class Buffered(Struct, frozen=True):
    """No log has it yet, but this node's disk does, and sends it until one has."""


class Replayed(Struct, frozen=True):
    """The message was stored before, under the same key: the first answer's status again."""

    status: int


Settled = Outcome | HermesError | Abandoned | Buffered | Replayed
"""The final outcome of a message."""


def overdue(limit_ms: int, *, may_be_stored: bool) -> Unavailable:
    """No log acknowledged within the limit."""
    became = (
        "acknowledged by the log within {} ms; it may have been stored"
        if may_be_stored
        else "given to the log within {} ms; it was not stored"
    )
    return Unavailable(
        f"Message was not {became.format(limit_ms)}", ErrorCode.SENDING_TO_KAFKA_TIMEOUT
    )


def full_behind_key(topic: str, *, was_sent: bool) -> Unavailable:
    """Older messages of its key are kept, and no more can be."""
    became = "may have been stored" if was_sent else "was not stored"
    return Unavailable(
        f"Message for topic {topic} {became}: older messages of its key wait in the spool, "
        "which takes no more; try again",
        ErrorCode.SENDING_TO_KAFKA_TIMEOUT if was_sent else ErrorCode.OTHER,
    )


def not_written(topic: str, reason: str, *, was_sent: bool) -> Unavailable:
    """The spool took it, and its disk did not."""
    if not was_sent:
        # Older messages of its key wait in the spool, or the log did not come round to it in time.
        return Unavailable(
            f"Message for topic {topic} was not given to the log, and this node could not keep it: "
            f"{reason}; it was not stored, try again",
            ErrorCode.OTHER,
        )
    return Unavailable(
        f"Message for topic {topic} was not acknowledged by the log, and this node could not keep "
        f"it: {reason}; it may have been stored",
        ErrorCode.SENDING_TO_KAFKA_TIMEOUT,
    )


def status_of(outcome: Settled, topic: str) -> int:
    """The status that it is answered with; 0 when nobody is."""
    if isinstance(outcome, Stored):
        return 201
    if isinstance(outcome, Buffered):
        return 202
    if isinstance(outcome, Abandoned):
        return 0
    if isinstance(outcome, HermesError | Replayed):
        return outcome.status
    return log_error(outcome, topic).status


def log_error(
    outcome: RefusedRecord | UnavailableRecord | UnknownRecord, topic: str
) -> HermesError:
    """What is said of a record that the log has not stored, as far as it knows."""
    if isinstance(outcome, RefusedRecord) and outcome.is_too_large:
        return Refused(
            f"Message for topic {topic} was not stored: {outcome.reason}: the larger one of "
            "management.topic_bytes_max and the topic's maxMessageSize with room for headers; send "
            "less at once, or have one of them raised"
        )
    if isinstance(outcome, UnknownRecord):
        text = f"Message for topic {topic} may or may not have been stored: {outcome.reason}"
    else:
        text = f"Message for topic {topic} was not stored: {outcome.reason}"
    return HermesError(text, ErrorCode.INTERNAL_ERROR)
