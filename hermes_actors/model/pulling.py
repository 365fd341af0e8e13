"""What clients of a pull subscription send and get, as JSON."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

MESSAGES_MAX = 1_000
"""Maximum number of messages in an answer, and of ack ids in a request."""
ACK_DEADLINE_S_MAX = 600

AckIds = Annotated[list[str], Meta(min_length=1, max_length=MESSAGES_MAX)]


class PullRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """Fetch up to `max_messages`. Wait up to `wait_ms` for the first one. With `base64` each body
    is in `data`, byte for byte.
    """

    max_messages: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)] = 10
    wait_ms: Annotated[int, Meta(ge=0, le=30_000)] = 10_000
    base64: bool = False


class AckRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The messages are processed."""

    ack_ids: AckIds


class NackRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The messages could not be processed. They come again after `delay_ms`; None: after the
    policy's backoff.
    """

    ack_ids: AckIds
    delay_ms: Annotated[int, Meta(ge=0)] | None = None


class ExtendRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The messages need more time: from now on, so many seconds."""

    ack_ids: AckIds
    ack_deadline_seconds: Annotated[int, Meta(ge=1, le=ACK_DEADLINE_S_MAX)]


Asked = PullRequest | AckRequest | NackRequest | ExtendRequest


class PulledMessage(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """A message. Its body is in `json` if it is JSON, otherwise in `data`, in Base64. A record
    without a value has neither.
    """

    message_id: str
    publish_time: str
    """ISO 8601, UTC. Empty string if it is unknown."""
    json: Raw | UnsetType = UNSET
    data: str | None = None
    ordering_key: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    """Its propagated headers, and the attributes of a CloudEvent as `ce-…`."""


class ReceivedMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message that is handed out until `ack_deadline`, for the `delivery_attempt`-th time."""

    ack_id: str
    delivery_attempt: int
    ack_deadline: str
    message: PulledMessage


class Pulled(Struct, frozen=True, rename="camel"):
    """The answer to a pull."""

    received_messages: list[ReceivedMessage] = field(default_factory=list)


REFUSALS = {
    "NOT_OUT": "it was acknowledged or given back before, or its deadline has passed; in the "
    "latter case the message comes again",
    "STALE": "the partition has a new owner, or its consumer has restarted; the message "
    "comes again",
    "UNKNOWN": "it is not an ack id",
}
"""Why an ack id is refused: codes and their texts."""


class RefusedAck(Struct, frozen=True, rename="camel"):
    """An ack id that had no effect."""

    ack_id: str
    code: str
    message: str


def refused(ack_id: str, code: str) -> RefusedAck:
    """Refuse this id for one of REFUSALS."""
    return RefusedAck(ack_id, code, REFUSALS[code])


class Settled(Struct, frozen=True, rename="camel"):
    """The answer to ack, nack and extend: how many ids had an effect, and those that had none."""

    accepted: int = 0
    refused: list[RefusedAck] = field(default_factory=list)
