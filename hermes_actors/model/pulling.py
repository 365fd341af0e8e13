"""What clients of a pull subscription send and get, as JSON."""

from enum import StrEnum, unique

from msgspec import UNSET, Raw, Struct, UnsetType, field

MESSAGES_MAX = 1_000
"""Maximum number of messages in an answer, and of ack ids in a request."""
WAIT_MS_MAX = 30_000
ACK_DEADLINE_S_MAX = 600


class PullRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """Fetch up to `max_messages`. Wait up to `wait_ms` for the first one."""

    max_messages: int = 10
    wait_ms: int = 10_000


class AckRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The messages are processed."""

    ack_ids: list[str]


class NackRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The messages could not be processed. They come again after `delay_ms`; None: after the
    policy's backoff.
    """

    ack_ids: list[str]
    delay_ms: int | None = None


class ExtendRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The messages need more time: from now on, so many seconds."""

    ack_ids: list[str]
    ack_deadline_seconds: int


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


@unique
class RefusedCode(StrEnum):
    """Why an ack id is refused."""

    NOT_OUT = "NOT_OUT"
    """Acknowledged or given back already, or its deadline has passed."""
    STALE = "STALE"
    """Handed out by an earlier owner of the partition, or before its consumer restarted."""
    UNKNOWN = "UNKNOWN"
    """Not an ack id."""

    @property
    def text(self) -> str:
        """The reason for people."""
        return {
            RefusedCode.NOT_OUT: "it was acknowledged or given back before, or its deadline has "
            "passed; in the latter case the message comes again",
            RefusedCode.STALE: "the partition has another owner since, or its consumer has "
            "restarted; the message comes again",
            RefusedCode.UNKNOWN: "it is no ack id",
        }[self]


class RefusedAck(Struct, frozen=True, rename="camel"):
    """An ack id that had no effect."""

    ack_id: str
    code: RefusedCode
    message: str

    @classmethod
    def because(cls, ack_id: str, code: RefusedCode) -> "RefusedAck":
        """Refuse this id."""
        return cls(ack_id, code, code.text)


class Settled(Struct, frozen=True, rename="camel"):
    """The answer to ack, nack and extend: how many ids had an effect, and those that had none."""

    accepted: int = 0
    refused: list[RefusedAck] = field(default_factory=list)
